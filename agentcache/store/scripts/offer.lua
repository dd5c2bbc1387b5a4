-- uses base closing
-- Compare what a worker has with what is known.
-- ARGV[3…]  worker, lost ('1'), then of each session: SID, generation, placement, idle ms, ttl ms ('0': the default),
--            parent, prefill ('1')
-- returns    {verdict, generation, placement, …}
local worker, lost = ARGV[3], ARGV[4] == '1'
epoch()

-- A live record wins, unless it is older than what the worker was told.
local function compare(one, generation, placement, prefills)
  local ahead = tonumber(generation) - tonumber(one.g)
  local newer = ahead > 0 or (ahead == 0 and tonumber(placement) > tonumber(one.m))
  if ahead > 0 then one.g = issue() end
  if prefills then
    one.m = text(math.max(tonumber(one.m), tonumber(placement)))
    if one.w ~= worker and one.pw == '' then one.pw = worker end
  elseif one.w == '' or (newer and one.w ~= worker) then
    one.m = text(math.max(tonumber(one.m), tonumber(placement) - 1))
    give(one, worker)
  end
  save(one)
  if one.w ~= worker and one.pw ~= worker and one.r == '1' then
    redis.call('HDEL', P .. 's:' .. one.sid, 'h:' .. worker)
    return 'moved'
  end
  hold(one, worker)
  return one.w == worker and 'keep' or 'held'
end

-- Open a session that was lost, with what is left of its lease, and its parent, which must have been open.
local function again(sid, generation, placement, idle, ttl, parent, prefills)
  local one = begin(sid, ttl, generation)
  one.m = placement
  one[prefills and 'pw' or 'w'] = worker
  one.u = text(now - idle)
  hold(one, worker)
  arm(one, now + ttl - idle)
  local above = tenant_of(sid) .. '/' .. parent
  if parent ~= '' and redis.call('HEXISTS', P .. 'tombs', above) == 0 and not misfit(parent, sid) then
    if not load(above) then begin(above, ttl) end
    adopt(one, parent)
  end
  save(one)
end

-- Whether the parent of a lost session was closed since: it would have been closed with it, had it been known.
local function orphan(sid, generation, parent)
  return parent ~= '' and closed_through(tenant_of(sid) .. '/' .. parent) > tonumber(generation)
end

local answers = {}
local function answer(verdict, generation, placement)
  answers[#answers + 1], answers[#answers + 2], answers[#answers + 3] = verdict, generation, placement
end

for at = 5, #ARGV, 7 do
  local sid, generation, placement, idle, ttl = ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3], ARGV[at + 4]
  local prefills = ARGV[at + 6] == '1'
  if ttl == '0' then ttl = TTL end
  reach(generation)
  local one, closed = load(sid), closed_through(sid)
  if closed >= tonumber(generation) then
    answer('closed', text(closed), '0')
  elseif one then
    local verdict = compare(one, generation, placement, prefills)
    answer(verdict, one.g, one.m)
  elseif not lost or tonumber(idle) >= tonumber(ttl) then
    answer('gone', '0', '0')
  elseif orphan(sid, generation, ARGV[at + 5]) then
    bury(sid, generation)
    answer('closed', generation, '0')
  else
    again(sid, generation, placement, tonumber(idle), ttl, ARGV[at + 5], prefills)
    answer('keep', generation, placement)
  end
end
return answers
