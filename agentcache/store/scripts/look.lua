-- uses base view
-- ARGV[3]   SID
-- returns    the session as `view` says it
return view(ARGV[3])
