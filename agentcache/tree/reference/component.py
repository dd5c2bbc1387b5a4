"""The component contract of the reference core, and its three users.

A component answers questions about positions; it knows neither tree nor pools. FULL is just the component that the
others need. A rule that is none of path, window and checkpoint is a subclass handed to `ReferenceCore`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable

from agentcache.types import (
    Checkpoint,
    ComponentName,
    ComponentSpec,
    MissReason,
    Path,
    Region,
    Window,
)

Validator = Callable[[int, bool], bool]
"""Fed every page of a path from the root: (end of the page in tokens, is the data there resident?) -> does the
component accept a boundary at that end?"""


class TreeComponent(ABC):
    """One kind of reusable state.

    Caller       feeds a validator the pages of a path in order, refused ones too: all, or those after `reads_from`
    Implementer  keeps no reference to tree or cache; answers depend on the arguments alone
    """

    refusal = MissReason.CUSTOM

    def __init__(self, spec: ComponentSpec, page_tokens: int) -> None:
        self.spec = spec
        self.name = spec.name
        self.page_tokens = page_tokens

    @property
    def is_state(self) -> bool:
        """Whether a slot holds one state at a position rather than a page of tokens."""
        return isinstance(self.spec.rule, Checkpoint)

    def region(self, boundary: int) -> Region:
        """What a request that resumes at `boundary` needs: tokens `[start, end)`, or a state when start == end."""
        return self.spec.rule.region(boundary, self.page_tokens)

    @abstractmethod
    def accepts(self) -> Validator:
        """A fresh validator for one walk from the root."""

    @abstractmethod
    def can_lie_at(self, end: int) -> bool:
        """Whether the component may have data for the page that ends at `end`."""

    def reads_from(self, boundary: int) -> int:
        """A validator fed only the pages that end after this position answers for `boundary` as one fed them all."""
        return 0

    def in_one_piece(self, upper_end: int, grid: int) -> bool:
        """Whether the page below position `upper_end` is evicted together with the page above it."""
        return False

    def cascade(self, others: Iterable[ComponentSpec], demoted: bool) -> tuple[ComponentName, ...]:
        """Which aux components lose, in the same range, what this one's eviction makes useless."""
        return ()


class FullComponent(TreeComponent):
    """Path reuse: every page before the boundary."""

    refusal = MissReason.NOT_CACHED

    def accepts(self) -> Validator:
        whole = True

        def accept(end: int, resident: bool) -> bool:  # noqa: ARG001
            nonlocal whole
            whole = whole and resident
            return whole

        return accept

    def can_lie_at(self, end: int) -> bool:
        return end > 0

    def cascade(self, others: Iterable[ComponentSpec], demoted: bool) -> tuple[ComponentName, ...]:
        return tuple(spec.name for spec in others)


class WindowComponent(TreeComponent):
    """Window reuse: the pages of the trailing window; older ones may be tombstones."""

    refusal = MissReason.WINDOW_GAP

    def accepts(self) -> Validator:
        run_start = 0

        def accept(end: int, resident: bool) -> bool:
            nonlocal run_start
            if not resident:
                run_start = end
            return self.region(end).start >= run_start

        return accept

    def can_lie_at(self, end: int) -> bool:
        return end > 0

    def reads_from(self, boundary: int) -> int:
        return self.region(boundary).start

    def in_one_piece(self, upper_end: int, grid: int) -> bool:
        return upper_end % grid != 0

    def cascade(self, others: Iterable[ComponentSpec], demoted: bool) -> tuple[ComponentName, ...]:
        mine = self.spec.rule
        assert isinstance(mine, Window)
        return tuple(
            spec.name
            for spec in others
            if (isinstance(spec.rule, Window) and spec.rule.tokens <= mine.tokens)
            or (isinstance(spec.rule, Checkpoint) and not demoted)
        )


class CheckpointComponent(TreeComponent):
    """Checkpoint reuse: the state at exactly the boundary."""

    refusal = MissReason.NO_CHECKPOINT

    def accepts(self) -> Validator:
        return lambda end, resident: resident and self.can_lie_at(end)

    def reads_from(self, boundary: int) -> int:
        return boundary - self.page_tokens

    def can_lie_at(self, end: int) -> bool:
        rule = self.spec.rule
        assert isinstance(rule, Checkpoint)
        return end > 0 and end % rule.grid_tokens == 0


def component_for(spec: ComponentSpec, page_tokens: int) -> TreeComponent:
    """The component that a spec's rule names."""
    kinds: dict[type, type[TreeComponent]] = {
        Path: FullComponent,
        Window: WindowComponent,
        Checkpoint: CheckpointComponent,
    }
    return kinds[type(spec.rule)](spec, page_tokens)
