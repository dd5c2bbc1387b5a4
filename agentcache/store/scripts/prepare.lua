-- uses base
-- returns    {format of what is there, epoch, how often this was asked, how often before the server last started anew}
local known = redis.call('GET', P .. 'format')
if known and known ~= FORMAT then return {known, '', '0', '0'} end
-- A server that started anew may have lost what it wrote last: what it knows is then a new epoch's, to be compared.
-- Whoever had seen more than it kept knows that it has.
local run = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
local before = redis.call('GET', P .. 'run')
if before ~= run then
  redis.call('SET', P .. 'run', run)
  if before then
    redis.call('SET', P .. 'epoch', ARGV[2])
    redis.call('SET', P .. 'kept', redis.call('GET', P .. 'asked') or '0')
  end
end
local of = epoch()
if not known then redis.call('SET', P .. 'format', FORMAT) end
return {FORMAT, of, text(redis.call('INCR', P .. 'asked')), redis.call('GET', P .. 'kept') or '0'}
