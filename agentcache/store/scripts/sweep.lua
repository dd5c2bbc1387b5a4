-- uses base closing expiry desk silence
-- Dismiss workers that are gone, forget old tombstones, go on with abandoned closes, offer expiry to holders.
-- ARGV[3]   limit of each
-- returns    {holders asked, sessions ended, 1 if it stopped at its limit, closed, lapsed}; both of
--            {tenant, session, generation, holder…}
local limit = tonumber(ARGV[3])
epoch()
redis.call('SET', P .. 'swept', text(now))
local heard_of, gone = look(), now - 10 * WORKER
local silent = redis.call('ZRANGEBYSCORE', P .. 'workers', '-inf', text(gone), 'WITHSCORES')
for at = 1, #silent, 2 do
  local worker = silent[at]
  if heard_of(tonumber(silent[at + 1])) <= gone then
    settle(worker, 'failed', 'the worker is gone')
    dismiss(worker)
    redis.call('DEL', P .. 'm:' .. worker)
  end
end

local old = redis.call('ZRANGEBYSCORE', P .. 'tomb', '-inf', text(now - TOMBSTONE), 'LIMIT', 0, limit + 1)
for at = 1, math.min(#old, limit) do
  redis.call('ZREM', P .. 'tomb', old[at])
  redis.call('HDEL', P .. 'tombs', old[at])
end

-- Closes that nobody goes on with, oldest first; those of a later hour are of before the clock went back.
local function abandoned()
  local found = redis.call('ZRANGEBYSCORE', P .. 'closing', '-inf', text(now - ABANDONED), 'LIMIT', 0, limit)
  for _, root in ipairs(redis.call('ZRANGEBYSCORE', P .. 'closing', '(' .. text(now), '+inf', 'LIMIT', 0, limit)) do
    found[#found + 1] = root
  end
  return found
end

local closed, looked = {}, 0
for _, root in ipairs(abandoned()) do
  looked = looked + close_left(root, limit - looked, closed)
end

local due = redis.call('ZRANGEBYSCORE', P .. 'idle', '-inf', text(now), 'LIMIT', 0, limit - looked + 1)
local idled = {asked = 0, ended = 0, lapsed = {}}
for at = 1, math.min(#due, limit - looked) do
  local one = load(due[at])
  if one then
    idle_out(one, idled)
  else
    finish({sid = due[at], p = ''})
  end
end
local again = #old > limit or #due > limit - looked or #abandoned() > 0
return {idled.asked, idled.ended, again and 1 or 0, closed, idled.lapsed}
