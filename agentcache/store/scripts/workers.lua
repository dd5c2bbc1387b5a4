-- uses base silence
-- A server that takes no writes hears no worker either: it fails here, and nobody is taken for dead.
-- returns    {card, load or '', heard ms, draining, 1 if alive}…
local heard_of, found = look(), {}
for _, worker in ipairs(redis.call('HKEYS', P .. 'born')) do
  local heard = redis.call('ZSCORE', P .. 'workers', worker) or '0'
  local alive = heard_of(tonumber(heard)) > now - WORKER
  found[#found + 1] = {redis.call('HGET', P .. 'card', worker) or '', redis.call('HGET', P .. 'load', worker) or '',
    heard, redis.call('HEXISTS', P .. 'drain', worker), alive and 1 or 0}
end
return found
