"""Several processes share a file store, and die at any moment."""

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from agentcache.tiers.api import Keep
from agentcache.tiers.stores.file import FileStore, disk_limit_bytes, open_file_store
from tests.stores import data_of, name_of

ROOT = Path(__file__).parents[4]
CAP = 4 << 20
SIZE = 40_000

OPENING = """
import random, sys
from pathlib import Path
from agentcache.tiers.api import Keep
from agentcache.tiers.stores.file import open_file_store
from tests.stores import data_of, name_of

store = open_file_store(Path(sys.argv[1]), int(sys.argv[2]))
seed, size = int(sys.argv[3]), int(sys.argv[4])
"""
# Writes objects for ever, and says after each that it is there: in a thousand digits, as it waits for its reader only
# when the pipe is full, and else it would be far ahead of one that stands still.
WRITER = """
number = seed
while True:
    name = name_of(number)
    assert store.put([(name, data_of(name, size))], list(Keep)[number % 2]) == [True]
    print(f"{number:01000}", flush=True)
    number += 1
"""
# Writes an object for each line of its standard input.
STEPPING = """
for number, _ in enumerate(sys.stdin):
    name = name_of(number)
    assert store.put([(name, data_of(name, size))], list(Keep)[number % 2]) == [True]
    print(number, flush=True)
"""
# Writes, reads and removes at random; says at the end how many objects it read, all of them right.
WORKER = """
chance = random.Random(seed)
right = 0
for turn in range(300):
    names = [name_of(chance.randrange(150)) for _ in range(4)]
    assert store.put([(name, data_of(name, size)) for name in names[:2]], chance.choice(list(Keep))) == [True, True]
    for name, data in zip(names, store.get(names)):
        assert data in (None, data_of(name, size))
        right += data is not None
    store.retain(names[2:], chance.choice(list(Keep)))
    store.remove(names[3:])
print(right, flush=True)
store.close()
"""
# Begins to read and stays there until its standard input ends.
READER = """
reading = store._environment.begin()
print("reading", flush=True)
sys.stdin.read()
"""

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start a script over the store in `tmp_path`; what still runs at the end is killed."""
    running: list[subprocess.Popen[str]] = []

    def started(
        script: str, *, capacity_bytes: int = CAP, seed: int = 0, size: int = SIZE
    ) -> subprocess.Popen[str]:
        arguments = [str(value) for value in (tmp_path, capacity_bytes, seed, size)]
        command = [sys.executable, "-c", OPENING + script, *arguments]
        running.append(
            subprocess.Popen(
                command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, pipesize=4096
            )
        )
        return running[-1]

    yield started
    for process in running:
        process.kill()
        process.communicate()


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def said_by(process: subprocess.Popen[str]) -> list[str]:
    """The lines of a process that has ended."""
    assert process.stdout is not None
    return process.stdout.read().split()


def whole(store: FileStore, numbers: range) -> list[bool]:
    """Which objects are there; those that are have to be right."""
    names = [name_of(number) for number in numbers]
    found = store.get(names)
    assert all(data in (None, data_of(name, SIZE)) for name, data in zip(names, found, strict=True))
    return [data is not None for data in found]


@pytest.mark.parametrize("lines", [1, 7, 40])
def test_a_writer_killed_at_any_moment_leaves_all_that_it_said(
    tmp_path: Path, start: Start, lines: int
) -> None:
    writer = start(WRITER, capacity_bytes=64 << 20)
    said = [int(line(writer)) for _ in range(lines)]
    writer.send_signal(signal.SIGKILL)
    writer.wait()
    said += map(int, said_by(writer))
    with closing(open_file_store(tmp_path, 64 << 20)) as store:
        there = whole(store, range(len(said) + 10))
        assert all(there[: len(said)])
        assert sum(there[len(said) :]) <= 1  # the one that it had no time to speak of
        assert store.status().objects == sum(there)
        assert store.put([("after", b"all is well")], Keep.LOOSE) == [True]


def test_a_writer_killed_in_churn_leaves_a_store_that_adds_up(tmp_path: Path, start: Start) -> None:
    for round_number in range(3):
        writer = start(WRITER, seed=round_number * 10_000)
        for _ in range(150):
            last = int(line(writer))
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        last = int([str(last), *said_by(writer)][-1])
        with closing(open_file_store(tmp_path, CAP)) as store:
            assert any(whole(store, range(last, last + 2)))  # or the one that it had no time to speak of
            status = store.status()
            assert status.used_bytes is not None
            assert 0 < status.used_bytes <= CAP
            names = [name_of(number) for number in range(round_number * 10_000 + 5000)]
            assert sum(store.exists(names)) == status.objects
    assert (tmp_path / "data.mdb").stat().st_size <= disk_limit_bytes(CAP)


def test_workers_share_a_store_too_small_for_what_they_write(tmp_path: Path, start: Start) -> None:
    workers = [start(WORKER, seed=seed) for seed in (1, 2)]
    with closing(open_file_store(tmp_path, CAP)) as store:
        for number in range(200):
            name = name_of(number % 150)
            assert store.put([(name, data_of(name, SIZE))], Keep.LOOSE) == [True]
            whole(store, range(number % 150, number % 150 + 3))
        assert all(int(line(worker)) > 100 for worker in workers)
        assert [worker.wait() for worker in workers] == [0, 0]
        whole(store, range(150))
        used_bytes = store.status().used_bytes
    assert used_bytes is not None
    assert used_bytes <= CAP
    assert (tmp_path / "data.mdb").stat().st_size <= disk_limit_bytes(CAP)


def test_what_one_process_writes_the_other_reads_at_once(tmp_path: Path, start: Start) -> None:
    with closing(open_file_store(tmp_path, CAP)) as store:
        writer = start(STEPPING)
        assert writer.stdin is not None
        for _ in range(20):
            writer.stdin.write("\n")
            writer.stdin.flush()
            number = int(line(writer))
            assert whole(store, range(number, number + 1)) == [True]


def test_references_hold_while_another_process_has_the_store(tmp_path: Path, start: Start) -> None:
    with closing(open_file_store(tmp_path, CAP)) as store:
        assert store.put([("kept", b"data")], Keep.REFERENCED) == [True]
        reader = start(READER)
        assert line(reader) == "reading"
        assert store.put([(name_of(n), bytes(SIZE)) for n in range(200)], Keep.LOOSE)
        assert store.exists(["kept"]) == [True]


def test_a_reader_that_died_holds_nothing_up(tmp_path: Path, start: Start) -> None:
    with closing(open_file_store(tmp_path, CAP)) as store:
        reader = start(READER)
        assert line(reader) == "reading"
        reader.kill()
        reader.wait()
        for number in range(600):
            assert store.put([(name_of(number), bytes(SIZE))], Keep.LOOSE) == [True]


def test_a_reader_that_hangs_costs_puts_and_nothing_else(tmp_path: Path, start: Start) -> None:
    """lmdb may not use again what such a reader might still read."""
    with closing(open_file_store(tmp_path, CAP)) as store:
        assert store.put([(name_of(0), data_of(name_of(0), SIZE))], Keep.LOOSE) == [True]
        reader = start(READER)
        assert line(reader) == "reading"
        answers = [store.put([(name_of(n), data_of(name_of(n), SIZE))], Keep.LOOSE)[0] for n in range(500)]
        assert not all(answers)
        assert sum(whole(store, range(500))) * SIZE > CAP // 2
        reader.communicate()
        for number in range(500, 900):
            assert store.put([(name_of(number), bytes(SIZE))], Keep.LOOSE) == [True]
    assert (tmp_path / "data.mdb").stat().st_size <= disk_limit_bytes(CAP)
