-- uses base
-- ARGV[13…]  worker, draining ('1')
-- returns    1, or 0 if the worker is not registered
if redis.call('HEXISTS', P .. 'born', ARGV[13]) == 0 then return 0 end
if ARGV[14] == '1' then
  redis.call('HSET', P .. 'drain', ARGV[13], '1')
else
  redis.call('HDEL', P .. 'drain', ARGV[13])
end
return 1
