"""The clock of a GPU: CUDA events on the current stream."""

from collections.abc import Callable
from typing import Any

import torch

from ..measure import Clock

LEAD = 6_000_000  # cycles the device waits before a timed run, some milliseconds: time to queue all of its launches


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
        device = torch.cuda.get_device_properties(self.device)
        return {
            "name": device.name,
            "memory_gib": round(device.total_memory / 2**30, 1),
            "multiprocessors": device.multi_processor_count,
            "capability": f"{device.major}.{device.minor}",
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
