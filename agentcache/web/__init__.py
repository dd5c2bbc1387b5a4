"""What every HTTP server of agentcache does alike: bodies under a limit, typed fields, one error shape."""
