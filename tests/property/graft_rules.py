"""A layer of the core machine: what comes from outside onto a path that is there, and backups that fit the host."""

from collections import Counter

from hypothesis import strategies as st
from hypothesis.stateful import rule

from agentcache.keys import Key
from agentcache.types import FULL, Boundary, ComponentName, Inserted, Piece, Planned, TierName
from agentcache.views import Snapshot
from tests.driver import Driver
from tests.oracle import Line, Poll, Residency, line_of, needed_pages, residency
from tests.property.core_machine import LETTERS, PICK, SEEDS, SPACES, TIERS, Transfers

HOST, DEVICE = TierName.HOST, TierName.DEVICE
Copy = tuple[str, tuple[int, ...], ComponentName, TierName]


class Grafts(Transfers):
    """Offers that begin in the middle, and plans with room."""

    @rule(letters=LETTERS, space=SPACES, seed=SEEDS, tier=TIERS, begin=st.integers(0, 6))
    def graft(self, letters: str, space: object, seed: int, tier: TierName, begin: int) -> None:
        """Anywhere on any path: with ground it is an offer as others are, without it everything comes back."""
        key, config = self.key(letters, space), self.driver.config
        wanted, start = self.chosen(key, seed), min(begin * self.page, len(key))
        known = tier in config.tiers
        if not known or not self.driver.fits(key, wanted, None, tier):
            return
        before = residency(self.driver.core.snapshot())
        answer = self.driver.insert(key, wanted, None, tier, seed % 3, start)
        self.ranks.inserted(key, answer, seed % 3, self.driver.now)
        grounded = has_ground(line_of(before, key, config), start, tier)
        offered = with_offer(before, key, start, self.driver.offer_pieces(key, 0, wanted), tier, self.page)
        votes = Poll(offered if grounded else before, key, config).deepest(len(key))
        assert answer.frontier.length == votes, (answer.frontier, votes, grounded)
        self.judge_graft(answer, grounded, start)

    def judge_graft(self, answer: Inserted, grounded: bool, start: int) -> None:
        if not grounded:
            assert (answer.taken, answer.effects) == ((), ()), "taken without ground"
        elif answer.taken and start:
            self.reached["graft"] += 1
        self.reached["graft without ground"] += not grounded and bool(answer.kept)

    @rule(pick=PICK, scarce=st.booleans())
    def back_up_what_fits(self, pick: int, scarce: bool) -> None:
        """What is named fits, was lacking, and left nothing out for which there was room."""
        if not self.driver.config.host_tier or not self.published or len(self.driver.flights) > 3:
            return
        key = self.published[pick % len(self.published)]
        before, at = self.driver.core.snapshot(), self.driver.peek(key).device
        room = {name: free // (1 + scarce) for name, free in self.driver.room().items()}
        planned = self.driver.back_up_what_fits(key, room)
        self.judge_backup(
            planned, room, (before, self.driver.core.snapshot()), region_of(self.driver, key, at)
        )

    def judge_backup(
        self,
        planned: Planned,
        room: dict[ComponentName, int],
        snapshots: tuple[Snapshot, Snapshot],
        region: list[Copy],
    ) -> None:
        before, after = map(copies, snapshots)
        gone, own = before - after, {copy for copy in region if copy in before}
        assert not gone & own, f"own copies made way: {gone & own}"
        assert all(tier is HOST for *_, tier in gone), f"a backup took device copies: {gone}"
        assert (snapshots[0].epoch < snapshots[1].epoch) == bool(gone)
        lacking = Counter(copy[2] for copy in own if copy[3] is DEVICE and (*copy[:3], HOST) not in own)
        pieces = planned.job.pieces if planned.job else ()
        named = Counter({name: 0 for name in room})
        for piece in pieces:  # of a component several: what lies between them is on the host
            named[piece.component] += len(piece.slots)
        freed = Counter(name for _, _, name, _ in gone)
        for name, free in room.items():
            assert named[name] <= free + freed[name], f"{name}: more is named than fits"
            assert named[name] >= min(lacking[name], free), f"{name}: left out with room"
        assert not gone or any(named[name] > free for name, free in room.items()), "way was made in vain"
        self.reached["way was made"] += bool(gone)
        self.reached["left out of a backup"] += named.total() < lacking.total()


def has_ground(line: Line, begin: int, tier: TierName) -> bool:
    """Is FULL of every page before `begin` there, for an offer to the device on the device?"""
    tiers = {DEVICE} if tier is DEVICE else {DEVICE, HOST}
    return all({(FULL, at) for at in tiers} & held for end, held in line.items() if end <= begin)


def with_offer(
    places: Residency, key: Key, begin: int, pieces: tuple[Piece, ...], tier: TierName, page: int
) -> Residency:
    """What would lie where if all that is offered were taken."""
    space, tokens = key.namespace.digest().hex(), tuple(key.tokens.tolist())
    added = {place: dict(held) for place, held in places.items()}
    ends = [(FULL, end) for end in range(begin + page, len(key) + 1, page)]
    ends += [(piece.component, piece.end) for piece in pieces]
    for name, end in ends:
        added.setdefault((space, tokens[:end]), {})[name, tier] = -1
    return added


def region_of(driver: Driver, key: Key, at: Boundary) -> list[Copy]:
    """Every copy that the regions at a boundary could have."""
    space, tokens = key.namespace.digest().hex(), tuple(key.tokens.tolist())
    return [
        (space, tokens[:end], spec.name, tier)
        for spec in driver.config.specs
        for end in needed_pages(spec, at.length, driver.config.page_tokens)
        for tier in (DEVICE, HOST)
    ]


def copies(snapshot: Snapshot) -> set[Copy]:
    return {
        (page.namespace, page.path, name, tier) for page in snapshot.pages for name, tier, _ in page.slots
    }
