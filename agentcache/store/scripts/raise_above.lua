-- uses base
-- Raise a session above a generation that a worker has seen.
-- ARGV[3…]  SID, generation
-- returns    the session's generation, '0' if it is not open
reach(ARGV[4])
epoch()
local one = load(ARGV[3])
if not one then return '0' end
if tonumber(one.g) <= tonumber(ARGV[4]) then
  one.g = issue()
  save(one)
end
return one.g
