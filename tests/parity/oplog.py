"""Operations as lines of text: what a random history is made of, what a difference is told with."""

from dataclasses import dataclass

from tests.parity.shapes import Shape, words_of


@dataclass(frozen=True, slots=True)
class Op:
    """One operation at `elapsed` nanoseconds after the one before; `words` are its arguments by name.

    Boundaries are `<op>.d`, `.a` or `.f` (the device, any-tier or frontier boundary that this op answered, cut to
    `/<tokens>` where said), leases are the op that locked, jobs `<op>.<n>` the n-th Move of that op.
    """

    number: int
    elapsed: int
    name: str
    words: dict[str, str]

    def __str__(self) -> str:
        words = " ".join(f"{name}={value}" for name, value in self.words.items())
        return f"{self.number} {self.elapsed:+d} {self.name} {words}".rstrip()

    @classmethod
    def parse(cls, line: str) -> "Op":
        number, elapsed, name, *_ = line.split()
        return cls(int(number), int(elapsed), name, words_of(line))


@dataclass(frozen=True, slots=True)
class History:
    """A shape and what happened to it."""

    shape: Shape
    ops: tuple[Op, ...]

    def __str__(self) -> str:
        return "\n".join([f"shape {self.shape}", *map(str, self.ops)])

    @classmethod
    def parse(cls, text: str) -> "History":
        """What `str` wrote; blank lines and lines that begin with # are passed over."""
        lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
        return cls(Shape.parse(lines[0]), tuple(map(Op.parse, lines[1:])))
