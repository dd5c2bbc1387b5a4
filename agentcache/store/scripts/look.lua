-- uses base view
-- ARGV[3…]  SID, how many children to name
-- returns    {the session as `view` says it, child…}, the oldest of them
local seen = {view(ARGV[3])}
if ARGV[4] ~= '0' then
  for _, child in ipairs(redis.call('ZRANGE', P .. 'c:' .. ARGV[3], 0, ARGV[4] - 1)) do
    seen[#seen + 1] = session_of(child)
  end
end
return seen
