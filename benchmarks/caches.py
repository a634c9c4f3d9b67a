"""What it is worth to move keys and to keep a ledger of them: numbers of docs/caches.md.

    python benchmarks/caches.py histories|lengths|chunk

``lengths`` and ``chunk`` need stories260K (PHASOR_TEST_DATA names the folder that has it). races.py has what it costs.
"""

import os
import statistics
import sys
import tempfile
from pathlib import Path

import torch

import phasor
from phasor.rotary.scaling import YaRN

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))


def histories() -> None:
    """1,000 random histories of 24 operations in bfloat16, and 100 moves in place without a ledger."""
    from caches.histories import history

    for keep in ("raw", "residual"):
        ratios = []
        for seed in range(1000):
            _, one = history(seed, keep)
            for _ in range(24):
                one.step()
            mine, fresh = one.errors()
            ratios.append(mine / fresh)
        print(
            f"{keep}: error over that of a fresh rotation, median {statistics.median(ratios):.3f}, most {max(ratios):.3f}"  # noqa: E501
        )
    spec, at = phasor.RotarySpec(head_dim=128, base=5e5), torch.arange(256)
    raw = torch.randn(1, 2, 256, 128).bfloat16()
    truth = phasor.apply_rotary(raw.double(), phasor.Rotation.at(spec, at, dtype=torch.float64))
    kept = phasor.caches.KeyLedger(spec)
    kept.append(raw, at + 100_000)
    k = kept.keys.clone()
    for _ in range(100):
        phasor.shift(k, -1000, spec, out=k)
        kept.shift(-1000)
    fresh = phasor.apply_rotary(raw, phasor.Rotation.at(spec, at))
    off = [float((x.double() - truth).norm() / truth.norm()) for x in (k, kept.keys, fresh)]
    print("100 moves: in place {:.1e}, in a ledger {:.1e}; fresh {:.1e}".format(*off))
    yarn = spec.replace(scaling=YaRN(4.0, 32768))
    print(f"YaRN(4): a mover with the factor in both tables scales keys by {yarn.attention_factor() ** 2:.4f}")


def model_folder() -> Path:
    from stories import converted

    data = os.environ.get("PHASOR_TEST_DATA") or sys.exit("PHASOR_TEST_DATA must name the folder with stories260K")
    return converted(Path(data), Path(tempfile.mkdtemp()) / "hf")


@torch.no_grad()
def lengths() -> None:
    """stories260K with dynamic NTK and LongRoPE from 128 on: 400 tokens, one by one."""
    from stories import SCALINGS, loss, stories, token_by_token, told

    folder = model_folder()
    ids = told(folder)
    for scaling in SCALINGS:
        full = stories(folder, scaling)(ids).logits
        own, model = token_by_token(stories(folder, scaling), ids), stories(folder, scaling)
        phasor.patch(model, seq_len=ids.shape[1])
        ours = token_by_token(model, ids)
        print(f"{scaling}: full {loss(full, ids):.4f}, cached {loss(own, ids):.4f}, frozen {loss(ours, ids):.4f}")
        short = torch.cat((ids[:1, :60], torch.zeros_like(ids[:1, 60:])), dim=1)
        both, alone = torch.cat((short, ids[1:])), stories(folder, scaling)(ids[:1, :60]).logits[0]
        frozen = stories(folder, scaling)
        phasor.patch(frozen, seq_len=[60, ids.shape[1]])
        moved = [float((m(both).logits[0, :60] - alone).abs().max()) for m in (stories(folder, scaling), frozen)]
        print(f"{scaling}: a row of 60 beside one of 400 moves its logits by {moved[0]:.1f}, frozen by {moved[1]:.1e}")
        others = stories(folder, scaling)
        phasor.patch(others, seq_len=[60, 60])
        ours, theirs = frozen(both).logits[0, :60], others(torch.cat((short, short))).logits[0, :60]
        print(f"  to the bit as beside another row of 60: {torch.equal(ours, theirs)}")
        wide = stories(folder, scaling).double()
        alone = wide(ids[:1, :60]).logits[0]
        phasor.patch(wide, seq_len=[60, ids.shape[1]])
        print(f"  frozen, in float64: {float((wide(both).logits[0, :60] - alone).abs().max()):.1e}")


@torch.no_grad()
def chunk() -> None:
    """stories260K: 200 tokens reused behind 100 others, KL of the next 100."""
    from torch.nn.functional import kl_div
    from transformers import DynamicCache

    from cache_argument import given
    from stories import stories, told

    folder = model_folder()
    model, ids = stories(folder), told(folder)
    before, middle, after = ids.split([100, 200, 100], dim=1)
    first, second = (phasor.caches.LedgerCache(model, unpadded=True) for _ in range(2))
    model(before, **given(first))
    model(middle, **given(second))
    pairs = list(zip(first.layers, second.layers, strict=True))
    stale = DynamicCache([(torch.cat((a.keys, b.keys), -2), torch.cat((a.values, b.values), -2)) for a, b in pairs])
    first.reuse(second)
    full = model(ids).logits[:, 300:].log_softmax(-1)
    for name, cache in (("as it is", stale), ("moved", first)):
        found = model(after, **given(cache)).logits.log_softmax(-1)
        print(
            f"a chunk of 200, {name}: KL {float(kl_div(found, full, log_target=True, reduction='none').sum(-1).mean()):.1e}"  # noqa: E501
        )


PARTS = {f.__name__: f for f in (histories, lengths, chunk)}

if __name__ == "__main__":
    if sys.argv[1:] not in [[name] for name in PARTS]:
        sys.exit(f"say one of {', '.join(PARTS)}")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    PARTS[sys.argv[1]]()
