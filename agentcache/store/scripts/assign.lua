-- uses base
-- Give a session to a worker, if it has none or `seen` is its placement; else say who has it.
-- ARGV[13…]  SID, generation, seen, worker
-- returns    {worker, placement, generation}
local one = load(ARGV[13])
if not one then return {'', '0', '0'} end
epoch()
local free = one.w == '' or (ARGV[15] == one.m and ARGV[16] ~= one.w)
if free and ARGV[14] == one.g then
  give(one, ARGV[16])
  save(one)
end
return {one.w, one.m, one.g}
