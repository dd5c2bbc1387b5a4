-- uses base
-- Open a session, or find it open. The same call once more is answered as it was.
-- ARGV[3…]  SID, parent, ttl ms ('0': the default), fence ('1'), on_close, limit of the tenant (0: none), fork ('1')
-- returns    {verdict, generation, open sessions of the tenant, worker}
local sid, parent, ttl, fence, on_close, limit = ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[7], ARGV[8]
local tenant = tenant_of(sid)
local one = load(sid)
epoch()

local function answer(verdict)
  return {verdict, one and one.g or '0', redis.call('ZCARD', P .. 't:' .. tenant), one and one.w or ''}
end

if one and one.b == ARGV[2] then return answer(one.v) end
if parent ~= '' then
  local why = misfit(parent, sid)
  local has = one and parent_of(one) ~= ''
  if why and not (has and why == 'too_deep') then return answer(why) end
  if not load(tenant .. '/' .. parent) then
    local closed = redis.call('HEXISTS', P .. 'tombs', tenant .. '/' .. parent) == 1
    return answer(closed and 'parent_closed' or 'no_parent')
  end
end
if not one and full(sid, limit) then return answer('limited') end

local verdict = 'unchanged'
if not one then
  verdict, one = 'created', begin(sid, ttl == '0' and TTL or ttl)
  one.c, one.lt = on_close, ttl
elseif one.x ~= '' then
  verdict, one.g = 'created', issue()
elseif fence == '1' then
  verdict, one.g = 'fenced', issue()
end
if verdict ~= 'unchanged' then one.b, one.v = ARGV[2], verdict end
count_on(one)
one.x = ''
if parent ~= '' and parent_of(one) == '' then adopt(one, parent) end
if ARGV[9] == '1' and one.w == '' and parent_of(one) ~= '' then
  local above = load(tenant .. '/' .. one.p)
  if above and above.w ~= '' and redis.call('HEXISTS', P .. 'born', above.w) == 1 then
    give(one, above.w)
    post(above.w, 'fork', one, 'release', '', '')
  end
end
renew(one)
save(one)
return answer(verdict)
