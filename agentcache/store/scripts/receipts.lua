-- uses base
-- Receipts for a router after a place in its stream.
-- ARGV[3…]  router, place, how many
-- returns    {id, {field, value, …}}…
return redis.call('XRANGE', P .. 'r:' .. ARGV[3], '(' .. ARGV[4], '+', 'COUNT', ARGV[5])
