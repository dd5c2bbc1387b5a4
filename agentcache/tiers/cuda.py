"""The copy stream of a CUDA device, and the lane on it."""

# torch has no types for streams and events.
# mypy: disable-error-code="no-untyped-call"

from collections.abc import Callable

import torch

from agentcache.tiers.lanes import Step, StreamLane, nobody


class CudaStream:
    """A stream beside the one that the engine computes on. Errors: RuntimeError without such a device."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)

    def follow(self) -> None:
        """Copies see what was computed, and do not overwrite what is still being read."""
        self._stream.wait_stream(torch.cuda.current_stream(self._device))

    def submit(self, step: Step) -> torch.cuda.Event:
        with torch.cuda.stream(self._stream):
            step()
        mark = torch.cuda.Event(blocking=True)  # whoever waits for it sleeps
        mark.record(self._stream)
        return mark

    def synchronize(self) -> None:
        self._stream.synchronize()


class CudaLane(StreamLane):
    """Copies on a stream of its own, beside the computing. Host memory must be pinned, or they are not beside it."""

    def __init__(self, device: str | torch.device, on_ended: Callable[[], None] = nobody) -> None:
        super().__init__(CudaStream(torch.device(device)), on_ended)
