-- Idle sessions: their holders are asked to let go, and when all have, the session is off the books.

local function children(one) return redis.call('EXISTS', P .. 'c:' .. one.sid) == 1 end

-- End an idle session. One that was closed before it was opened stays closed through that generation.
local function lapse(one)
  local closed = redis.call('HGET', P .. 's:' .. one.sid, 'closed')
  finish(one)
  if closed then
    redis.call('ZADD', P .. 'tomb', text(now - REOPEN - 1), one.sid)
    redis.call('HSET', P .. 'tombs', one.sid, closed)
  end
end

-- The holders that are registered, and so can be asked.
local function reachable(one)
  local found = {}
  for _, worker in ipairs(holders(one.sid)) do
    if redis.call('HEXISTS', P .. 'born', worker) == 1 then found[#found + 1] = worker end
  end
  return found
end

-- End a session whose lease is over, or ask its holders to let go, or arm it again. `idled` counts holders that were
-- asked and sessions that ended, and collects those that ended with holders whom nobody told.
local function idle_out(one, idled)
  local last = redis.call('ZREVRANGE', P .. 'f:' .. one.sid, 0, 0, 'WITHSCORES')
  if last[2] and tonumber(last[2]) > now then
    arm(one, tonumber(last[2]))
    return
  end
  if children(one) then
    arm(one, now + one.ttl)
    return
  end
  local asked = reachable(one)
  if #asked == 0 then
    local untold = holders(one.sid)
    if #untold > 0 then
      idled.lapsed[#idled.lapsed + 1] = {tenant_of(one.sid), session_of(one.sid), one.g, unpack(untold)}
    end
    lapse(one)
    idled.ended = idled.ended + 1
    return
  end
  if one.x == '' then one.x = 'asked' end
  save(one)
  arm(one, now + 2 * WORKER)
  for _, worker in ipairs(asked) do post(worker, 'expire', one, 'release', '', '') end
  idled.asked = idled.asked + #asked
end

-- A worker's answer. One that is busy, or failed, keeps the session as it was.
local function let_go(one, worker, generation, outcome)
  local told, current = tonumber(generation), tonumber(one.g)
  if told > current then return end
  if outcome == 'busy' or outcome == 'failed' then
    if one.x ~= '' and told == current then
      renew(one)
      save(one)
    end
    return
  end
  if told < current and worker == one.w then return end
  if redis.call('HDEL', P .. 's:' .. one.sid, 'h:' .. worker) == 0 or told < current then return end
  local going = one.x ~= ''
  if going and #reachable(one) > 0 then
    one.x = 'released'
  elseif not going or children(one) then
    one.g, one.x = issue(), ''
    if going then arm(one, now + one.ttl) end
  elseif #holders(one.sid) > 0 then  -- only such as cannot be asked: the next sweep says whom nobody told
    one.x = 'released'
    arm(one, now)
  else
    lapse(one)
    return
  end
  save(one)
end
