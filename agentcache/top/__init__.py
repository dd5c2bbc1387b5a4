"""`agentcache top`: sessions, tiers and hit rates at a terminal, read from the HTTP API of a router or a worker."""
