"""The number that parts the handles of one core from those of every other in this process."""

from itertools import count

_numbers = count(1)


def next_instance() -> int:
    """A number that no core had before."""
    return next(_numbers)


def first_number(instance: int) -> int:
    """Where a core's leases and jobs are counted from: two cores never issue the same number."""
    return (instance << 32) + 1
