"""What a core answers, as one line of text by position: equal for two cores that agree.

Left out is what the contract leaves open: handles, the order of slots in a Free and of pools between two Moves, and
the order of hashes in a REMOVED. The same lines stand in recorded traces, and the native core's tests write them too.
"""

import hashlib
from collections.abc import Iterable, Sequence

import numpy as np

from agentcache.types import (
    Boundary,
    Committed,
    Effect,
    Emit,
    Event,
    EventKind,
    Evicted,
    Free,
    Held,
    Inserted,
    Job,
    Locked,
    MatchResult,
    Move,
    Piece,
    Planned,
    Released,
)
from agentcache.views import PageView, Snapshot

NOTHING = "-"
HASH_BYTES = 8


def answer_text(value: object, epoch: int) -> str:
    """An answer of any method; `epoch` is the one that the core was born with."""
    match value:
        case None:
            return "done"
        case MatchResult():
            miss = value.miss
            why = f"{miss.component}@{miss.position}:{miss.reason}" if miss else NOTHING
            device, any_tier = _boundary(value.device, epoch), _boundary(value.any_tier, epoch)
            return f"device={device} any={any_tier} full={value.full_tokens} miss={why}"
        case Inserted():
            owned = f"taken={pieces_text(value.taken)} kept={pieces_text(value.kept)}"
            return f"frontier={_boundary(value.frontier, epoch)} {owned} {_effects(value.effects)}"
        case Locked():
            return f"at={_boundary(value.boundary, epoch)} pieces={pieces_text(value.pieces)}"
        case Evicted():
            counts = f"freed={value.freed} moving={value.moving} short={value.short}"
            return f"{counts} {_effects(value.effects)}"
        case Planned():
            job = _job(value.job) if value.job else NOTHING
            return f"job={job} lease={'yes' if value.lease else NOTHING} {_effects(value.effects)}"
        case Committed():
            outcome = f"landed={pieces_text(value.landed)} dropped={pieces_text(value.dropped)}"
            return f"{outcome} {_effects(value.effects)}"
        case Released():
            held = "+".join(map(_held, value.held)) or NOTHING
            return f"mode={value.mode} held={held} markers={value.markers} {_effects(value.effects)}"
    return repr(value)


def runs_text(numbers: Sequence[int]) -> str:
    """Numbers in their order; `first..last` where at least three follow each other, upward or downward."""
    parts: list[str] = []
    at = 0
    while at < len(numbers):
        count = max(_run(numbers, at, 1), _run(numbers, at, -1))
        if count < 3:
            parts.append(str(numbers[at]))
            at += 1
        else:
            parts.append(f"{numbers[at]}..{numbers[at + count - 1]}")
            at += count
    return ",".join(parts)


def _run(numbers: Sequence[int], start: int, step: int) -> int:
    """How many numbers from `start` on rise (or fall) by one."""
    at = start + 1
    while at < len(numbers) and numbers[at] == numbers[at - 1] + step:
        at += 1
    return at - start


def numbers_of(text: str) -> list[int]:
    """The numbers that `runs_text` wrote."""
    found: list[int] = []
    for part in text.split(",") if text else ():
        first, _, last = part.partition("..")
        begin, end = int(first), int(last or first)
        step = 1 if end >= begin else -1
        found += range(begin, end + step, step)
    return found


def pieces_text(pieces: Iterable[Piece]) -> str:
    return "+".join(map(_piece, pieces)) or NOTHING


def snapshot_digest(snapshot: Snapshot, page_tokens: int, epoch: int) -> str:
    """A short digest of everything observable; `epoch` is the one that the core was born with.

    Pages come parents first, so a page's length and its own tokens say where it hangs.
    """
    seed = hashlib.sha256()
    for page in snapshot.pages:
        seed.update(f"{page.namespace} {len(page.path)} ".encode())
        seed.update(np.array(page.path[-page_tokens:], dtype="<i4").tobytes())
        seed.update(f"{_holdings(page)}\n".encode())
    for marker in snapshot.markers:
        where = (
            f"{marker.generation} {marker.frontier} {marker.alternate} {marker.start_seq} {marker.finish_seq}"
        )
        seed.update(f"marker {marker.session} {where} {int(marker.left)}\n".encode())
    counts = f"leases {snapshot.leases} jobs {snapshot.jobs} epoch {snapshot.epoch - epoch}\n"
    seed.update(counts.encode())
    return seed.hexdigest()[: 2 * HASH_BYTES]


def page_text(page: PageView) -> str:
    """One page position as a line."""
    return f"page {page.namespace} {runs_text(page.path)} {_holdings(page)}\n"


def _holdings(page: PageView) -> str:
    slots = ",".join(f"{name}.{tier}:{slot}" for name, tier, slot in page.slots)
    locks = ",".join(f"{name}:{count}" for name, count in page.locks)
    references = ",".join(f"{name}:{count}" for name, count in page.references)
    return f"{slots} {locks} {references}"


def _boundary(boundary: Boundary, epoch: int) -> str:
    return f"{boundary.length}@{boundary.epoch - epoch}"


def _piece(piece: Piece) -> str:
    return f"{piece.component}[{piece.start},{piece.end}]={runs_text(piece.slots.tolist())}"


def _held(held: Held) -> str:
    return f"{held.component}.{held.tier}:{held.tokens}/{held.slots}"


def _job(job: Job) -> str:
    return f"{job.source}>{job.target}{':leaving' if job.leaving else ''}:{pieces_text(job.pieces)}"


def _effects(effects: Iterable[Effect]) -> str:
    """In order; frees between two moves gathered by pool and sorted."""
    words: list[str] = []
    frees: dict[str, list[int]] = {}

    def settle() -> None:
        words.extend(f"free({pool}:{runs_text(sorted(frees[pool]))})" for pool in sorted(frees))
        frees.clear()

    for effect in effects:
        if isinstance(effect, Free):
            pool = f"{effect.pool.component}.{effect.pool.tier}"
            frees.setdefault(pool, []).extend(effect.slots.tolist())
            continue
        settle()
        words.append(_step(effect))
    settle()
    return f"effects={';'.join(words) or NOTHING}"


def _step(effect: Move | Emit) -> str:
    return f"move({_job(effect.job)})" if isinstance(effect, Move) else _event(effect.event)


def _event(event: Event) -> str:
    """Kind, tier, component and count, and a digest of hashes (sorted where their order is open), parent and tokens."""
    hashes = event.hashes if event.kind is EventKind.STORED else sorted(event.hashes)
    tokens = b"".join(token.to_bytes(4, "little") for token in event.tokens)
    digest = hashlib.sha256(b"".join(hashes) + b"|" + (event.parent or b"") + b"|" + tokens)
    place = f"{event.tier}.{event.component}"
    return f"{event.kind}({place}:{len(event.hashes)}:{digest.hexdigest()[: 2 * HASH_BYTES]})"
