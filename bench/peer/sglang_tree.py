"""SGLang's prefix tree as a benchmark drives it: the calls of its scheduler, over pools without memory.

Everything below `UnifiedRadixCache` is SGLang's own, unmodified: the Python tree core, the Rust one behind its
adapter, the components and the session tracker. The pools are null objects, subclasses where a component insists
on a type; a freed slot costs one Python call and a lock costs none.
"""

import logging
import os
import warnings
from array import array
from typing import Any

import standins

warnings.filterwarnings("ignore")
os.environ.setdefault("OMP_NUM_THREADS", "1")
standins.install()

import numpy as np  # noqa: E402
import torch  # noqa: E402
from sglang.srt.mem_cache.allocator.swa import SWATokenToKVPoolAllocator  # noqa: E402
from sglang.srt.mem_cache.base_prefix_cache import EvictParams, InsertParams, MatchPrefixParams  # noqa: E402
from sglang.srt.mem_cache.cache_init_params import CacheInitParams  # noqa: E402
from sglang.srt.mem_cache.memory_pool import HybridReqToTokenPool  # noqa: E402
from sglang.srt.mem_cache.radix_cache import RadixKey  # noqa: E402
from sglang.srt.mem_cache.unified_cache.component_type import ComponentType  # noqa: E402
from sglang.srt.mem_cache.unified_radix_cache import UnifiedRadixCache  # noqa: E402
from sglang.srt.server_args import ServerArgs, set_global_server_args_for_scheduler  # noqa: E402

torch.set_num_threads(1)
logging.disable(logging.WARNING)

RUST, PYTHON, SESSIONS = "sglang-rust", "sglang-python", "sglang-sessions"
"""Its Rust core; its Python core; that core with --enable-session-radix-cache, which the Rust one refuses."""

BACKENDS = {RUST: ("rust", "RustUnifiedTreeCore"), PYTHON: ("python", "UnifiedTreeCore")}
BACKENDS[SESSIONS] = BACKENDS[PYTHON]
UNLIMITED = 1 << 40
VOCABULARY = 150_000


class NullPool:
    """A pool of slots that is never full."""

    device = "cpu"
    page_size = 1

    def free(self, *_slots: Any, **_named: Any) -> None:
        """Nothing to give back."""

    free_segment = free_full_segment = free_swa_segment = free

    def available_size(self) -> int:
        return UNLIMITED

    full_available_size = swa_available_size = available_size

    def mamba_full_cache_donor(self) -> None:
        return None


class NullWindowPool(SWATokenToKVPoolAllocator):  # type: ignore[misc]
    """The same, of the type that the SWA component asks for; full and window slots have one number."""

    size = size_full = size_swa = UNLIMITED

    def __init__(self) -> None:
        self.device, self.page_size = "cpu", 1
        self.full_attn_allocator = self.swa_attn_allocator = NullPool()

    free = free_segment = free_full_segment = free_swa_segment = NullPool.free
    free_swa = free_full = set_full_to_swa_mapping = clear_full_to_swa_mapping = NullPool.free
    available_size = full_available_size = swa_available_size = NullPool.available_size
    mamba_full_cache_donor = NullPool.mamba_full_cache_donor

    def translate_swa_indices_for_transfer(self, full: Any) -> Any:
        return full


class NullStates(HybridReqToTokenPool):  # type: ignore[misc]
    """The pool of recurrent states."""

    def __init__(self) -> None:
        self.mamba_allocator = NullPool()


class Request:
    """What the session tracker reads of a finished request."""

    session = None

    def __init__(self, session: str, generation: int) -> None:
        self.session_id, self.session_generation = session, generation


class Tree:
    """One cache, empty at first. `components` are written as ours: `FULL+SWA128`."""

    def __init__(self, core: str, components: str, page: int) -> None:
        names = components.split("+")
        windows = [int(name.removeprefix("SWA")) for name in names if name.startswith("SWA")]
        self.page = page
        self.window = windows[0] if windows else 0
        self.has_states = "MAMBA" in names
        self.component = names[-1].rstrip("0123456789")
        self.cache = self._build(core, tuple(name.rstrip("0123456789") for name in names))
        self._state = 0
        self._random = np.random.default_rng(7)

    def _build(self, core: str, names: tuple[str, ...]) -> Any:
        backend, type_name = BACKENDS[core]
        arguments = ServerArgs(model_path="none", page_size=self.page)
        arguments._mamba_cache_chunk_size = max(64, self.page)
        set_global_server_args_for_scheduler(arguments)
        parameters = CacheInitParams(
            disable=False,
            req_to_token_pool=NullStates() if self.has_states else None,
            token_to_kv_pool_allocator=NullWindowPool() if self.window else NullPool(),
            page_size=self.page,
            sliding_window_size=self.window or None,
            tree_components=tuple(ComponentType[name] for name in names),
            enable_mamba_extra_buffer=self.has_states and self.page > 1,
            enable_session_radix_cache=core == SESSIONS,
            tree_core_backend=backend,
        )
        cache = UnifiedRadixCache(parameters)
        assert type(cache.tree_core).__name__ == type_name, "SGLang fell back to another core"
        return cache

    def tokens(self, count: int) -> "array[int]":
        return array("q", self._random.integers(0, VOCABULARY, count).tolist())

    def whole(self, length: int) -> int:
        return length - length % self.page

    def key(self, tokens: "array[int]") -> Any:
        return RadixKey(tokens)

    def looked_up(self, tokens: "array[int]") -> Any:
        return MatchPrefixParams(key=RadixKey(tokens))

    def offered(self, tokens: "array[int]", start: int = 0) -> Any:
        """What an insert takes; `[0, start)` is known to be there. Windows have the floor that a server gives them."""
        end = len(tokens)
        slots = torch.arange(end, dtype=torch.int64)
        offer = InsertParams(key=RadixKey(tokens), value=slots, prev_prefix_len=start)
        if self.has_states:
            self._state += 1
            offer.mamba_value = torch.tensor([self._state])
        floor = self.whole(max(0, end - self.window - self.page)) if self.window else 0
        if floor:
            offer.set_evicted_seqlen(ComponentType.SWA, floor)
        return offer

    def evict(self, pages: int) -> Any:
        """Evict so much of the last component."""
        match self.component:
            case "SWA":
                wanted = EvictParams(swa_num_tokens=pages * self.page)
            case "MAMBA":
                wanted = EvictParams(mamba_num=pages)
            case _:
                wanted = EvictParams(num_tokens=pages * self.page)
        return self.cache.evict(wanted)

    def open(self, session: str) -> Request:
        return Request(session, self.cache.open_radix_session(session))

    def refer(self, request: Request, node: Any) -> None:
        self.cache.session_refs.register_session_ref(request, node)
