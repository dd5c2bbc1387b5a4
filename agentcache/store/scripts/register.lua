-- uses base desk
-- Take a worker in. A new incarnation: routers do not wait for the old one.
-- ARGV[3…]  worker, incarnation, card
-- returns    the epoch
local worker = ARGV[3]
if born(worker) ~= ARGV[4] then
  settle(worker, 'restarted', '')
  dismiss(worker)
  redis.call('HSET', P .. 'born', worker, ARGV[4])
end
redis.call('HSET', P .. 'card', worker, ARGV[5])
redis.call('PERSIST', P .. 'm:' .. worker)
redis.call('ZADD', P .. 'workers', text(now), worker)
return epoch()
