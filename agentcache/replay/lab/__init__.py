"""The replay lab: traces in their own time against the real cache, its orders, and bounds that no cache can beat."""
