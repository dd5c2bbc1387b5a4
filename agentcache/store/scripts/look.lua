-- uses base view
-- ARGV[13]   SID
-- returns    the session as `view` says it
return view(ARGV[13])
