"""Makes the recorded traces that every core is judged by: `python -m tests.parity.corpus`.

Random histories that together show every kind of answer, and the sample trajectories of `agentcache demo` as a tree
sees them. Recorded from the reference core; the result is committed beside the native core's tests.
"""

import random
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from agentcache.keys import Key, page_key
from agentcache.replay.readers import open_trace
from agentcache.replay.sample import SAMPLE
from agentcache.tree.api import Order
from agentcache.tree.reference.core import ReferenceCore
from agentcache.types import FULL, Planned, ReleaseMode, TierName, Wait, WaitState
from tests.builders import HOME, config_of
from tests.driver import Driver
from tests.parity.history import Author
from tests.parity.recorder import RecordingCore
from tests.parity.shaping import random_shape
from tests.parity.world import World

CORPUS = Path(__file__).parents[2] / "agentcache" / "_rust" / "core" / "tests" / "corpus"
ENDING = ".trace"
TRIED = 300
LONGEST = 120_000
KEPT_BYTES = 600_000
PAGE = 32
LONGEST_PROMPT = 50 * PAGE
_WORDS = re.compile(r"\w+|[^\w\s]")
_OPTION = re.compile(r" (?:insert|backup) .*?( (?:from|room))=")
_FEATURE = re.compile(r"\b([a-z_]+)[=:(@]([a-z_>:]+(?:\.[A-Z0-9]+)?|-)")


def main() -> None:
    CORPUS.mkdir(parents=True, exist_ok=True)
    for old in CORPUS.glob(f"*{ENDING}"):
        old.unlink()
    for name, text in (*random_traces(), ("larder", larder())):
        (CORPUS / f"{name}{ENDING}").write_text(text, encoding="utf-8")
        print(f"{name}: {len(text.splitlines())} lines, {len(text)} bytes", file=sys.stderr)


def traces() -> list[Path]:
    """The recorded traces."""
    return sorted(CORPUS.glob(f"*{ENDING}"))


# -- random histories


def random_traces() -> Iterator[tuple[str, str]]:
    """Those of many histories that show most of what those before them do not."""
    recorded = {f"random-{seed}": record(f"corpus.{seed}") for seed in range(TRIED)}
    shown = {name: features(text) for name, text in recorded.items() if len(text) < LONGEST}
    seen: set[str] = set()
    size = 0
    while shown and size < KEPT_BYTES:
        name = max(shown, key=lambda at: len(shown[at] - seen) / (20_000 + len(recorded[at])))
        if not shown[name] - seen:
            return
        seen |= shown.pop(name)
        size += len(recorded[name])
        yield name, recorded[name]


def record(seed: str) -> str:
    """One random history as a trace."""
    chance, lines = random.Random(seed), list[str]()
    shape = random_shape(chance)
    core = RecordingCore(ReferenceCore(shape.config), lines.append)
    world = World(core, shape)
    author = Author(chance, world)
    ops = author.ops()
    for _ in range(chance.choice([60, 120, 200])):
        world.perform(next(ops))
    for op in author.ending():
        world.perform(op)
    core.check()
    return "".join(f"{line}\n" for line in lines)


def features(text: str) -> set[str]:
    """What a trace shows: methods with the kinds of their answers, under each order and write policy."""
    lines = text.splitlines()
    order = " ".join(re.findall(r"\b(?:order|base|write_back|events)=\S+", lines[1]))
    found = {order, *re.findall(r"\b(?:page|grid)=\d+", lines[1])}
    for line in lines[2:]:
        asked, arrow, answer = line.partition(" => ")
        if arrow:
            method = asked.split(" ", 2)[1] + "".join(_OPTION.findall(asked))
            words = [f"{name}={value}" for name, value in _FEATURE.findall(answer)]
            found |= {f"{method} {word}" for word in words}
            found |= {f"{method} {word} {order}" for word in words if method in ("evict", "commit")}
    return found


# -- the sample trajectories


def larder() -> str:
    """Turn after turn of the sample sessions, interleaved, on pools that are too small for all of them."""
    lines: list[str] = []
    config = config_of("SM", PAGE, 2, write_back=True, order=Order.ERT, host_tier=True, emit_events=True)
    driver = Driver(RecordingCore(ReferenceCore(config), lines.append), slots=90, host_slots=60)
    prompts = {session.name: list(session.prompts()) for session in open_trace(SAMPLE).sessions()}
    ids: dict[str, int] = {}
    for turn in range(1 + max(map(len, prompts.values()))):
        for name, messages in prompts.items():
            if turn < len(messages):
                text = " ".join(f"{message['role']} {message['content']}" for message in messages[turn])
                tokens = [ids.setdefault(word, len(ids)) for word in _WORDS.findall(text)]
                take_turn(driver, name, page_key(tokens[:LONGEST_PROMPT], HOME, PAGE), turn)
            elif turn == len(messages):
                driver.release(name, ReleaseMode.DROP if len(name) % 2 else ReleaseMode.RELEASE)
    driver.core.check()
    return "".join(f"{line}\n" for line in lines)


def take_turn(driver: Driver, session: str, key: Key, turn: int) -> None:
    """What the cache does for one request: match, load, lock, make room, publish, register."""
    driver.expect(session, Wait(WaitState.PENDING, seq=turn))
    found = driver.match(key, len(key) - 1)
    planned = driver.load(key) if found.any_tier.length > found.device.length else Planned(None)
    finish_transfers(driver)
    if planned.lease:
        driver.unlock(driver.leases[planned.lease])
    held = driver.lock(key)
    driver.expect(session, Wait(WaitState.RUNNING, driver.now, driver.now - 50))
    wanted = driver.everything(len(key))
    for spec in driver.config.specs:
        lacking = len(key) // PAGE - len(driver.ledger(spec.name).free)
        if lacking > 0:
            driver.evict(spec.name, lacking)
            finish_transfers(driver)
    if driver.fits(key, wanted, held, TierName.DEVICE):
        driver.insert(key, wanted, held)
    driver.relock(held, key, driver.peek(key).device)
    driver.turn(session, key, (2 * turn + 1, 2 * turn + 2), alternate=len(key) // 2)
    driver.unlock(next(iter(driver.leases.values())))
    since = driver.now
    driver.expect(session, Wait(WaitState.IDLE, since, since - 50, 30 if turn % 2 else None))


def finish_transfers(driver: Driver) -> None:
    """Every second transfer of states fails; the others land."""
    for flight in list(driver.flights.values()):
        driver.commit(flight.job, lambda piece, end: piece.component == FULL or end % (4 * PAGE) == 0)


if __name__ == "__main__":
    main()
