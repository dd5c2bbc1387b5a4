-- What every script begins with: the arguments that all have, and the words that the rules are written in.
--
-- KEYS[1]   the epoch's key, ac:{SHARD}:epoch: it names the shard. All other keys are made from its prefix, and are in
--           the same slot
-- ARGV[1]   Unix milliseconds, or '': the server's
-- ARGV[2]   a name of this call, the same when it is sent again: the epoch, where there is none yet
-- ARGV[3]…  a script's own
--
-- Put before it: FORMAT of keys and values, and the rules: TTL, REOPEN after, life of a TOMBSTONE, of a request IN_FLIGHT
-- and of a WORKER without a heartbeat (ms), after which a close is ABANDONED; TOMBSTONES, CLOSES of one call, LENGTH of a
-- stream, DEPTH of a family.
--
-- Keys, after the prefix. SID is TENANT/SESSION (a tenant has no slash).
--   format, epoch, gen, swept, looked, silence, run   strings; gen is the last generation, swept and looked when a router
--                         last swept and looked (ms), silence the last time that none did ('FROM TILL'), run the start of
--                         the server that a router last saw
--   asked, kept           strings; how often routers looked for its start, and how often before the last one
--   s:SID                 hash, an open session: FIELDS, h:WORKER = incarnation for each holder, and `closed`, the
--                         generation through which it was closed before it was opened, if it was
--   f:SID                 zset, its requests in flight: id -> until when it counts, ms
--   c:SID                 zset, its children: SID -> order
--   t:TENANT              zset, open sessions of a tenant: SID -> order (its first generation)
--   idle                  zset, SID -> when the lease is over, ms
--   tomb, tombs           zset SID -> when it was closed, ms; hash SID -> closed generation
--   closing               zset, closed SID whose descendants are not all closed -> when a close last went on with them
--   y:SID, q:SID          of such one: hash how (mode, operation, reply_to); list of 'FAMILY THROUGH'
--   families              string, the number of the last closed session that had children
--   k:FAMILY              zset, the children of such a one
--   workers               zset, WORKER -> when it was heard last, ms
--   born, card, load, drain   hashes by WORKER: incarnation, card, load, 1
--   m:WORKER              stream of its notices
--   p:WORKER              hash, notices whose receipt a router waits for: SID\nOPERATION -> GENERATION\nMODE\nREPLY_TO
--   r:ROUTER              stream of its receipts

local P = string.sub(KEYS[1], 1, -6)
local now, us
if ARGV[1] == '' then
  local time = redis.call('TIME')
  us = time[1] * 1000000 + time[2]
  now = math.floor(us / 1000)
else
  now = tonumber(ARGV[1])
  us = now * 1000
end

-- g generation; w worker; m placement; r whether a turn registered there; ttl; u last use; p parent; c on_close;
-- x '', asked or released; b request or call that began the generation, v how, 'opened' only until somebody uses the
-- session; tool and exp that it waits for, exp also as the request before has said; pw the worker that computes its
-- prompts, lt the ttl that it was opened with, neither of which need be there
local FIELDS = {'g', 'w', 'm', 'r', 'ttl', 'u', 'p', 'c', 'x', 'b', 'v', 'tool', 'exp', 'pw', 'lt'}
local NEEDED = #FIELDS - 2

local function text(number) return string.format('%.0f', number) end

local function tenant_of(sid) return string.sub(sid, 1, string.find(sid, '/', 1, true) - 1) end

local function session_of(sid) return string.sub(sid, string.find(sid, '/', 1, true) + 1) end

local function epoch()
  local known = redis.call('GET', P .. 'epoch')
  if known then return known end
  redis.call('SET', P .. 'epoch', ARGV[2])
  redis.call('SET', P .. 'format', FORMAT)
  redis.call('SET', P .. 'swept', text(now))
  return ARGV[2]
end

local function issue()
  local last = tonumber(redis.call('GET', P .. 'gen') or '0')
  local generation = text(math.max(last + 1, us))
  redis.call('SET', P .. 'gen', generation)
  return generation
end

-- From here on generations are above this one.
local function reach(generation)
  if tonumber(generation) > tonumber(redis.call('GET', P .. 'gen') or '0') then
    redis.call('SET', P .. 'gen', generation)
  end
end

-- An open session, or nil. One that is there in part is not there.
local function load(sid)
  local values = redis.call('HMGET', P .. 's:' .. sid, unpack(FIELDS))
  local one = {sid = sid, was = values}
  for at = 1, #FIELDS do
    if not values[at] and at <= NEEDED then return nil end
    one[FIELDS[at]] = values[at] or ''
  end
  return one
end

