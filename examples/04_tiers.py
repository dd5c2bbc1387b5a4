"""Below the device: what an engine computed is found again on disk by the next one, and nothing is computed twice."""

import tempfile

from agentcache.config import EngineSettings
from agentcache.engine.api import CachedTokens, Finished, GenerateRequest
from agentcache.engine.build import build_engine
from agentcache.ids import checked_id
from agentcache.types import SessionTag

PROMPT = tuple(range(5, 1005))


def life(folder: str) -> tuple[tuple[int, ...], CachedTokens]:
    """One engine from start to end, and one request; answers what it said and where its prefix came from."""
    settings = EngineSettings(
        model="tiny-all",
        threads=1,
        full_slots=32,
        swa_slots=16,
        mamba_slots=8,  # a device for one long session
        host_mib=64,  # and host memory for many
        l3="file",  # and a folder for all of them; "redis" and "mooncake" are shared over a network
        l3_path=folder,
        l3_mib=256,
        prefetch="wait_complete",
    )
    engine = build_engine(settings)
    session = SessionTag(checked_id("my-agent"))
    engine.submit(GenerateRequest("turn", PROMPT, max_tokens=8, session=session))
    said: list[int] = []
    cached = CachedTokens()
    while not (engine.idle() and engine.cache.tiers.idle):  # until nothing runs, and nothing is on its way
        for event in engine.step():
            if isinstance(event, Finished):
                cached = event.cached
            elif hasattr(event, "token"):
                said.append(event.token)
        engine.rest()  # sleeps while there is nothing to do but to wait for a copy
    engine.close()
    return tuple(said), cached


with tempfile.TemporaryDirectory() as folder:
    first, nothing = life(folder)
    second, restored = life(folder)
print(f"first engine:  {nothing.total} of {len(PROMPT)} tokens restored")
print(f"second engine: {restored.external} of {len(PROMPT)} tokens restored from disk; the same answer")
assert (nothing.total, restored.external) == (0, 896)
assert first == second
