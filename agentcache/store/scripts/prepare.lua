-- uses base
-- returns    {format of what is there, epoch}
local known = redis.call('GET', P .. 'format')
if known and known ~= FORMAT then return {known, ''} end
-- A server that started anew may have lost what it wrote last: what it knows is then a new epoch's, to be compared.
local run = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
local before = redis.call('GET', P .. 'run')
if before ~= run then
  redis.call('SET', P .. 'run', run)
  if before then redis.call('SET', P .. 'epoch', ARGV[2]) end
end
local of = epoch()
if not known then redis.call('SET', P .. 'format', FORMAT) end
return {FORMAT, of}
