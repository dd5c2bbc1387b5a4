-- uses base
-- ARGV[13…]  worker, incarnation, highest generation that it has seen, load
-- returns    {1 if the worker is registered, epoch}
reach(ARGV[15])
local known = born(ARGV[13]) == ARGV[14]
if known then
  redis.call('HSET', P .. 'load', ARGV[13], ARGV[16])
  redis.call('ZADD', P .. 'workers', text(now), ARGV[13])
end
return {known and 1 or 0, epoch()}
