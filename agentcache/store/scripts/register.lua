-- uses base desk
-- Take a worker in. A new incarnation: routers do not wait for the old one.
-- ARGV[13…]  worker, incarnation, card
-- returns    the epoch
local worker = ARGV[13]
if born(worker) ~= ARGV[14] then
  settle(worker, 'restarted', '')
  dismiss(worker)
  redis.call('HSET', P .. 'born', worker, ARGV[14])
end
redis.call('HSET', P .. 'card', worker, ARGV[15])
redis.call('ZADD', P .. 'workers', text(now), worker)
return epoch()
