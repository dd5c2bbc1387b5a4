"""Offers with a fault that must be refused."""

import dataclasses

from agentcache.types import FULL, ComponentName, Insert, Piece, TierName
from tests.builders import slots_of

FAULTS = (
    "owned",  # a slot that the tree (or somebody else) has
    "twice",  # one slot at two places
    "few",  # a slot too little
    "negative",
    "elsewhere",  # a tier without residency
    "listed",  # FULL among the pieces
    "outside",  # a piece beyond the key
    "unaligned",  # half a page
    "again",  # one piece given twice
    "unknown",  # no such component
)


def spoilt(offer: Insert, fault: str, owned: list[int], whole: Piece) -> Insert:
    """An offer with one of `FAULTS`; `whole` is its FULL piece. Where that is too short, it may stay as it was."""
    slots, stray = offer.full.tolist(), slots_of([2**20])
    match fault:
        case "owned":
            return dataclasses.replace(offer, full=slots_of([*owned[:1], *slots[len(owned[:1]) :]]))
        case "twice":
            return dataclasses.replace(offer, full=slots_of([*slots[:-1], *slots[:1]]))
        case "few":
            return dataclasses.replace(offer, full=slots_of(slots[1:]))
        case "negative":
            return dataclasses.replace(offer, full=slots_of([*slots[:-1], -1]))
        case "elsewhere":
            return dataclasses.replace(offer, tier=TierName.EXTERNAL)
        case "listed":
            more = Piece(FULL, whole.start, whole.end, offer.full)
        case "again" if offer.pieces:
            more = offer.pieces[-1]
        case "unknown":
            more = Piece(ComponentName("OTHER"), whole.start, whole.end, offer.full)
        case "unaligned":
            more = Piece(_last(offer), whole.start, whole.end + 1, stray)
        case _:
            more = Piece(_last(offer), whole.end + (whole.end - whole.start), 3 * whole.end, stray)
    return dataclasses.replace(offer, pieces=(*offer.pieces, more))


def _last(offer: Insert) -> ComponentName:
    return offer.pieces[-1].component if offer.pieces else FULL
