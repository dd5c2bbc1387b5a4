-- uses base
-- Take in a request: renew the lease, count it in flight, say generation and worker.
-- ARGV[3…]  SID, request id, candidate worker, parent, fence ('': none), limit of the tenant (0: none), ttl ms ('0': as
--            it was), seconds that it is said to wait afterwards
-- returns    {verdict, generation, worker, placement, parent, 1 if the parent was ignored, epoch, who computes prompts,
--            ttl ms}
local sid, request, worker, parent, fence, limit = ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[7], ARGV[8]
local flight = P .. 'f:' .. sid
local one = load(sid)

local function unserved(verdict, generation)
  return {verdict, generation or '0', '', '0', '', parent == '' and 0 or 1, epoch(), '', '0'}
end

local function answer(verdict)
  local above = parent_of(one)
  return {verdict, one.g, one.w, one.m, above, (parent == '' or parent == above) and 0 or 1, epoch(), one.pw, one.ttl}
end

local function join(verdict)
  if parent ~= '' and parent_of(one) == '' and not misfit(parent, sid) then
    if load(tenant_of(sid) .. '/' .. parent) then adopt(one, parent) end
  end
  if one.w ~= '' then
    hold(one, one.w)
  elseif worker ~= '' then
    give(one, worker)
  end
  if verdict ~= 'joined' then one.b, one.v = request, verdict end
  one.tool, one.exp = '', ARGV[10]
  if ARGV[9] ~= '0' then one.ttl = text(math.max(ARGV[9], tonumber(one.lt) or 0)) end
  redis.call('ZADD', flight, text(now + IN_FLIGHT), request)
  renew(one)
  save(one)
  return answer(verdict)
end

if not one then
  local closed = redis.call('HGET', P .. 'tombs', sid)
  if closed then
    local since = now - redis.call('ZSCORE', P .. 'tomb', sid)
    if fence ~= '' or since <= REOPEN then return unserved('closed', closed) end
  end
  if fence ~= '' then return unserved('unknown') end
  if full(sid, limit) then return unserved('limited') end
  one = begin(sid, TTL)
  return join('opened')
end
if now % 16 == 0 then redis.call('ZREMRANGEBYSCORE', flight, '-inf', text(now)) end
local counts = redis.call('ZSCORE', flight, request)
if counts and tonumber(counts) > now then return answer(one.b == request and one.v or 'joined') end
if fence ~= '' and fence ~= one.g then return unserved('stale', one.g) end
if one.x == '' then return join('joined') end
if fence ~= '' then return unserved('unknown') end
one.g, one.x = issue(), ''
return join('expired')
