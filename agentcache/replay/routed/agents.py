"""Agents at a router, closed loop: a session's next request comes its recorded gap after the end of the answer before.

    turn ─► its end ─► (pause: "back in 8 s") ─► gap ─► turn ─► … ─► DELETE, once all below are over, too
                └─► sub-agents that begin there, below their parent

The script says when what happens, as to the lab; how the router is reached is its caller's.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol
from urllib.parse import quote

import msgspec

from agentcache.errors import CacheError, Kind
from agentcache.replay.lab.world import Script, children
from agentcache.replay.paged import PagedCall, PagedSession
from agentcache.replay.routed.pages import TOOL, Turn, tools_of, waits_for
from agentcache.waits import SHORTEST_S, WaitKind
from agentcache.wire import CACHED, PARENT, PROMPT, SESSION

NANOSECONDS: Final = 1e9
CHAT: Final = "/v1/chat/completions"
_TOOLS: Final = ({"type": "function", "function": {"name": TOOL, "parameters": {}}},)
"""With tools an answer is read for calls, of whatever name."""


@dataclass(frozen=True, slots=True)
class Heard:
    """An answer; header names in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Router(Protocol):
    """Where agents send what they ask."""

    async def ask(self, method: str, target: str, headers: Mapping[str, str], body: bytes) -> Heard:
        """Send one request, and wait for the end of its answer."""


@dataclass(frozen=True, slots=True)
class Taken:
    """One turn as it went. Units: tokens of the worker (pages of the trace), seconds since the replay began."""

    session: int
    turn: int
    prompt_tokens: int
    cached_tokens: int
    asked_s: float
    ended_s: float


class _Named(msgspec.Struct):
    id: str


class _Message(msgspec.Struct):
    tool_calls: list[_Named] = []


class _Choice(msgspec.Struct):
    message: _Message
    finish_reason: str


class _Completion(msgspec.Struct):
    choices: list[_Choice]


_COMPLETION: Final = msgspec.json.Decoder(_Completion)
Sleep = Callable[[float], Awaitable[None]]


class Agents:
    """All sessions of a script. `states`: they say how long their tools will take, truly. `run` may be called once."""

    def __init__(
        self, script: Script, router: Router, states: bool = False, sleep: Sleep = asyncio.sleep
    ) -> None:
        self._script = script
        self._router = router
        self._states = states
        self._sleep = sleep
        self._loop = asyncio.get_running_loop()
        self._began_s = self._loop.time()
        sessions = script.workload.sessions
        below = Counter(session.parent for session in sessions)
        self._unfinished = [1 + below[session.index] for session in sessions]
        self._children = children(sessions)
        self.taken: list[Taken] = []

    async def run(self) -> list[Taken]:
        """Every turn, in the order of their ends. Errors: CacheError(UNREACHABLE) for a request that is not served."""
        sessions = self._script.workload.sessions
        try:
            async with asyncio.TaskGroup() as living:
                for index, start_ns in self._script.starts_ns.items():
                    living.create_task(self._live(sessions[index], start_ns, living))
        except* CacheError as failed:
            raise failed.exceptions[0] from None
        return self.taken

    async def _live(self, session: PagedSession, after_ns: int, living: asyncio.TaskGroup) -> None:
        await self._sleep(after_ns / NANOSECONDS)
        gaps_ns = self._script.gaps_ns[session.index]
        before: PagedCall | None = None
        answered: tuple[str, ...] = ()
        for call in session.calls:
            answered = await self._turn(session, Turn(call, before, answered))
            ended_s, before = self._loop.time(), call
            for child in self._children.get(call.key, ()):
                living.create_task(self._live(child, self._script.gaps_ns[child.index][0], living))
            if call.turn + 1 < len(session.calls):
                gap_s = gaps_ns[call.turn + 1] / NANOSECONDS
                await self._say(session, call, gap_s)
                await self._sleep(max(0.0, ended_s + gap_s - self._loop.time()))
        await self._over(session.index)

    async def _turn(self, session: PagedSession, turn: Turn) -> tuple[str, ...]:
        """Ask, and note what came; the ids of the calls in the answer."""
        call = turn.call
        asked_s = self._loop.time()
        heard = await self._ask("POST", CHAT, _body(session, turn), self._names(session))
        ended_s = self._loop.time()
        self.taken.append(
            Taken(
                call.session,
                call.turn,
                int(heard.headers[PROMPT]),
                int(heard.headers[CACHED]),
                asked_s - self._began_s,
                ended_s - self._began_s,
            )
        )
        (choice,) = _COMPLETION.decode(heard.body).choices
        return tuple(one.id for one in choice.message.tool_calls)

    async def _say(self, session: PagedSession, call: PagedCall, gap_s: float) -> None:
        """How long the tool will take that the session waits for; nobody foretells people."""
        if self._states and session.calls[call.turn + 1].kind is WaitKind.TOOL:
            (tool, *_) = tools_of(session, call.turn) or (TOOL,)
            said = {"tool": tool, "expected_s": max(SHORTEST_S, gap_s)}
            await self._ask("POST", f"{_path(session.index)}/pause", said)

    async def _over(self, index: int) -> None:
        """A session has had its last turn. It is closed after those below it, and its parent perhaps with it."""
        while index >= 0:
            self._unfinished[index] -= 1
            if self._unfinished[index]:
                return
            if self._script.closes:
                await self._ask("DELETE", _path(index))
            index = self._script.workload.sessions[index].parent

    def _names(self, session: PagedSession) -> dict[str, str]:
        named = {SESSION: name_of(session.index)}
        return named | {PARENT: name_of(session.parent)} if session.parent >= 0 else named

    async def _ask(
        self, method: str, target: str, said: object = None, headers: Mapping[str, str] | None = None
    ) -> Heard:
        body = b"" if said is None else msgspec.json.encode(said)
        told = {"content-type": "application/json", **(headers or {})}
        heard = await self._router.ask(method, target, told, body)
        if heard.status != 200:
            answer = heard.body[:300].decode("utf-8", "replace")
            raise CacheError(Kind.UNREACHABLE, f"{method} {target} was answered {heard.status}: {answer}")
        return heard


def name_of(session: int) -> str:
    """What a session is called at the router."""
    return f"session-{session}"


def _path(session: int) -> str:
    return f"/v1/sessions/{quote(name_of(session))}"


def _body(session: PagedSession, turn: Turn) -> dict[str, object]:
    call = turn.call
    said: dict[str, object] = {
        "messages": turn.messages(),
        "agentcache": {"output_tokens": call.output.tolist()},
    }
    match waits_for(session, call.turn):
        case WaitKind.TOOL:
            said["tools"] = _TOOLS
        case WaitKind.UNKNOWN:  # cut, so that nobody knows whom it waits for
            said["max_tokens"] = len(call.output)
    return said
