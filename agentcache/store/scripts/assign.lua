-- uses base
-- Give a session to a worker, if it has none or `seen` is its placement; else say who has it. Or let a worker compute its
-- prompts, if `seen` is its placement; else say that nobody does.
-- ARGV[3…]  SID, generation, seen, worker, prefill ('1')
-- returns    {worker, placement, generation}
local one = load(ARGV[3])
if not one then return {'', '0', '0'} end
epoch()
if ARGV[7] == '1' then
  local fits = ARGV[4] == one.g and ARGV[5] == one.m and ARGV[6] ~= one.w
  if fits then
    lend(one, ARGV[6])
    save(one)
  end
  return {fits and ARGV[6] or '', one.m, one.g}
end
local free = one.w == '' or (ARGV[5] == one.m and ARGV[6] ~= one.w)
if free and ARGV[4] == one.g then
  give(one, ARGV[6])
  save(one)
end
return {one.w, one.m, one.g}
