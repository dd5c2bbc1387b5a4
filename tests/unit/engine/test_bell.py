"""Rung by any thread, heard once."""

import threading
import time

from agentcache.engine.bell import Bell

LONG_S = 20.0


def test_a_ring_before_the_wait_is_heard_once() -> None:
    bell = Bell()
    bell.ring()
    bell.ring()
    began = time.monotonic()
    bell.wait(LONG_S)
    assert time.monotonic() - began < LONG_S / 2
    began = time.monotonic()
    bell.wait(0.05)
    assert time.monotonic() - began >= 0.04


def test_a_ring_from_another_thread_ends_the_wait() -> None:
    bell = Bell()
    ringer = threading.Timer(0.01, bell.ring)
    ringer.start()
    began = time.monotonic()
    bell.wait(LONG_S)
    assert time.monotonic() - began < LONG_S / 2
    ringer.join()


def test_the_listener_hears_each_ring_on_the_ringing_thread() -> None:
    bell, heard = Bell(), list[str]()
    bell.ring()
    bell.listen(lambda: heard.append(threading.current_thread().name))
    bell.ring()
    ringer = threading.Thread(target=bell.ring, name="ringer")
    ringer.start()
    ringer.join()
    assert heard == [threading.current_thread().name, "ringer"]
