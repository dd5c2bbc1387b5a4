"""Any history of sessions, with a memory of one tombstone, against a model that forgets nothing."""

from collections import Counter

import pytest
from hypothesis import HealthCheck, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from agentcache.errors import CacheError, Kind
from agentcache.records import SessionRules
from agentcache.sessions import Opening, SessionFacts, SessionRegistry, Ticket
from agentcache.types import SessionId, SessionState, SessionTag
from tests.property.reaching import reach

NAMES = st.sampled_from([SessionId(name) for name in "abcdefg"])
RULES = SessionRules(ttl_s=30, reopen_after_s=3, tag_ttl_s=8, tombstones=1)
REACHED: Counter[str] = Counter()


class SessionMachine(RuleBasedStateMachine):
    """The truth: per session every generation that ever was, the open one (0: none), and when it was closed."""

    def __init__(self) -> None:
        super().__init__()
        self.registry = SessionRegistry(RULES)
        self.now_ns = 0
        self.used: dict[SessionId, int] = {}
        self.live: dict[SessionId, int] = {}
        self.closed_ns: dict[SessionId, int] = {}
        self.queued: list[Ticket] = []
        self.running: list[Ticket] = []

    def note_opened(self, session: SessionId, generation: int) -> None:
        assert generation > self.used.get(session, 0), "a generation came back"
        self.used[session] = self.live[session] = generation

    def busy(self, session: SessionId) -> bool:
        return any(ticket.session == session for ticket in self.queued + self.running)

    @rule(seconds=st.sampled_from([0.5, 2, 4, 9, 31]))
    def wait(self, seconds: float) -> None:
        self.now_ns += int(seconds * 1e9)
        for lapsed in self.registry.sweep(self.now_ns):
            assert self.live.pop(lapsed.session) == lapsed.generation
            assert not self.busy(lapsed.session), "a lease ran out under a request"
            REACHED["expired"] += 1

    @rule(session=NAMES)
    def request(self, session: SessionId) -> None:
        ticket = self.registry.arrive(SessionTag(session), self.now_ns)
        self.queued.append(ticket)
        if ticket.registers and ticket.generation != self.live.get(session):
            assert session not in self.live, "an open session was opened again"
            early = self.now_ns - self.closed_ns.get(session, -(10**12)) <= 3e9
            assert not early, "a closed session came back early"
            REACHED[f"opened by a request: {ticket.state}"] += 1
            self.note_opened(session, ticket.generation)
        if not ticket.registers:
            assert session not in self.live, "an open session was not served"
            REACHED[f"unreferenced: {ticket.state}"] += 1

    @rule(session=NAMES, generation=st.integers(1, 12))
    def fenced_request(self, session: SessionId, generation: int) -> None:
        tag = SessionTag(session, generation=generation)
        if self.live.get(session) == generation:
            self.queued.append(self.registry.arrive(tag, self.now_ns))
            assert self.queued[-1].registers
            return
        with pytest.raises(CacheError) as refused:
            self.registry.arrive(tag, self.now_ns)
        assert refused.value.kind in (Kind.SESSION_STALE, Kind.SESSION_CLOSED)

    @rule(session=NAMES, fence=st.booleans())
    def open(self, session: SessionId, fence: bool) -> None:
        opened = self.registry.open(session, Opening(fence=fence), self.now_ns)
        assert opened.created is (session not in self.live)
        if opened.created or fence:
            REACHED["reopened after close"] += opened.created and session in self.closed_ns
            self.note_opened(session, opened.generation)
        assert opened.generation == self.live[session]

    @rule(session=NAMES)
    def close(self, session: SessionId) -> None:
        facts = self.close_known(session)
        if facts is None:
            assert session not in self.live
            REACHED["forgotten"] += session in self.closed_ns
            return
        assert facts.state is SessionState.CLOSED
        assert facts.closed_through == facts.generation
        if self.live.pop(session, 0):
            self.closed_ns[session] = self.now_ns
        else:
            REACHED["closed twice"] += 1

    def close_known(self, session: SessionId) -> SessionFacts | None:
        try:
            return self.registry.close(session, None, self.now_ns)
        except CacheError as error:
            if error.kind is not Kind.SESSION_UNKNOWN:
                raise
        counted = [t for t in self.queued + self.running if t.session == session and t.generation]
        assert not counted, "a session with a request was forgotten"
        return None

    @rule(data=st.data())
    def begin(self, data: st.DataObject) -> None:
        if self.queued:
            ticket = self.queued.pop(data.draw(st.integers(0, len(self.queued) - 1)))
            self.registry.begin(ticket, self.now_ns)
            self.running.append(ticket)

    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        if self.queued:
            ticket = self.queued.pop(data.draw(st.integers(0, len(self.queued) - 1)))
            self.registry.leave(ticket, self.now_ns)

    @rule(data=st.data())
    def complete(self, data: st.DataObject) -> None:
        if not self.running:
            return
        ticket = self.running.pop(data.draw(st.integers(0, len(self.running) - 1)))
        completion = self.registry.complete(ticket, self.now_ns)
        assert ticket.session is not None
        rightly = ticket.registers and self.live.get(ticket.session) == ticket.generation
        assert completion.registers is rightly
        REACHED["late completion"] += ticket.registers and not rightly

    @invariant()
    def bounded_and_counted(self) -> None:
        counts = self.registry.counts()
        resting = {ticket.session for ticket in self.queued + self.running} - set(self.live)
        assert counts.open == len(self.live)
        assert counts.tombstones <= RULES.tombstones + len(resting)


RARE = {
    "expired",
    "opened by a request: open",
    "opened by a request: expired",
    "unreferenced: closed",
    "unreferenced: none",
    "reopened after close",
    "forgotten",
    "closed twice",
    "late completion",
}


def run(number: int) -> None:
    run_state_machine_as_test(
        seed(number)(SessionMachine),
        settings=settings(
            max_examples=120,
            stateful_step_count=60,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.timeout(600)
def test_sessions_any_history_agrees_with_the_truth() -> None:
    """And reaches what is rare: late completions, double closes, reopening, expiry, forgotten tombstones."""
    reach(run, REACHED, RARE)
