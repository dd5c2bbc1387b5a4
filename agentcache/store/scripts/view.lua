-- A session as it is: {state, generation, worker, placement, parent, children, in flight, ttl ms, idle ms, on_close,
-- tool, expected s, who computes prompts, holder…}.
local function view(sid)
  local one = load(sid)
  if not one then
    local closed = redis.call('HGET', P .. 'tombs', sid)
    return {closed and 'closed' or 'none', closed or '0'}
  end
  local idle = math.max(0, now - one.u)
  return {'open', one.g, one.w, one.m, parent_of(one), redis.call('ZCARD', P .. 'c:' .. sid),
    redis.call('ZCOUNT', P .. 'f:' .. sid, '(' .. text(now), '+inf'), one.ttl, text(idle), one.c, one.tool, one.exp,
    one.pw, unpack(holders(sid))}
end
