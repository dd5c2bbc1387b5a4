"""Sessions behind a router: tags and orders come late, twice, in any order and not at all, with a memory of one record.

The truth is the router's store: where each session is, its generation and placement. The law is checked once all that
was sent has come and nothing runs: what a worker has references of is open, and here.
"""

from collections import Counter
from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from agentcache.errors import CacheError, Kind
from agentcache.records import SessionRules
from agentcache.routed import LAST_PLACEMENT, Parting
from agentcache.sessions import SessionRegistry, Ticket
from agentcache.types import SessionId, SessionTag
from agentcache.wire import Order
from tests.property.reaching import reach

NAMES = st.sampled_from([SessionId(name) for name in "abcd"])
RULES = SessionRules(ttl_s=30, tag_ttl_s=8, tombstones=1)
PICK = st.integers(0, 999)
REACHED: Counter[str] = Counter()


@dataclass
class Truth:
    """A session in the store. `here`: this worker has it, else another one."""

    open: bool = False
    here: bool = True
    generation: int = 0
    placement: int = 0
    expired: bool = False


@dataclass(frozen=True)
class Sent:
    """A tag on its way, or an order."""

    session: SessionId
    generation: int
    placement: int = 0
    order: Order | None = None
    at_ns: int = 0
    parent: SessionId | None = None


