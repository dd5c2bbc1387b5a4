"""Stand-ins for what SGLang imports and a machine without CUDA does not have, so that its prefix trees load.

Only imports are replaced: no line of a tree, a component, a lock or a session tracker. Packages that are installed
always win; a stand-in is found last. `sglang` itself becomes a package without its `__init__`, which would import
the whole server.
"""

import importlib.util
import sys
import types
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

ABSENT = frozenset(
    {
        "IPython",
        "safetensors",
        "PIL",
        "partial_json_parser",
        "sgl_kernel",
        "starlette",
        "transformers",
        "triton",
        "tvm_ffi",
    }
)
"""Packages that are looked up and not installed here."""

UNUSED = (
    "sglang.srt.entrypoints",
    "sglang.srt.layers.quantization",
    "sglang.srt.utils.hf_transformers",
    "sglang.srt.utils.hf_transformers_utils",
)
"""Parts of SGLang that need half a server, and that its trees do not touch."""

WITHOUT_INIT = ("sglang", "sglang.srt.configs")
"""Packages whose `__init__` imports the rest of the server."""


class StandIn(types.ModuleType):
    """A module in which everything exists and nothing happens."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__path__: list[str] = []
        self.__version__ = "0"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        made = type(name, (Inert,), {}) if name[0].isupper() else StandIn(f"{self.__name__}.{name}")
        setattr(self, name, made)
        return made

    def __call__(self, *words: Any, **named: Any) -> Any:
        """As a decorator it decorates nothing, with arguments or without."""
        bare = len(words) == 1 and callable(words[0]) and not named
        return words[0] if bare else lambda decorated: decorated

    def __bool__(self) -> bool:
        return False


class InertType(type):
    """Classes whose attributes all exist (enumerations, for one)."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return None


class Inert(metaclass=InertType):
    """A class that can be made, with anything."""

    def __init__(self, *words: Any, **named: Any) -> None:
        pass


class _Load(Loader):
    def create_module(self, spec: ModuleSpec) -> StandIn:
        return StandIn(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        pass


class _Find(MetaPathFinder):
    """Finds the names below `roots`."""

    def __init__(self, roots: Sequence[str]) -> None:
        self._roots = tuple(roots)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if any(name == root or name.startswith(f"{root}.") for root in self._roots):
            return ModuleSpec(name, _Load(), is_package=True)
        return None


class _Bare(types.ModuleType):
    """A package of the peer without its `__init__`; classes that it would have given are inert."""

    def __getattr__(self, name: str) -> Any:
        if not name[0].isupper():
            raise AttributeError(name)
        setattr(self, name, made := type(name, (Inert,), {}))
        return made


def install() -> Path:
    """Put the stand-ins where imports find them; answers where SGLang lies."""
    spec = importlib.util.find_spec("sglang")
    places = spec.submodule_search_locations if spec else None
    assert places, "SGLang is not installed here"
    root = Path(places[0])
    for name in WITHOUT_INIT:
        package = _Bare(name)
        package.__path__ = [str(root.joinpath(*name.split(".")[1:]))]
        package.__spec__ = ModuleSpec(name, None, is_package=True)
        package.__spec__.submodule_search_locations = package.__path__
        sys.modules[name] = package
    sys.meta_path.insert(0, _Find(UNUSED))
    sys.meta_path.append(_Find(sorted(ABSENT)))
    return root
