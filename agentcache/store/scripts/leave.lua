-- uses base desk
-- ARGV[3…]  worker, incarnation
-- returns    1, or 0 if it is not that incarnation which is registered
if born(ARGV[3]) ~= ARGV[4] then return 0 end
settle(ARGV[3], 'restarted', '')
dismiss(ARGV[3])
redis.call('DEL', P .. 'm:' .. ARGV[3])
return 1
