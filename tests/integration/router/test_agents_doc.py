"""What the README and docs/agents.md tell agent frameworks to send: each snippet runs as it stands there, against a
router with a worker, and does what the text beside it says."""

import asyncio
import json
import re
import urllib.request
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agentcache import wire
from agentcache.router.sender_names import TABLE, Role
from tests.chosen import CORE
from tests.house.source import ROOT
from tests.serving import no_references
from tests.snippets import Json, Snippet, run_commands, run_python, run_shell, snippets_of
from tests.toolwaits import Setting, setting

pytestmark = [pytest.mark.asyncio, pytest.mark.timeout(300)]
README, AGENTS = ROOT / "README.md", ROOT / "docs" / "agents.md"
SECTION = "\n## What your agent framework should send\n"
GRID = 128
Check = Callable[[Setting, Snippet], Awaitable[None]]


def text_of(file: Path) -> str:
    """What is checked of it: of the README the one section."""
    text = file.read_text(encoding="utf-8")
    return text.split(SECTION)[1].split("\n## ")[0] if file == README else text


async def seen(at: Setting, session: str) -> Json:
    """A session as the router shows it."""
    await at.routed.settled()
    answer = await at.routed.http.get(f"/v1/sessions/{session}")
    assert answer.status_code == 200, answer.text
    found: Json = answer.json()
    return found


async def open_sessions(at: Setting) -> set[str]:
    await at.routed.settled()
    listed = (await at.routed.http.get("/v1/sessions")).json()
    return {one["session_id"] for one in listed["data"]}


def full_tokens(parts: list[Json]) -> int:
    """Of full attention on the device."""
    return sum(part["tokens"] for part in parts if part["component"] == "FULL")


def numbers(line: str) -> list[int]:
    return [int(word) for word in re.findall(r"\b\d+\b", line)]


async def python(at: Setting, snippet: Snippet, **given: Any) -> list[str]:
    """The lines that it prints."""
    return (await run_python(snippet, at.routed.url, **given))[1]


async def session(at: Setting, snippet: Snippet) -> None:
    """The second turn reuses the first, and the session can be looked at."""
    first, second = map(numbers, await python(at, snippet))
    assert first[0] == 0 < second[0] < second[1]
    found = await seen(at, "issue-4711")
    assert (found["state"], found["worker"]) == ("open", "w1")
    assert [turn["why"] for turn in found["turns"]] == ["full hit", "never_stored FULL at 0"]
    assert full_tokens(found["held"]) >= GRID


async def loop(at: Setting, snippet: Snippet) -> None:
    """Paused while the tool runs, with tool and time; the sub-agent finds its parent's path; one close ends both."""
    during: dict[str, Json] = {}

    def run_tests(name: str) -> str:
        with urllib.request.urlopen(f"{at.routed.url}/v1/sessions/{name}") as answer:
            during[name] = json.load(answer)
        return "3 failed"

    lines = await python(at, snippet, run_tests=run_tests)
    assert list(during) == ["fix", "fix/test"]
    for found in during.values():
        assert found["paused"] == {"tool": "pytest", "expected_s": 90.0}
        assert (found["wait"]["kind"], found["wait"]["hint_believed"]) == ("tool", True)
        assert found["wait"]["hint_s"] == pytest.approx(90, abs=5)
    assert (during["fix/test"]["parent"], during["fix"]["children"]) == ("fix", 0)
    first, again, forked, last, *closed = lines
    assert (numbers(first), numbers(forked)) == ([0], numbers(again))
    assert min(*numbers(again), *numbers(last)) >= GRID
    assert [line.split()[1] for line in closed] == ["fix", "fix/test"]
    assert all(numbers(line)[0] >= GRID for line in closed), "what each held of full attention is released"
    assert await open_sessions(at) == set()
    await at.worker.thread.call(no_references)


async def shell(at: Setting, snippet: Snippet) -> None:
    await opened_paused_closed(at, await run_commands(snippet, at.routed.url))


async def opened_paused_closed(at: Setting, answers: list[Json]) -> None:
    opened, paused, found, closed = answers
    assert (opened["session_id"], opened["created"]) == ("issue-4712", True)
    assert paused["paused"] == found["paused"] == {"tool": "pytest", "expected_s": 90.0}
    assert {"state", "wait", "turns", "closing"} <= set(found)
    assert closed["state"] == "closed"
    assert await open_sessions(at) == set()


async def nothing(at: Setting, snippet: Snippet) -> None:
    """Equal beginnings are reused; a key for the cache is no session."""
    first, second = map(numbers, await python(at, snippet))
    assert first[0] == 0 < GRID <= second[0]
    assert await open_sessions(at) == set()
    await at.worker.thread.call(no_references)


async def claude(at: Setting, snippet: Snippet) -> None:
    first, second = await python(at, snippet)
    assert (numbers(first)[0], numbers(second)[0] >= GRID) == (0, True)
    said = "cache_control.ttl=accepted; cache_control=accepted (1 at a boundary)"
    assert first.endswith(said)
    assert second.endswith(said)
    assert (await seen(at, "anthropic-1"))["ttl_s"] == 3600


