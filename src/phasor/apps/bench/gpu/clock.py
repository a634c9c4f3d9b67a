"""The clock of a device: all that a measurement needs of it, so that the rest runs on any machine."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import torch

LEAD = 6_000_000  # cycles the device waits before a timed run, some milliseconds: time to queue all of its launches


class Clock(ABC):
    """``now()`` gives instants whose difference is in seconds of the device's own time."""

    device: str

    @abstractmethod
    def about(self) -> dict[str, Any]:
        """What the device is: name, memory, versions."""

    @abstractmethod
    def now(self) -> Any:
        """This moment in the order of the device's work."""

    @abstractmethod
    def before(self) -> None:
        """Ahead of every timed run: keep the device waiting until the host has queued what is timed."""

    @abstractmethod
    def captured(self, call: Callable[[], Any], times: int) -> Callable[[], Any]:
        """``call``, ``times`` in a row, as one CUDA graph: no host is in it, and its launch is paid once."""


class CudaClock(Clock):
    """CUDA events on the current stream. Raises ``ValueError`` where torch has no such GPU."""

    def __init__(self, device: str = "cuda") -> None:
        if torch.version.cuda is None and torch.version.hip is None:
            raise ValueError(f"--device {device} needs a GPU, and torch {torch.__version__} was built for none")
        if not torch.cuda.is_available():
            raise ValueError(f"--device {device} needs a GPU, and torch finds none on this machine")
        index = torch.device(device).index or 0
        if index >= torch.cuda.device_count():
            raise ValueError(f"--device must be cuda:0 to cuda:{torch.cuda.device_count() - 1}, got {device!r}")
        torch.cuda.set_device(index)
        self.device = f"cuda:{index}"

    def about(self) -> dict[str, Any]:
        found = torch.cuda.get_device_properties(self.device)
        return {
            "name": found.name,
            "memory_gib": round(found.total_memory / 2**30, 1),
            "multiprocessors": found.multi_processor_count,
            "capability": f"{found.major}.{found.minor}",
            "cuda": torch.version.cuda or f"hip {torch.version.hip}",
        }

    def now(self) -> "Instant":
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return Instant(event)

    def before(self) -> None:
        torch.cuda.synchronize()
        torch.cuda._sleep(LEAD)

    def captured(self, call: Callable[[], Any], times: int) -> Callable[[], Any]:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):  # kernels are compiled and memory is taken here, not inside the graph
            for _ in range(3):
                call()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(times):
                call()
        return graph.replay


class Instant:
    """An event; the difference of two waits for both."""

    def __init__(self, event: Any) -> None:
        self.event = event

    def __sub__(self, earlier: "Instant") -> float:
        self.event.synchronize()
        seconds: float = earlier.event.elapsed_time(self.event) / 1e3
        return seconds
