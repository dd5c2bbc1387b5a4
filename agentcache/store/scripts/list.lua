-- uses base view
-- Open sessions of a tenant, oldest first.
-- ARGV[3…]  tenant, after ('': from the start), how many
-- returns    {open sessions, place to go on after or '', {session, what `view` says…}…}
local all, limit = P .. 't:' .. ARGV[3], tonumber(ARGV[5])
local after = ARGV[4] == '' and '-inf' or '(' .. ARGV[4]
local found = redis.call('ZRANGEBYSCORE', all, after, '+inf', 'WITHSCORES', 'LIMIT', 0, limit + 1)
local page = {redis.call('ZCARD', all), #found > 2 * limit and text(tonumber(found[2 * limit])) or ''}
for at = 1, math.min(#found, 2 * limit), 2 do
  local seen = view(found[at])
  if seen[1] == 'open' then page[#page + 1] = {session_of(found[at]), unpack(seen)} end
end
return page
