-- Closes of families, parents first, some sessions at a time. `how` is {mode, operation, reply_to}; `closed` collects
-- {tenant, session, generation, holder…}.
local function bury(sid, generation)
  reach(generation)
  redis.call('ZADD', P .. 'tomb', text(now), sid)
  redis.call('HSET', P .. 'tombs', sid, generation)
  local over = redis.call('ZCARD', P .. 'tomb') - TOMBSTONES
  if over > 0 then
    for _, oldest in ipairs(redis.call('ZRANGE', P .. 'tomb', 0, over - 1)) do
      redis.call('ZREM', P .. 'tomb', oldest)
      redis.call('HDEL', P .. 'tombs', oldest)
    end
  end
end

local function close_one(root, one, how, closed)
  local mode = how[1] == '' and one.c or how[1]
  local told = holders(one.sid)
  for _, worker in ipairs(told) do post(worker, 'close', one, mode, how[2], how[3]) end
  if redis.call('EXISTS', P .. 'c:' .. one.sid) == 1 then
    local family = redis.call('INCR', P .. 'families')
    redis.call('RENAME', P .. 'c:' .. one.sid, P .. 'k:' .. family)
    redis.call('RPUSH', P .. 'q:' .. root, family .. ' ' .. (redis.call('GET', P .. 'gen') or '0'))
  end
  bury(one.sid, one.g)
  finish(one)
  closed[#closed + 1] = {tenant_of(one.sid), session_of(one.sid), one.g, unpack(told)}
end

-- Go on with the close of a root; answers how many sessions were looked at.
local function close_left(root, limit, closed)
  local how = redis.call('HMGET', P .. 'y:' .. root, 'mode', 'operation', 'reply_to')
  local looked, queue = 0, P .. 'q:' .. root
  while looked < limit and redis.call('EXISTS', queue) == 1 do
    local number, through = string.match(redis.call('LINDEX', queue, 0), '(%d+) (%d+)')
    local family = P .. 'k:' .. number
    local child = redis.call('ZRANGE', family, 0, 0)[1]
    if child then
      looked = looked + 1
      redis.call('ZREM', family, child)
    end
    if redis.call('EXISTS', family) == 0 then redis.call('LPOP', queue) end
    local one = child and load(child)
    if one and tonumber(one.g) <= tonumber(through) then close_one(root, one, how, closed) end
  end
  if redis.call('EXISTS', queue) == 0 then
    redis.call('ZREM', P .. 'closing', root)
    redis.call('DEL', P .. 'y:' .. root)
  end
  return looked
end
