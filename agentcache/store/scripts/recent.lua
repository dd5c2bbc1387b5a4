-- uses base view
-- Open sessions of a tenant, those whose leases end last before others: where all have one lease, those used last.
-- Of a shard only the last WALK leases are looked through; what is missing then is the tenant's newest.
-- ARGV[3…]  tenant, how many, WALK
-- returns    {open sessions, {session, what `view` says…}…}
local STEP = 500
local all, own = P .. 't:' .. ARGV[3], ARGV[3] .. '/'
local there, walk = redis.call('ZCARD', all), tonumber(ARGV[5])
local wanted, page, taken = math.min(there, tonumber(ARGV[4])), {there}, {}

local function take(sid)
  if #page > wanted or taken[sid] then return end
  taken[sid] = true
  local seen = view(sid)
  if seen[1] == 'open' then page[#page + 1] = {session_of(sid), unpack(seen)} end
end

for at = 0, walk - 1, STEP do
  if #page > wanted then break end
  local last = redis.call('ZREVRANGE', P .. 'idle', at, math.min(walk, at + STEP) - 1)
  for _, sid in ipairs(last) do
    if string.sub(sid, 1, #own) == own then take(sid) end
  end
  if #last < STEP then break end
end
for _, sid in ipairs(redis.call('ZREVRANGE', all, 0, tonumber(ARGV[4]) - 1)) do take(sid) end
return page
