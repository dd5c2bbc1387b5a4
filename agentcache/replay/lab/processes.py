"""Processes that replay for this one, and end with it: at its end, at a fault of one of them, when it is killed."""

import os
import signal
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection
from threading import Thread

from agentcache.replay.lab.cells import Cell, Score
from agentcache.replay.lab.replaying import replay_cell
from agentcache.replay.paged import Workload

Later = Callable[[], Score]
"""A score that is waited for, or made when it is asked for. Errors: those of the replay."""

Submit = Callable[[str, Cell, int], Later]
OnReplay = Callable[[], None]


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0))


def here(workloads: Mapping[str, Workload], on_replay: OnReplay) -> Submit:
    """Replays in this process, each when its score is asked for."""

    def submit(trace: str, cell: Cell, seed: int) -> Later:
        def later() -> Score:
            score = replay_cell(workloads[trace], cell, seed)
            on_replay()
            return score

        return later

    return submit


@contextmanager
def elsewhere(workloads: Mapping[str, Workload], on_replay: OnReplay, count: int) -> Iterator[Submit]:
    """`count` processes that hold the workloads. An exception in the block ends them at once, whatever they replay."""
    context = get_context("spawn")
    leash, held = context.Pipe(duplex=False)
    pool = ProcessPoolExecutor(count, context, initializer=_hold, initargs=(dict(workloads), leash))

    def done(future: "Future[Score]") -> None:
        if not future.cancelled() and future.exception() is None:
            on_replay()

    def submit(trace: str, cell: Cell, seed: int) -> Later:
        with _deaf():
            future = pool.submit(_replay, trace, cell, seed)
        future.add_done_callback(done)
        return future.result

    try:
        yield submit
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        held.close()
        raise
    finally:
        pool.shutdown()
        held.close()
        leash.close()


@contextmanager
def _deaf() -> Iterator[None]:
    """Processes that begin within do not hear Ctrl-C: it is for the one that starts them, once it has started them."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


_held: dict[str, Workload] = {}
"""What a process of the pool replays."""


def _hold(workloads: dict[str, Workload], leash: "Connection[object, object]") -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})  # by which the pool ends what is broken
    _held.update(workloads)
    Thread(target=_end_with, args=(leash,), daemon=True).start()


def _end_with(leash: "Connection[object, object]") -> None:
    """End when the other end of the leash is closed, which a process that is killed does as well."""
    leash.poll(None)
    os._exit(1)


def _replay(trace: str, cell: Cell, seed: int) -> Score:
    return replay_cell(_held[trace], cell, seed)
