"""A GPU: its clock (CUDA events), the libraries beside phasor and a copy, and the cases."""

import time
from collections.abc import Callable
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch

from phasor import rotate
from phasor.axes import Axial

from .measure import COPY, Calls, Case, Times, Work, compared, medians, missing, race
from .result import Goal, Ratio
from .ways import OURS, backward, copies, model_tables, transformers

LEAD = 40_000_000  # cycles the device waits before a timed run, some 20 milliseconds: time to queue all of its launches
GRAPH = 20  # decoded steps in one CUDA graph: no host is in it, and its launch is paid once
ALLOWED = 2e-6  # seconds that a decoded step may take more than a copy
SHARE = Goal("at most", 1.11)  # nine tenths of the rate of a copy
COPIED = 2**30  # bytes, of which the rate of a copy is taken


class CudaClock:
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
        cuda = torch.version.cuda or f"hip {torch.version.hip}"
        return {"name": device.name, "capability": f"{device.major}.{device.minor}", "cuda": cuda}

    def now(self) -> "Instant":
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return Instant(event)

    def before(self) -> None:
        """Ahead of every timed run: the device waits until the host has queued what is timed."""
        torch.cuda.synchronize()
        torch.cuda._sleep(LEAD)

    def captured(self, call: Callable[[], Any]) -> Callable[[], Any]:
        """``call``, `GRAPH` times in a row, as one CUDA graph."""
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):  # kernels are compiled and memory is taken here, not inside the graph
            for _ in range(3):
                call()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(GRAPH):
                call()
        return graph.replay


class HostClock:
    """Where there is no GPU: the clock on the wall, for kernels that Triton interprets, to see that all of it runs."""

    device = "cpu"

    def about(self) -> dict[str, Any]:
        return {"name": "none: interpreted", "capability": "", "cuda": ""}

    def now(self) -> float:
        return time.perf_counter()

    def before(self) -> None:
        """Nothing waits in a queue."""

    def captured(self, call: Callable[[], Any]) -> Callable[[], Any]:
        return call


class Instant:
    """An event; the difference of two waits for both."""

    def __init__(self, event: Any) -> None:
        self.event = event

    def __sub__(self, earlier: "Instant") -> float:
        self.event.synchronize()
        seconds: float = earlier.event.elapsed_time(self.event) / 1e3
        return seconds


def copy_rate(clock: Any, quick: bool = False) -> float:
    """Terabytes per second that a copy of a large tensor reads and writes: the limit of all that touches bytes once."""
    size = 2**16 if quick else COPIED
    source = torch.zeros(size, dtype=torch.uint8, device=clock.device)
    call = partial(torch.empty_like(source).copy_, source)
    times = race({"copy": call}, rounds=3 if quick else 20, clock=clock.now, before=clock.before)
    return 2 * size / min(times["copy"]) / 1e12


def flash_attn(work: Work) -> Callable[[], Any]:
    """flash-attn 2.8, `flash_attn/layers/rotary.py`: tokens before heads; a decoded token has a row of the table."""
    from flash_attn.layers.rotary import apply_rotary_emb  # type: ignore[import-not-found]

    cos, sin = (t.flatten(0, -2).to(work.dtype) for t in (work.rotation.cos, work.rotation.sin))
    decoding = work.shape[3] == 1
    offsets: Any = torch.arange(len(cos), dtype=torch.int32, device=work.device) if decoding else 0
    call = partial(apply_rotary_emb, cos=cos, sin=sin, interleaved=work.interleaved, seqlen_offsets=offsets)
    q, k = (x.transpose(1, 2) for x in work.pair)
    return lambda: (call(q).transpose(1, 2), call(k).transpose(1, 2))


def vllm(work: Work) -> Callable[[], Any]:
    """vLLM 0.6 and newer, `vllm/_custom_ops.py`: flat heads, in place, a row of the table for each token."""
    from vllm._custom_ops import rotary_embedding  # type: ignore[import-not-found]

    q, k = (x.detach().transpose(1, 2).flatten(0, 1).flatten(1).clone() for x in work.pair)
    cos, sin = (t.flatten(0, -2) for t in (work.rotation.cos, work.rotation.sin))
    rows = torch.arange(len(q), device=work.device) % len(cos)
    table, width = torch.cat((cos, sin), -1).to(work.dtype), work.shape[-1]
    batch, *_, tokens, _ = work.shape
    heads = tuple(x.view(batch, tokens, -1, width).transpose(1, 2) for x in (q, k))
    return lambda: (rotary_embedding(rows, q, k, width, table, not work.interleaved), heads)[1]


def liger(work: Work) -> Callable[[], Any]:
    """Liger-Kernel 0.8, `liger_kernel/transformers/rope.py`: in place, tables of the heads' width, heads as projections
    give them."""
    from liger_kernel.transformers.rope import liger_rotary_pos_emb  # type: ignore[import-not-found]

    if work.interleaved:
        raise ValueError("it rotates halves alone")
    q, k = (x.detach().transpose(1, 2).clone(memory_format=torch.contiguous_format) for x in work.pair)
    q, k = q.transpose(1, 2), k.transpose(1, 2)
    return partial(liger_rotary_pos_emb, q, k, *model_tables(work))


