-- uses base
-- ARGV[3…]  worker, incarnation, highest generation that it has seen, load
-- returns    {1 if the worker is registered, epoch, since a router swept, ms}
reach(ARGV[5])
-- what is forgotten goes key by key: one whose card went after it had registered again must do so once more
local known = born(ARGV[3]) == ARGV[4] and redis.call('HEXISTS', P .. 'card', ARGV[3]) == 1
if known then
  redis.call('HSET', P .. 'load', ARGV[3], ARGV[6])
  redis.call('ZADD', P .. 'workers', text(now), ARGV[3])
end
local of = epoch()
return {known and 1 or 0, of, text(math.max(0, now - (redis.call('GET', P .. 'swept') or now)))}
