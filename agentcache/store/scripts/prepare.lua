-- uses base
-- returns    {format of what is there, epoch}
local known = redis.call('GET', P .. 'format')
if known and known ~= FORMAT then return {known, ''} end
local of = epoch()
if not known then redis.call('SET', P .. 'format', FORMAT) end
return {FORMAT, of}
