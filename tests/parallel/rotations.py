"""Run by two processes: DTensors rotated under any placement are, put together, the rotation of the whole, to the bit.

``torchrun --nproc-per-node 2 rotations.py [all]`` prints the number of cells and those that failed; without ``all`` of
one spec with positions of one row, and nothing is compiled.
"""

import itertools
import sys
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

import phasor
from leave import leave
from phasor.axes import Sections

BATCH, HEADS, KV_HEADS, TOKENS, WIDTH = 2, 4, 2, 17, 32  # tokens that no two ranks share evenly
SPECS = {
    "halves": phasor.RotarySpec(head_dim=WIDTH),
    "interleaved": phasor.RotarySpec(head_dim=WIDTH, interleaved=True),
    "partial": phasor.RotarySpec(head_dim=WIDTH, rotary_dim=8),
    "m-rope": phasor.RotarySpec(head_dim=WIDTH, axes=Sections((4, 6, 6))),
}
FEW = {"partial m-rope": phasor.RotarySpec(head_dim=WIDTH, rotary_dim=16, axes=Sections((2, 3, 3)))}
PLACEMENTS = {"batch": 0, "heads": 1, "tokens": 2, "whole": None}
MESH: Any = None


def place(axis: int | None) -> Any:
    return Replicate() if axis is None else Shard(axis)


def positions_of(spec: phasor.RotarySpec, batched: bool) -> Tensor:
    rows = torch.stack([torch.arange(TOKENS), torch.arange(TOKENS) * 3 + 5]) if batched else torch.arange(TOKENS)
    return rows if spec.axes.count == 1 else torch.stack([rows, rows + 2, rows * 2])


def check(
    name: str, call: Callable[[Any, Any], tuple[Any, Any]], whole: tuple[Tensor, Tensor], axis: int | None
) -> None:
    """Forward and backward of what is placed, beside those of the whole."""
    global FAILED
    placed = [distribute_tensor(x.detach(), MESH, [place(axis)]).requires_grad_() for x in whole]
    plain = [x.detach().clone().requires_grad_() for x in whole]
    expected, got = call(*plain), call(*placed)
    torch.manual_seed(7)
    grads = [torch.randn_like(y) for y in expected]
    torch.autograd.backward(expected, grads)
    torch.autograd.backward(got, [distribute_tensor(grad, MESH, [place(axis)]) for grad in grads])
    for y, z, x, d in zip(expected, got, plain, placed, strict=True):
        right = isinstance(z, DTensor) and z.placements == d.placements
        right = right and torch.equal(z.full_tensor(), y) and torch.equal(d.grad.full_tensor(), x.grad)
        if not right:
            FAILED.append(name)


FAILED: list[str] = []


def cells(q: Tensor, k: Tensor, everything: bool) -> int:
    count, rows = 0, (False, True) if everything else (False,)
    specs = SPECS if everything else FEW
    for (of, spec), (where, axis), batched in itertools.product(specs.items(), PLACEMENTS.items(), rows):
        positions = positions_of(spec, batched)
        cut = (
            {2: positions.ndim - 1, 0: positions.ndim - 2 if batched else None}.get(axis) if axis is not None else None
        )
        placed = distribute_tensor(positions, MESH, [place(cut)])
        rotation = phasor.Rotation.at(spec, positions)
        table = {2: rotation.cos.ndim - 2, 0: 0 if batched else None}.get(axis) if axis is not None else None
        tables = rotation._mapped(lambda t, table=table: distribute_tensor(t, MESH, [place(table)]))

        def of_positions(a: Any, b: Any, at: Any = (positions, placed), spec: Any = spec) -> tuple[Any, Any]:
            return phasor.rotate(a, b, at[isinstance(a, DTensor)], spec)

        def of_tables(a: Any, b: Any, r: Any = (rotation, tables)) -> tuple[Any, Any]:
            return phasor.apply_rotary_qk(a, b, r[isinstance(a, DTensor)])

        ways = {
            "rotate": lambda a, b, p=positions, s=spec: phasor.rotate(a, b, p, s),
            "rotate, positions placed": of_positions,
            "apply_rotary_qk": lambda a, b, r=rotation: phasor.apply_rotary_qk(a, b, r),
            "apply_rotary_qk, tables placed": of_tables,
            "Rotary": lambda a, b, p=positions, s=spec: phasor.Rotary(s)(a, b, p),
        }
        if everything and of == "halves" and not batched:
            ways["compiled"] = torch.compile(ways["rotate"], backend="aot_eager", fullgraph=True, dynamic=False)
        for how, call in ways.items():
            check(f"{of}, {where}, batched {batched}, {how}", call, (q, k), axis)
            count += 1
    return count


