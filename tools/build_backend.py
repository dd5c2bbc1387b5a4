"""The build backend (PEP 517): maturin builds wheels, with the native core in them.

With AGENTCACHE_CORE=reference hatchling does, and the wheel is pure Python: no Rust, no toolchain, no maturin.
Source distributions are hatchling's for both. agentcache/decisions/0002-build-backend.md says why.
"""

import importlib
import os
from types import ModuleType

import toolchain
from hatchling import build as pure

MATURIN = "maturin>=1.9.4,<2"
PURE = os.environ.get("AGENTCACHE_CORE") == "reference"
Options = dict[str, object] | None

build_sdist = pure.build_sdist
get_requires_for_build_sdist = pure.get_requires_for_build_sdist


def get_requires_for_build_wheel(config_settings: Options = None) -> list[str]:
    """Packages to build with; without a Rust toolchain an end with one message (maturin would fetch one)."""
    if PURE:
        return list(pure.get_requires_for_build_wheel(config_settings))
    if lines := toolchain.complaint():
        raise SystemExit(f"missing, nothing was built:\n{lines}")
    return [MATURIN]


def get_requires_for_build_editable(config_settings: Options = None) -> list[str]:
    if PURE:
        return list(pure.get_requires_for_build_editable(config_settings))
    return get_requires_for_build_wheel(config_settings)


def build_wheel(folder: str, config_settings: Options = None, metadata: str | None = None) -> str:
    return str(_backend().build_wheel(folder, config_settings, metadata))


def build_editable(folder: str, config_settings: Options = None, metadata: str | None = None) -> str:
    return str(_backend().build_editable(folder, config_settings, metadata))


def _backend() -> ModuleType:
    return pure if PURE else importlib.import_module("maturin")


if (
    not PURE
):  # hatchling has these hooks only where a frontend gains by them; the build itself writes the metadata

    def prepare_metadata_for_build_wheel(folder: str, config_settings: Options = None) -> str:
        return str(_backend().prepare_metadata_for_build_wheel(folder, config_settings))

    def prepare_metadata_for_build_editable(folder: str, config_settings: Options = None) -> str:
        return str(_backend().prepare_metadata_for_build_editable(folder, config_settings))
