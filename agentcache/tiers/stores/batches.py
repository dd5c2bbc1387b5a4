"""What goes to a server at once."""

from collections.abc import Callable, Iterator, Sequence

WRITE_BYTES = 8 << 20
OBJECTS = 512

Objects = Sequence[tuple[str, bytes]]


def put_in_batches(objects: Objects, largest_bytes: int, put: Callable[[Objects], list[bool]]) -> list[bool]:
    """The answers of `put`, batch by batch, in the order of the objects; one that is too large is not sent: False."""
    kept: list[bool] = []
    for some in _batches([entry for entry in objects if len(entry[1]) <= largest_bytes]):
        kept += put(some)
    answers = iter(kept)
    return [len(data) <= largest_bytes and next(answers) for _, data in objects]


def _batches(objects: Objects) -> Iterator[Objects]:
    """Runs of objects of 8 MiB and 512 at most; a larger object goes alone."""
    batch: list[tuple[str, bytes]] = []
    size_bytes = 0
    for name, data in objects:
        if batch and (size_bytes + len(data) > WRITE_BYTES or len(batch) == OBJECTS):
            yield batch
            batch, size_bytes = [], 0
        batch.append((name, data))
        size_bytes += len(data)
    if batch:
        yield batch