class RoutedMachine(RuleBasedStateMachine):
    """A store, a network that delivers what and when it likes, and one worker's registry."""

    def __init__(self) -> None:
        super().__init__()
        self.registry = SessionRegistry(RULES)
        self.now_ns = 0
        self.clock = 0  # of generations
        self.truth: dict[SessionId, Truth] = {}
        self.tags: list[Sent] = []
        self.orders: list[Sent] = []
        self.late_orders: list[Sent] = []
        self.queued: list[Ticket] = []
        self.running: list[Ticket] = []
        self.marked: dict[SessionId, set[int]] = {}
        self.parted: dict[SessionId, tuple[int, int]] = {}  # what an order that was followed let go of

    # the router

    @rule(session=NAMES)
    def tag(self, session: SessionId) -> None:
        truth = self.truth.setdefault(session, Truth())
        if not truth.open:
            self.clock += 1
            self.truth[session] = truth = Truth(True, truth.here, self.clock)
        if truth.here:
            self.tags.append(Sent(session, truth.generation, truth.placement, at_ns=self.now_ns))

    @rule(session=NAMES, parent=NAMES)
    def fork(self, session: SessionId, parent: SessionId) -> None:
        """It is opened to go on from its parent's path, and is placed here with it."""
        truth, above = self.truth.get(session), self.truth.get(parent)
        if (truth and truth.open) or not (above and above.open and above.here):
            return
        self.clock += 1
        self.truth[session] = Truth(True, True, self.clock, placement=1)
        self.orders.append(Sent(session, self.clock, 1, Order.FORK, parent=parent))

    @rule(session=NAMES, parent=NAMES, told=st.booleans())
    def fork_what_has_ended(self, session: SessionId, parent: SessionId, told: bool) -> None:
        """A turn of the parent ends here before it is forked, and the worker hears of that at once or later."""
        self.tag(parent)
        self.deliver_tag(len(self.tags) - 1, again=False)
        self.begin(len(self.queued) - 1)
        self.complete(len(self.running) - 1)
        self.fork(session, parent)
        if told and self.orders and self.orders[-1].order is Order.FORK:
            self.deliver_order(len(self.orders) - 1, again=False)

    @rule(session=NAMES)
    def fence(self, session: SessionId) -> None:
        truth = self.truth.get(session)
        if truth and truth.open:
            self.clock += 1
            truth.generation = self.clock

    @rule(session=NAMES)
    def close(self, session: SessionId) -> None:
        truth = self.truth.get(session)
        if truth and truth.open:
            truth.open = False
            self.orders.append(Sent(session, truth.generation, order=Order.CLOSE))

    @rule(session=NAMES)
    def move(self, session: SessionId) -> None:
        """To another worker, or back; what it leaves is told once the other one has registered, or not yet."""
        truth = self.truth.get(session)
        if not truth or not truth.open:
            return
        truth.placement += 1
        if truth.here:
            self.orders.append(Sent(session, truth.generation, truth.placement, Order.MOVED))
        truth.here = not truth.here
        REACHED["moved"] += 1

    @rule(session=NAMES)
    def return_before_the_notice(self, session: SessionId) -> None:
        """It moves and comes back, and a request of it is here before anybody said that it had left."""
        truth = self.truth.get(session)
        if truth and truth.open and truth.here:
            self.move(session)
            self.move(session)
            self.tag(session)
            self.deliver_tag(len(self.tags) - 1, again=False)

    @rule(session=NAMES)
    def offer_expiry(self, session: SessionId) -> None:
        """The store expires only what its holders let go of, and what had no request meanwhile."""
        truth = self.truth.get(session)
        if not truth or not truth.open or not truth.here:
            return
        sent = Sent(session, truth.generation, LAST_PLACEMENT, Order.EXPIRE)
        if self.obey(sent).busy:
            REACHED["busy"] += 1
            return
        truth.open = False
        self.late_orders.append(sent)
        REACHED["expired"] += 1

    # the network

    @rule(pick=PICK, again=st.booleans())
    def deliver_tag(self, pick: int, again: bool) -> None:
        self.tags = [tag for tag in self.tags if self.now_ns - tag.at_ns <= RULES.tag_ttl_s * 1e9]
        if not self.tags:
            return
        sent = self.tags[pick % len(self.tags)]
        if not again:  # as if it had been the same tag twice, which a worker refuses: another attempt
            self.tags.remove(sent)
        tag = SessionTag(sent.session, sent.generation, issued=True, placement=sent.placement)
        try:
            ticket = self.registry.arrive(tag, self.now_ns)
        except CacheError as error:
            if error.kind is not Kind.SESSION_STALE or sent.generation >= self.truth[sent.session].generation:
                raise
            REACHED["stale"] += 1
            return
        self.queued.append(ticket)
        if not ticket.registers:
            REACHED[f"unreferenced: {ticket.state}"] += 1

    @rule(pick=PICK, again=st.booleans())
    def deliver_order(self, pick: int, again: bool) -> None:
        if not self.orders:
            return
        sent = self.orders.pop(pick % len(self.orders))
        self.obey(sent)
        if again:
            self.late_orders.append(sent)

    @rule(pick=PICK)
    def deliver_order_again(self, pick: int) -> None:
        if self.late_orders:
            self.obey(self.late_orders[pick % len(self.late_orders)])

    def obey(self, sent: Sent) -> Parting:
        routed = self.registry.routed
        if sent.order is Order.FORK:
            return self.inherit(sent)
        if sent.order is Order.CLOSE:
            parting = routed.close(sent.session, sent.generation, self.now_ns)
        elif sent.order is Order.MOVED:
            parting = routed.moved(sent.session, sent.generation, sent.placement, self.now_ns)
        else:
            parting = routed.expire(sent.session, sent.generation, self.now_ns)
        if parting.busy:
            REACHED[f"not followed: {sent.order}"] += 1
            return parting
        claims = {
            Order.CLOSE: (sent.generation, LAST_PLACEMENT),
            Order.EXPIRE: (sent.generation, LAST_PLACEMENT),
            Order.MOVED: (sent.generation, sent.placement - 1),
        }
        assert sent.order
        self.parted[sent.session] = max(self.parted.get(sent.session, (0, 0)), claims[sent.order])
        before = self.marked.get(sent.session, set())
        self.marked[sent.session] = {mark for mark in before if mark > parting.releases}
        assert not any(mark <= sent.generation for mark in self.marked[sent.session])
        REACHED[f"released by {sent.order}"] += len(before) > len(self.marked[sent.session])
        return parting

    def inherit(self, sent: Sent) -> Parting:
        """As `link_orders` follows it: a request that never begins, and references of what its parent has."""
        if sent.generation in self.marked.get(sent.session, ()):
            REACHED["forked late"] += 1
            return Parting(sent.session, sent.generation)
        tag = SessionTag(
            sent.session,
            sent.generation,
            parent=sent.parent,
            issued=True,
            placement=sent.placement,
            fork=True,
        )
        try:
            ticket = self.registry.arrive(tag, self.now_ns)
        except CacheError as error:
            if error.kind is not Kind.SESSION_STALE or sent.generation >= self.truth[sent.session].generation:
                raise
            REACHED["stale fork"] += 1
            return Parting(sent.session, sent.generation)
        self.registry.leave(ticket, self.now_ns)
        REACHED["unreferenced fork"] += not ticket.registers
        if (
            ticket.registers
            and sent.parent
            and self.marked.get(sent.parent)
            and not self.marked.get(sent.session)
        ):
            self.marked[sent.session] = {ticket.generation}
            REACHED["inherited"] += 1
        return Parting(sent.session, ticket.generation)

    @rule()
    def confirm(self) -> None:
        """What was made known here is offered to the store, which says what became of it."""
        for known in self.registry.routed.unconfirmed(self.now_ns):
            truth = self.truth[known.session]
            if truth.open and truth.here:
                continue
            REACHED["told by the store"] += 1
            if truth.open:
                self.obey(Sent(known.session, truth.generation, truth.placement, Order.MOVED))
            else:
                self.obey(Sent(known.session, truth.generation, order=Order.CLOSE))

    # the worker

    @rule(seconds=st.sampled_from([0.5, 2, 7, 9, 31]))
    def wait(self, seconds: float) -> None:
        self.now_ns += int(seconds * 1e9)
        for lapsed in self.registry.sweep(self.now_ns):
            before = self.marked.get(lapsed.session, set())
            self.marked[lapsed.session] = {mark for mark in before if mark > lapsed.generation}
            assert all(t.session != lapsed.session for t in self.queued + self.running if t.registers)
            REACHED["own lease"] += 1

    @rule(pick=PICK)
    def begin(self, pick: int) -> None:
        if self.queued:
            ticket = self.queued.pop(pick % len(self.queued))
            self.registry.begin(ticket, self.now_ns)
            self.running.append(ticket)

    @rule(pick=PICK)
    def leave(self, pick: int) -> None:
        if self.queued:
            self.registry.leave(self.queued.pop(pick % len(self.queued)), self.now_ns)

    @rule(pick=PICK)
    def complete(self, pick: int) -> None:
        if not self.running:
            return
        ticket = self.running.pop(pick % len(self.running))
        assert ticket.session is not None
        claim = (ticket.generation, ticket.placement)
        if self.registry.complete(ticket, self.now_ns).registers:
            assert claim > self.parted.get(ticket.session, (0, 0)), "a stale completion registered"
            self.marked.setdefault(ticket.session, set()).add(ticket.generation)
            REACHED["registered"] += 1
        else:
            REACHED["late completion"] += ticket.registers

    def teardown(self) -> None:
        """All that was sent comes, everything that runs ends; then the law holds."""
        while self.queued:
            self.begin(0)
        while self.running:
            self.complete(0)
        while self.orders:
            self.deliver_order(0, again=False)
        while self.tags:
            self.deliver_tag(0, again=False)
        while self.queued:
            self.begin(0)
        while self.running:
            self.complete(0)
        self.confirm()
        for session, marks in self.marked.items():
            truth = self.truth[session]
            assert not marks or (truth.open and truth.here), f"{session} is referenced: {marks}, {truth}"
            assert all(self.registry.may_hold(session, mark) for mark in marks), (session, marks)
            REACHED["referenced in the end"] += bool(marks)


RARE = {
    "moved",
    "busy",
    "expired",
    "stale",
    "unreferenced: closed",
    "unreferenced: stale",
    "unreferenced: none",
    "not followed: moved",
    "forked late",
    "inherited",
    "stale fork",
    "told by the store",
    "unreferenced fork",
    "released by close",
    "released by moved",
    "released by expire",
    "own lease",
    "late completion",
    "registered",
    "referenced in the end",
}


def run(number: int) -> None:
    run_state_machine_as_test(
        seed(number)(RoutedMachine),
        settings=settings(
            max_examples=150,
            stateful_step_count=60,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.timeout(600)
def test_routed_sessions_any_history_ends_with_references_of_what_is_open_and_here() -> None:
    """R051, R111: whatever is delivered late, twice or out of order, also with the records forgotten in between."""
    reach(run, REACHED, RARE)
