-- uses base closing
-- Close a session with its descendants, some at a time; the same call again goes on.
-- ARGV[3…]  SID, generation ('': any), mode, operation, reply_to, again ('1')
-- returns    {verdict, generation, 1 if more are left, {tenant, session, generation, holder…}…}
local sid, generation = ARGV[3], ARGV[4]
local one, closed = load(sid), {}
epoch()

local function answer(verdict, of)
  return {verdict, of, redis.call('EXISTS', P .. 'q:' .. sid), unpack(closed)}
end

local again = ARGV[8] == '1' and tonumber(generation) or 0
if again > closed_through(sid) then
  if not one then bury(sid, generation) end
  if one and again < tonumber(one.g) then redis.call('HSET', P .. 's:' .. sid, 'closed', generation) end
end
if not one then
  local before = redis.call('HGET', P .. 'tombs', sid)
  if redis.call('EXISTS', P .. 'q:' .. sid) == 1 then
    redis.call('ZADD', P .. 'closing', text(now), sid)
    close_left(sid, CLOSES, closed)
  end
  return answer(before and 'already' or 'unknown', before or '0')
end
if tonumber(one.g) < again then
  reach(generation)
  one.g = generation
end
if generation ~= '' and generation ~= one.g then return {'stale', one.g, 0} end
redis.call('ZADD', P .. 'closing', text(now), sid)
redis.call('HSET', P .. 'y:' .. sid, 'mode', ARGV[5], 'operation', ARGV[6], 'reply_to', ARGV[7])
close_one(sid, one, {ARGV[5], ARGV[6], ARGV[7]}, closed)
close_left(sid, CLOSES - 1, closed)
return answer('closed', one.g)
