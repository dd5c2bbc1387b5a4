-- uses base
-- Receipts for a router after a place in its stream.
-- ARGV[13…]  router, place, how many
-- returns    {id, {field, value, …}}…
return redis.call('XRANGE', P .. 'r:' .. ARGV[13], '(' .. ARGV[14], '+', 'COUNT', ARGV[15])
