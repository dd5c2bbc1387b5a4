-- uses base view
-- Record a touch, a pause or a resume; each renews the lease.
-- ARGV[3…]  SID, kind, generation ('': any), tool, expected s
-- returns    the session as `view` says it
local one = load(ARGV[3])
if one and (ARGV[5] == '' or ARGV[5] == one.g) then
  epoch()
  count_on(one)
  if ARGV[4] == 'pause' then
    one.tool = ARGV[6]
    if tonumber(ARGV[7]) > 0 then one.exp = ARGV[7] end
  end
  if ARGV[4] == 'resume' then one.tool, one.exp = '', '0' end
  renew(one)
  save(one)
end
return view(ARGV[3])
