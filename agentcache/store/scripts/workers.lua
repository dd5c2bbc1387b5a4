-- uses base
-- A server that takes no writes hears no worker either: it fails here, and nobody is taken for dead.
-- returns    {now ms, {card, load or '', heard ms, draining}…}, by name
redis.call('SET', P .. 'looked', text(now))
local found = {text(now)}
local names = redis.call('HKEYS', P .. 'born')
for _, worker in ipairs(names) do
  found[#found + 1] = {redis.call('HGET', P .. 'card', worker) or '', redis.call('HGET', P .. 'load', worker) or '',
    redis.call('ZSCORE', P .. 'workers', worker) or '0', redis.call('HEXISTS', P .. 'drain', worker)}
end
return found