async def node(at: Setting, snippet: Snippet) -> None:
    names, _ = await run_python(snippet, at.routed.url)
    state: Json = {"messages": [{"role": "user", "content": "The parser fails. " * 60}]}
    config = {"configurable": {"thread_id": "thread-1"}}
    for _ in range(2):
        state = await asyncio.to_thread(names["call_model"], state, config)
        state["messages"].append({"role": "user", "content": "And now?"})
    later, earlier = (await seen(at, "thread-1"))["turns"]
    assert earlier["cached_tokens"]["device"] == 0 < GRID <= later["cached_tokens"]["device"]


async def expected(at: Setting, snippet: Snippet) -> None:
    code, last = snippet.code.rsplit("\ncurl", 1)
    _, found, paused = await run_commands(replace(snippet, code=code), at.routed.url)
    assert (found["wait"]["hint_s"], found["wait"]["hint_believed"], found["paused"]) == (300.0, True, None)
    assert paused["paused"] == {"tool": "approval", "expected_s": 600.0}
    wait = (await seen(at, "waits-1"))["wait"]
    assert (wait["hint_believed"], round(wait["hint_s"], -2)) == (True, 600)
    (resumed,) = await run_commands(replace(snippet, code=f"curl{last}"), at.routed.url)
    assert resumed["paused"] is None


async def fork(at: Setting, snippet: Snippet) -> None:
    forked, spawned = map(numbers, await python(at, snippet))
    assert forked[0] > spawned[0] >= GRID
    parent, below = await seen(at, "fork-1"), await seen(at, "fork-1/test")
    assert (parent["child_sessions"], below["parent"]) == (["fork-1/docs", "fork-1/test"], "fork-1")
    assert forked[0] == full_tokens(parent["held"]), "all that the parent has"


async def compaction(at: Setting, snippet: Snippet) -> None:
    """Declared, the long branch is let go of with the turn; left unsaid, with the one that extends the new branch."""
    await python(at, snippet)
    declared = full_tokens((await seen(at, "compacted-1"))["held"])
    unsaid = replace(snippet, code=snippet.code.replace('"1"', '"0"').replace("compacted-1", "unsaid-1"))
    assert unsaid.code.count('"0"') == 2
    names, _ = await run_python(unsaid, at.routed.url)
    claimed = full_tokens((await seen(at, "unsaid-1"))["held"])
    assert GRID <= declared < claimed
    longer = [*names["short"], {"role": "user", "content": "Go on. " * GRID}]
    body = {"model": "tiny-all", "messages": longer, "max_tokens": 1}
    await at.routed.post("/v1/chat/completions", body, x_agentcache_session="unsaid-1")
    assert declared < full_tokens((await seen(at, "unsaid-1"))["held"]) < claimed


async def close(at: Setting, snippet: Snippet) -> None:
    opened, _, preview, closed, late = await run_commands(snippet, at.routed.url)
    assert (opened["created"], preview["state"], preview["mode"]) == (True, "open", "preview")
    assert (closed["state"], closed["mode"]) == ("closed", "drop")
    assert late["error"]["code"] == "session_closed"


CHECKS: dict[Path, dict[str, Check]] = {
    README: {"session": session, "loop": loop, "shell": shell},
    AGENTS: {
        "nothing": nothing,
        "anthropic": claude,
        "node": node,
        "expected": expected,
        "fork": fork,
        "compaction": compaction,
        "close": close,
    },
}
ALL = [(file, name) for file, checks in CHECKS.items() for name in checks]


@pytest.mark.parametrize(("file", "name"), ALL, ids=[name for _, name in ALL])
async def test_a_snippet_does_what_is_said_of_it(file: Path, name: str) -> None:
    async with setting(sizes={"core": CORE}) as at:
        snippet = next(one for one in snippets_of(text_of(file)) if one.name == name)
        await CHECKS[file][name](at, snippet)


@pytest.mark.system
async def test_a_shell_reads_commands_as_we_do() -> None:
    async with setting(sizes={"core": CORE}) as at:
        snippet = next(one for one in snippets_of(text_of(README)) if one.name == "shell")
        await opened_paused_closed(at, await run_shell(snippet, at.routed.url))


@pytest.mark.parametrize("file", CHECKS, ids=lambda file: file.name)
async def test_every_snippet_is_one_that_runs(file: Path) -> None:
    names = [one.name for one in snippets_of(text_of(file))]
    assert names == list(CHECKS[file])


async def test_the_names_that_tools_are_said_to_send_are_read() -> None:
    """But for the one that never is; and our own are those of the wire."""
    text = AGENTS.read_text(encoding="utf-8")
    rows = {row.name: row.role for row in TABLE}
    named = set(re.findall(r"`((?:x-|mcp-|thread-id|session-id|prompt_cache_key)[\w-]*)(?=[`:])", text))
    own = {name for name in named if name.startswith(wire.PREFIX)}
    assert len(own) >= 8
    assert own <= {value for value in vars(wire).values() if isinstance(value, str)}
    assert named - own <= rows.keys()
    assert rows["mcp-session-id"] is Role.NEVER
    assert rows["prompt_cache_key"] is Role.FAMILY