def flat_heads(q: Tensor) -> int:
    """As a projection of tensor parallel gives them: heads and channels in one axis, cut between heads."""
    flat, spec = q.transpose(1, 2).flatten(-2), SPECS["halves"]
    rotation = phasor.Rotation.at(spec, torch.arange(TOKENS))
    for axis in (0, 1, 2):

        def call(a: Any, b: Any) -> tuple[Any, Any]:
            return phasor.apply_rotary_qk(a, b, rotation, tensor_format="bshd", num_heads=HEADS)

        check(f"flat, {axis}", call, (flat, flat), axis)
    return 3


def norms(q: Tensor, k: Tensor) -> int:
    """The norm's weights, whole on each rank, have the gradient of all tokens."""
    rotation = phasor.Rotation.at(SPECS["halves"], torch.arange(TOKENS))
    for where, axis in PLACEMENTS.items():
        plain = [torch.linspace(0.5, 1.5, WIDTH).requires_grad_() for _ in "qk"]
        placed = [distribute_tensor(w.detach(), MESH, [Replicate()]).requires_grad_() for w in plain]

        def call(a: Any, b: Any, weights: Any = (plain, placed)) -> tuple[Any, Any]:
            return phasor.apply_qk_norm_rotary(a, b, rotation, *weights[isinstance(a, DTensor)])

        check(f"norm, {where}", call, (q, k), axis)
        for w, d in zip(plain, placed, strict=True):
            if not torch.allclose(d.grad.full_tensor(), w.grad, rtol=1e-5, atol=1e-6):  # sums in another order
                FAILED.append(f"gradient of the norm's weight, {where}")
    return len(PLACEMENTS)


def refusals(q: Tensor) -> int:
    rotation = phasor.Rotation.at(SPECS["halves"], torch.arange(TOKENS))
    spread = distribute_tensor(q, MESH, [Shard(3)])
    odd = distribute_tensor(q.transpose(1, 2).flatten(-2)[..., : 3 * WIDTH].contiguous(), MESH, [Shard(2)])
    whole = distribute_tensor(q, MESH, [Shard(2)])
    cases: list[tuple[Callable[[], Any], str]] = [
        (lambda: phasor.apply_rotary(spread, rotation), "x must not be sharded along its channels, got S(3)"),
        (lambda: phasor.rotate(spread, None, torch.arange(TOKENS), SPECS["halves"]), "q must not be sharded along its"),
        (lambda: phasor.apply_rotary(odd, rotation, tensor_format="bshd", num_heads=3), "sharded between heads of 32"),
        (lambda: phasor.apply_rotary(whole, rotation, out=torch.empty_like(q)), "out must be a DTensor placed as x is"),
    ]
    for call, message in cases:
        try:
            call()
            FAILED.append(f"not refused: {message}")
        except ValueError as error:
            if message not in str(error) or "\n" in str(error):
                FAILED.append(f"{message}: {error}")
    target = distribute_tensor(torch.zeros_like(q), MESH, [Shard(2)])
    with torch.no_grad():
        if phasor.apply_rotary(whole, rotation, out=target) is not target:
            FAILED.append("out is not returned")
        if not torch.equal(target.full_tensor(), phasor.apply_rotary(q, rotation)):
            FAILED.append("out")
    return len(cases) + 1


def shards_of_a_mesh() -> int:
    """What `positions.shard` cuts for this rank comes back from all of them."""
    from phasor.positions import gather, shard

    positions = torch.arange(24).expand(2, 24) + 7
    for scheme in ("contiguous", "head-tail", "striped"):
        if not torch.equal(gather(shard(positions, MESH, scheme), scheme, mesh=MESH), positions):
            FAILED.append(f"shard and gather, {scheme}")
    return 3


def main() -> None:
    global MESH
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    MESH = init_device_mesh("cpu", (dist.get_world_size(),))
    torch.manual_seed(0)
    q, k = torch.randn(BATCH, HEADS, TOKENS, WIDTH), torch.randn(BATCH, KV_HEADS, TOKENS, WIDTH)
    count = cells(q, k, "all" in sys.argv) + flat_heads(q) + norms(q, k) + refusals(q) + shards_of_a_mesh()
    if dist.get_rank() == 0:
        print(f"{count} cells, failed: {sorted(set(FAILED))}", flush=True)
    leave(bool(FAILED))


if __name__ == "__main__":
    main()
