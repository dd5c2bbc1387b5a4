-- uses base view
-- Record a touch, a pause or a resume; each renews the lease.
-- ARGV[13…]  SID, kind, generation ('': any), tool, expected s
-- returns    the session as `view` says it
local one = load(ARGV[13])
if one and (ARGV[15] == '' or ARGV[15] == one.g) then
  epoch()
  if ARGV[14] == 'pause' then one.tool, one.exp = ARGV[16], ARGV[17] end
  if ARGV[14] == 'resume' then one.tool, one.exp = '', '0' end
  renew(one)
  save(one)
end
return view(ARGV[13])
