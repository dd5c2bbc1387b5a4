-- uses base
-- Raise a session above a generation that a worker has seen.
-- ARGV[13…]  SID, generation
-- returns    the session's generation, '0' if it is not open
reach(ARGV[14])
epoch()
local one = load(ARGV[13])
if not one then return '0' end
if tonumber(one.g) <= tonumber(ARGV[14]) then
  one.g = issue()
  save(one)
end
return one.g
