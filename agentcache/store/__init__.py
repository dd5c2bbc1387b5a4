"""Where sessions live between routers and workers: the contract, a memory store, and Redis."""
