-- uses base
-- ARGV[3…]  worker, draining ('1')
-- returns    1, or 0 if the worker is not registered
if redis.call('HEXISTS', P .. 'born', ARGV[3]) == 0 then return 0 end
if ARGV[4] == '1' then
  redis.call('HSET', P .. 'drain', ARGV[3], '1')
else
  redis.call('HDEL', P .. 'drain', ARGV[3])
end
return 1
