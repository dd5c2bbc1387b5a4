-- Answer for a worker that will not: every notice whose receipt a router waits for.
local function settle(worker, outcome, said)
  local waiting = redis.call('HGETALL', P .. 'p:' .. worker)
  for at = 1, #waiting, 2 do
    local sid, operation = string.match(waiting[at], '^([^\n]*)\n(.*)$')
    local generation, mode, router = string.match(waiting[at + 1], '^(%d+)\n([^\n]*)\n(.*)$')
    redis.call('XADD', P .. 'r:' .. router, 'MAXLEN', '~', LENGTH, '*', 'order', 'close', 'tenant', tenant_of(sid),
      'session', session_of(sid), 'generation', generation, 'worker', worker, 'outcome', outcome, 'operation',
      operation, 'reply_to', router, 'mode', mode, 'said', said)
    redis.call('PEXPIRE', P .. 'r:' .. router, 600000)
  end
  redis.call('DEL', P .. 'p:' .. worker)
end

local function dismiss(worker)
  redis.call('ZREM', P .. 'workers', worker)
  for _, name in ipairs({'born', 'card', 'load', 'drain'}) do redis.call('HDEL', P .. name, worker) end
end