def transformer_engine(work: Work) -> Callable[[], Any]:
    """Transformer Engine 2, `transformer_engine/pytorch/attention/rope.py`: angles of the heads' width in float32."""
    from transformer_engine.pytorch.attention.rope import apply_rotary_pos_emb  # type: ignore[import-not-found]

    cos, sin = model_tables(work)
    if len(cos) > 1:
        raise ValueError("it has one row of angles for all sequences")
    angles = torch.atan2(sin.float(), cos.float())[0, :, None, None]
    call = partial(apply_rotary_pos_emb, freqs=angles, tensor_format="bshd", interleaved=work.interleaved, fused=True)
    q, k = (x.transpose(1, 2) for x in work.pair)
    return lambda: (call(q).transpose(1, 2), call(k).transpose(1, 2))


def compiled(work: Work) -> Callable[[], Any]:
    call: Any = torch.compile(partial(rotate, kernel="reference"), fullgraph=True)
    return lambda: call(*work.pair, work.positions, work.spec)


# name -> the module that must be there, its call
FORWARD = ("vllm", "liger")  # in place: what the gradient needs is gone
ALIKE = 0.02  # of the largest number: the rotation of a library in bfloat16 is no further off
LIBRARIES: dict[str, tuple[str, Callable[[Work], Callable[[], Any]]]] = {
    "transformers": ("transformers", transformers),
    "flash-attn": ("flash_attn", flash_attn),
    "vllm": ("vllm", vllm),
    "liger": ("liger_kernel", liger),
    "transformer-engine": ("transformer_engine", transformer_engine),
    "torch.compile": ("torch", compiled),
}


def versions() -> dict[str, str]:
    """Of the libraries that are here."""
    found = {}
    for name, (module, _) in LIBRARIES.items():
        try:
            found[name] = version(module.replace("_", "-"))
        except PackageNotFoundError:
            continue
    return found


def calls(work: Work, clock: Any) -> tuple[Calls, dict[str, str]]:
    """phasor's call, the copy, and those of the libraries that are here; and why the others fail.

    What phasor or the copy raises is passed on; what another library raises, and that it computes something else, is
    reported, and the others go on.
    """
    case, copy = work.case, copies(work)
    found: dict[str, Callable[[], Any]] = {"phasor": OURS[case.call](work)}
    found[COPY] = (lambda: (copy(), copy())) if case.gradient else copy
    failures: dict[str, str] = {}
    for name, (module, make) in LIBRARIES.items():
        if missing(module) or (case.gradient and name in FORWARD):
            continue
        try:
            call = make(work)
            check_alike(call(), rotate(*work.pair, work.positions, work.spec, kernel=work.kernel))
            found[name] = backward(call, work.pair) if case.gradient else call
            found[name]()
        except Exception as error:
            failures[name] = " ".join(f"{type(error).__name__}: {error}".split())[:200]
            found.pop(name, None)
    return ({name: clock.captured(call) for name, call in found.items()} if _decoding(case) else found), failures


def check_alike(theirs: Any, ours: Any) -> None:
    """``ValueError`` where a library does not rotate as phasor does: its time would be that of something else."""
    for x, y in zip(theirs, ours, strict=True):
        if (off := (x.detach() - y.detach()).abs().max().item()) > ALIKE * y.detach().abs().max().item():
            raise ValueError(f"it computes something else: {off:.2g} apart")


def _decoding(case: Case) -> bool:
    return case.shape[3] == 1


def ratios(case: Case, dtype: str, times: Times) -> list[Ratio]:
    """phasor in units of the copy; what a decoded step takes more, in units of what it may; the libraries in units of
    phasor."""
    if _decoding(case):
        times = {name: [t / GRAPH for t in spent] for name, spent in times.items()}
    found = [compared(times, "phasor", COPY, case.goals.get(dtype))]
    if _decoding(case):
        more = medians({"": [(a - b) / ALLOWED for a, b in zip(times["phasor"], times[COPY], strict=True)]})[""]
        sizes = more * ALLOWED * 1e6, ALLOWED * 1e6
        found.append(Ratio("phasor - copy_", "2 us", *sizes, more, None, "", Goal("at most", 1.0)))
    goal = Goal("at least", 1.0) if case.goals else None
    return found + [compared(times, name, "phasor", goal) for name in times if name not in ("phasor", COPY)]


_HALVES: Any = partial(Case, unit=COPY, dtypes=("bfloat16",), layouts=("halves",))
CASES: tuple[Case, ...] = (
    *(
        _HALVES(
            f"decode-{n}", f"{n} decoded token{', ' if n == 1 else 's, each at a position of its own, '}q [{n}, 32, 1, "
            f"128] and k [{n}, 8, 1, 128], {GRAPH} calls in one CUDA graph", (n, 32, 8, 1, 128), "rotate",
        )
        for n in (1, 8, 64, 256)
    ),
    Case(
        "prefill-8192", "`rotate` from positions to new outputs, q [1, 32, 8192, 128] and k [1, 8, 8192, 128]",
        (1, 32, 8, 8192, 128), "rotate", COPY, {"bfloat16": SHARE, "float32": SHARE}, dtypes=("float32", "bfloat16"),
        repeat=10,
    ),
    _HALVES(
        "training-8192", "forward and backward of the same, in units of two copies",
        (1, 32, 8, 8192, 128), "rotate and back", goals={"bfloat16": SHARE}, gradient=True, repeat=5,
    ),
    _HALVES(
        "vision", "8 images of 64 x 64 patches by two axes, q and k [8, 16, 4096, 80]",
        (8, 16, 16, 4096, 80), "rotate", spec={"axes": Axial((20, 20)), "base": 10_000.0}, repeat=10,
    ),
)  # fmt: skip
