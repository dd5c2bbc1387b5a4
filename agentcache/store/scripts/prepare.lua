-- uses base
-- returns    {format of what is there, epoch}
local known = redis.call('GET', P .. 'format')
if known and known ~= ARGV[4] then return {known, ''} end
local of = epoch()
if not known then redis.call('SET', P .. 'format', ARGV[4]) end
return {ARGV[4], of}
