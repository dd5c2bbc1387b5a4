"""The trace formats that agentcache reads, one module each, and what they have in common."""
