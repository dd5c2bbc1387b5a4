"""The session router: one address for agents, in front of many workers."""