-- Write what has changed since it was loaded.
local function save(one)
  local words, was = {}, one.was
  for at = 1, #FIELDS do
    local value = one[FIELDS[at]]
    if value ~= was[at] then
      words[#words + 1], words[#words + 2] = FIELDS[at], value
      was[at] = value
    end
  end
  if #words > 0 then redis.call('HSET', P .. 's:' .. one.sid, unpack(words)) end
end

local function arm(one, deadline) redis.call('ZADD', P .. 'idle', text(deadline), one.sid) end

local function renew(one)
  one.u = text(now)
  arm(one, now + one.ttl)
  if one.x == 'released' then one.g = issue() end
  one.x = ''
end

local function begin(sid, ttl, generation)
  local one = {sid = sid, was = {}, w = '', m = '0', r = '0', u = text(now), p = '', c = 'release', x = '', b = '', v = '',
               tool = '', exp = '0', pw = '', lt = '', ttl = ttl, g = generation or issue()}
  reach(one.g)
  local closed = redis.call('HGET', P .. 'tombs', sid)
  redis.call('DEL', P .. 's:' .. sid, P .. 'f:' .. sid)
  save(one)
  if closed then redis.call('HSET', P .. 's:' .. sid, 'closed', closed) end
  redis.call('ZADD', P .. 't:' .. tenant_of(sid), one.g, sid)
  arm(one, now + ttl)
  redis.call('ZREM', P .. 'tomb', sid)
  redis.call('HDEL', P .. 'tombs', sid)
  return one
end

-- The generation through which a session is closed, whether it was opened again or not; 0 if it never was.
local function closed_through(sid)
  return tonumber(redis.call('HGET', P .. 's:' .. sid, 'closed') or redis.call('HGET', P .. 'tombs', sid) or '0')
end

-- Take an open session off the books; its parent's lease starts anew. Its children stay where they are.
local function finish(one)
  redis.call('DEL', P .. 's:' .. one.sid, P .. 'f:' .. one.sid)
  redis.call('ZREM', P .. 'idle', one.sid)
  redis.call('ZREM', P .. 't:' .. tenant_of(one.sid), one.sid)
  if one.p == '' then return end
  local above = tenant_of(one.sid) .. '/' .. one.p
  if redis.call('ZREM', P .. 'c:' .. above, one.sid) == 0 then return end
  local lease = redis.call('HMGET', P .. 's:' .. above, 'ttl', 'x')
  if lease[1] and lease[2] == '' then redis.call('ZADD', P .. 'idle', 'GT', text(now + lease[1]), above) end
end

local function born(worker) return redis.call('HGET', P .. 'born', worker) or '' end

local function hold(one, worker)
  local key, name, since = P .. 's:' .. one.sid, 'h:' .. worker, born(worker)
  if redis.call('HGET', key, name) ~= since then redis.call('HSET', key, name, since) end
end

-- Somebody uses a session, and not only to be refused.
local function count_on(one)
  if one.v == 'opened' then one.v = 'joined' end
end

local function give(one, worker)
  one.w, one.m, one.r = worker, text(one.m + 1), '0'
  if one.pw == worker then one.pw = '' end
  hold(one, worker)
end

-- Let a worker compute the session's prompts. Whoever did so before is like one that had the session.
local function lend(one, worker)
  if one.pw ~= worker then one.pw, one.m = worker, text(one.m + 1) end
  hold(one, worker)
end

-- The workers that may hold data of a session and have not started anew since.
local function holders(sid)
  local pairs_of, found = redis.call('HGETALL', P .. 's:' .. sid), {}
  for at = 1, #pairs_of, 2 do
    if string.sub(pairs_of[at], 1, 2) == 'h:' then
      local worker, since = string.sub(pairs_of[at], 3), pairs_of[at + 1]
      if since == '' or since == born(worker) then found[#found + 1] = worker end
    end
  end
  return found
end

-- The parent, while it has the session among its children.
local function parent_of(one)
  if one.p == '' then return '' end
  return redis.call('ZSCORE', P .. 'c:' .. tenant_of(one.sid) .. '/' .. one.p, one.sid) and one.p or ''
end

local function adopt(one, parent)
  one.p = parent
  redis.call('ZADD', P .. 'c:' .. tenant_of(one.sid) .. '/' .. parent, one.g, one.sid)
end

-- What keeps a session from having a parent: 'cycle' where that is the session, or descends from it, 'too_deep', or nil.
local function misfit(parent, sid)
  local tenant = tenant_of(sid)
  local above = tenant .. '/' .. parent
  for _ = 1, DEPTH do
    if above == sid then return 'cycle' end
    local next = redis.call('HGET', P .. 's:' .. above, 'p')
    if not next or next == '' or not redis.call('ZSCORE', P .. 'c:' .. tenant .. '/' .. next, above) then return nil end
    above = tenant .. '/' .. next
  end
  return 'too_deep'
end

local function full(sid, limit)
  return tonumber(limit) > 0 and redis.call('ZCARD', P .. 't:' .. tenant_of(sid)) >= tonumber(limit)
end

-- Tell a worker, if it is registered.
local function post(worker, order, one, mode, operation, reply_to)
  if redis.call('HEXISTS', P .. 'born', worker) == 0 then return end
  redis.call('XADD', P .. 'm:' .. worker, 'MAXLEN', '~', LENGTH, '*', 'order', order, 'tenant', tenant_of(one.sid),
    'session', session_of(one.sid), 'generation', one.g, 'placement', one.m, 'mode', mode, 'operation', operation,
    'reply_to', reply_to, 'parent', order == 'fork' and one.p or '')
  if reply_to ~= '' then
    redis.call('HSET', P .. 'p:' .. worker, one.sid .. '\n' .. operation, one.g .. '\n' .. mode .. '\n' .. reply_to)
  end
end
