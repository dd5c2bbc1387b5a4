-- uses base
-- Notices of a worker after a cursor. An empty stream gets a mark, so that a cursor always names what is there; that of a
-- worker that is not registered, yet or any more, does not stay.
-- ARGV[3…]  worker, cursor ('': the end), how many
-- returns    {1 after a gap, cursor, {id, {field, value, …}}…}
local stream, cursor = P .. 'm:' .. ARGV[3], ARGV[4]

local function last()
  local newest = redis.call('XREVRANGE', stream, '+', '-', 'COUNT', 1)[1]
  if newest then return newest[1] end
  local mark = redis.call('XADD', stream, '*', 'order', '')
  if born(ARGV[3]) == '' then redis.call('PEXPIRE', stream, 600000) end
  return mark
end

if cursor == '' then return {0, last()} end
local gap = #redis.call('XRANGE', stream, cursor, cursor) == 0
local unread = redis.call('XRANGE', stream, '(' .. cursor, '+', 'COUNT', ARGV[5])
if #unread > 0 then
  cursor = unread[#unread][1]
elseif gap then
  cursor = last()
end
return {gap and 1 or 0, cursor, unpack(unread)}
