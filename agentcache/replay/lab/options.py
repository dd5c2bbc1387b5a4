"""What is replayed how, as it is asked for: the options of `agentcache replay` and `agentcache bench policies`."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from agentcache.engine.scheduler import PrefillOrder
from agentcache.errors import CacheError, Kind
from agentcache.replay.lab.cells import Cell, Hints, Policy
from agentcache.replay.lab.parts import Model
from agentcache.replay.lab.replaying import room_pages
from agentcache.replay.lab.scripts import usual_live
from agentcache.replay.lab.selecting import Selection
from agentcache.replay.lab.serving import Machine
from agentcache.replay.lab.table import Arm
from agentcache.replay.paged import Workload

ORDERS = (Policy.LRU, Policy.SESSION, Policy.ERT)
ROOMS = (4.0, 12.0)
ROOMS_OF_REQUESTS = (0.01, 0.1)
"""Of a stream of single requests, as shares of these."""

USUAL_SELECTION, FULL_ATTENTION = Selection(), Model()
NOT_TOLD = ("processes", "as_json")
"""What changes no row."""


@dataclass(frozen=True, slots=True)
class Rooms:
    """In mean session peaks; 0: no such tier. No capacities: the usual of the trace."""

    capacities: Sequence[float] = ()
    host: float = 0.0
    external: float = 0.0


@dataclass(frozen=True, slots=True)
class Clients:
    """What they tell."""

    close: bool = True
    hints: str = Hints.NONE.value
    superseded: bool = False


@dataclass(frozen=True, slots=True)
class LabOptions:
    """What is replayed how; each field, here or in a part, is a flag of `replay.flags`.

    No `policies`, `live` None: the usual. Errors: BAD_REQUEST for what would have no effect.
    """

    policies: Sequence[str] = ()
    rooms: Rooms = Rooms()
    live: float | None = None
    queue: bool = False
    scheduler: str = ""
    clients: Clients = Clients()
    seeds: int = 3
    selection: Selection = USUAL_SELECTION
    model: Model = FULL_ATTENTION
    processes: int = 0
    as_json: bool = False

    def __post_init__(self) -> None:
        if self.scheduler and not self.queue:
            raise CacheError(Kind.BAD_REQUEST, "--scheduler says who begins next in a queue: add --queue")
        self.model.components()

    @classmethod
    def of(cls, **said: Any) -> "LabOptions":
        """From what was said on a command line, by the names of flags."""
        parts = {
            name: kind(**{one: said.pop(one) for one in _names(kind) & said.keys()})
            for name, kind in PARTS.items()
        }
        return cls(**said, **parts)

    def told(self) -> dict[str, Any]:
        """What was asked for, flag by flag, for a result in JSON; what a trace decides is in its rows."""
        flat: dict[str, Any] = {}
        for name, value in asdict(self).items():
            flat |= value if name in PARTS else {name: value}
        return {name: value for name, value in flat.items() if name not in NOT_TOLD}


PARTS: Mapping[str, Any] = {"rooms": Rooms, "clients": Clients, "selection": Selection, "model": Model}


def flag_names() -> frozenset[str]:
    """What `LabOptions.of` knows."""
    return frozenset().union(_names(LabOptions) - PARTS.keys(), *map(_names, PARTS.values()))


def _names(kind: Any) -> frozenset[str]:
    return frozenset(field.name for field in fields(kind))


def conditions(workload: Workload, options: LabOptions) -> list[Cell]:
    """The rooms of a table, and what they have in common. Errors: BAD_REQUEST for a room that is none."""
    turns = PrefillOrder(options.scheduler) if options.scheduler else PrefillOrder.FCFS
    machine = Machine(queue=options.queue, turns=turns)
    live = usual_live(workload, machine, options.live)
    rooms = options.rooms
    parts = options.model.components()
    alike = Cell(Policy.LRU, 0, rooms.host, live, machine, external=rooms.external, parts=parts)
    cells = [replace(alike, device=room) for room in rooms.capacities or usual_rooms(workload)]
    for room in (*(cell.device for cell in cells), rooms.host, rooms.external):
        room_pages(workload, room)
    return cells


def usual_rooms(workload: Workload) -> Sequence[float]:
    """Two rooms in which orders differ."""
    if not workload.requests:
        return ROOMS
    shares = (share * len(workload.sessions) for share in ROOMS_OF_REQUESTS)
    return [max(least, round(room)) for least, room in zip(ROOMS, shares, strict=True)]


def arms(options: LabOptions) -> list[Arm]:
    """The orders, each with what clients tell it."""
    clients = options.clients
    said = Arm(Policy.LRU, clients.close, Hints(clients.hints), clients.superseded)
    return [replace(said, policy=Policy(name)) for name in options.policies or ORDERS]
