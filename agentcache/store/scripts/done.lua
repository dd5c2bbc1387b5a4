-- uses base
-- End a request. When its worker registered the turn, the other holders may let go, but for who computes its prompts.
-- ARGV[3…]  SID, request id, generation, worker, placement, registered ('1'), refused ('1')
-- returns    1, or 0 if the session has ended or is at another generation
local sid, request, generation, worker, placement = ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[7]
local one = load(sid)
if not one then return 0 end
epoch()
redis.call('ZREM', P .. 'f:' .. sid, request)
if one.g ~= generation then return 0 end
if ARGV[9] == '1' and one.v == 'opened' then
  if redis.call('ZCOUNT', P .. 'f:' .. sid, '(' .. text(now), '+inf') == 0 then arm(one, now) end
  return 1
end
count_on(one)
if ARGV[8] == '1' and worker == one.w and placement == one.m then
  one.r = '1'
  local told, all = {}, redis.call('HKEYS', P .. 's:' .. sid)
  for _, holder in ipairs(holders(sid)) do told[holder] = true end
  for _, name in ipairs(all) do
    local holder = string.sub(name, 3)
    if string.sub(name, 1, 2) == 'h:' and holder ~= one.w and holder ~= one.pw then
      if told[holder] then post(holder, 'moved', one, 'release', '', '') end
      redis.call('HDEL', P .. 's:' .. sid, name)
    end
  end
  hold(one, one.w)
end
renew(one)
save(one)
return 1
