-- Where no router has looked for longer than a worker may be silent, the store may have been away, and no worker could say
-- that it lives. Whoever was alive when that began counts as heard WORKER after its end: workers that could not reach a
-- store try again ever more slowly.

-- Note that a router looks, and answer when a worker counts as heard, by when it was.
local function look()
  local last = tonumber(redis.call('GET', P .. 'looked') or now)
  if now - last > WORKER then redis.call('SET', P .. 'silence', text(last) .. ' ' .. text(now)) end
  redis.call('SET', P .. 'looked', text(now))
  local from, till = string.match(redis.call('GET', P .. 'silence') or '', '^(%d+) (%d+)$')
  from, till = tonumber(from), tonumber(till)
  return function(heard)
    if till and till <= now and heard <= till and heard > from - WORKER then return till + WORKER end
    return heard
  end
end
