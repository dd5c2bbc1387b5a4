-- uses base
-- Give a session to a worker, if it has none or `seen` is its placement; else say who has it.
-- ARGV[3…]  SID, generation, seen, worker
-- returns    {worker, placement, generation}
local one = load(ARGV[3])
if not one then return {'', '0', '0'} end
epoch()
local free = one.w == '' or (ARGV[5] == one.m and ARGV[6] ~= one.w)
if free and ARGV[4] == one.g then
  give(one, ARGV[6])
  save(one)
end
return {one.w, one.m, one.g}
