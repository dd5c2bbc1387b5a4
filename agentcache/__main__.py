"""`python -m agentcache` is the command `agentcache`."""

from agentcache.cli import main

main()
