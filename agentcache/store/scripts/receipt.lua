-- uses base expiry
-- A worker's answer to a notice: for the router that waits for it, or for an expiry that goes on.
-- ARGV[3…]  order, SID, generation, worker, outcome, operation, then the receipt as fields and values of a stream
-- returns    1 if a router was waiting, else 0
local order, sid, generation, worker, outcome = ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[7]
epoch()
if order == 'expire' then
  local one = load(sid)
  if one then let_go(one, worker, generation, outcome) end
  return 0
end
local name = sid .. '\n' .. ARGV[8]
local waiting = redis.call('HGET', P .. 'p:' .. worker, name)
if order ~= 'close' or not waiting then return 0 end
redis.call('HDEL', P .. 'p:' .. worker, name)
local router = P .. 'r:' .. string.match(waiting, '^%d+\n[^\n]*\n(.*)$')
redis.call('XADD', router, 'MAXLEN', '~', LENGTH, '*', unpack(ARGV, 9))
redis.call('PEXPIRE', router, 600000)
return 1
