"""Routers of these tests wait long for whoever they ask: a machine that stands still for some seconds is no silent
worker. A test of what comes too late says itself what that is."""

from functools import partial

import pytest

from agentcache.router import assembly, holders, info, pausing, sessions_api, sglang
from agentcache.router.dashboard import sight
from agentcache.router.probing import prober
from agentcache.router.tokenizing import Tokenizing
from tests.patience import PATIENCE_S


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name in (
        (holders, "ASK_S"),
        (info, "MODELS_S"),
        (pausing, "TELL_S"),
        (sglang, "CALL_S"),
        (sight, "ASK_S"),
    ):
        monkeypatch.setattr(module, name, PATIENCE_S)
    monkeypatch.setattr(sessions_api, "Holders", partial(holders.Holders, all_s=PATIENCE_S))
    monkeypatch.setattr(assembly, "Tokenizing", partial(Tokenizing, wait_s=PATIENCE_S))
    monkeypatch.setattr(assembly, "prober", partial(prober, wait_s=PATIENCE_S))
