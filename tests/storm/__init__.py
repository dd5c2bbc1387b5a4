"""The fault machine of the session router: real processes, real HTTP, a real Valkey, and faults that overlap.

    agents ──HTTP──► 3 routers ──► gates ──► 3 workers (accounting engine)
                        └──── Valkey ────────────┘

`python -m tests.storm --faults 10000 --seed N` runs it; the seed replays the same faults at the same agents.
"""
