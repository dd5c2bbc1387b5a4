-- uses base desk
-- ARGV[13…]  worker, incarnation
-- returns    1, or 0 if it is not that incarnation which is registered
if born(ARGV[13]) ~= ARGV[14] then return 0 end
settle(ARGV[13], 'restarted', '')
dismiss(ARGV[13])
return 1
