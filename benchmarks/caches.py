"""What it costs to move keys and to keep a ledger of them, and what it is worth: the numbers of docs/caches.md.

    python benchmarks/caches.py moves|decode|histories|memory|lengths|chunk [--rounds 21]

Times are medians of interleaved rounds in one process on one thread, as ratios: of a move in place in units of
``copy_`` of the same bytes; of a decoded token of the patched Llama of the bench in units of one with transformers'
own cache. ``lengths`` and ``chunk`` need stories260K (PHASOR_TEST_DATA names the folder that has it).
"""

import argparse
import gc
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from timing.llama import _llama

import phasor
from phasor.rotary.scaling import YaRN

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))


def medians(calls: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Seconds of the thread, each call once a round, in an order drawn anew."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for name in calls:
        calls[name]()
    for _ in range(rounds):
        for name in random.sample(list(calls), len(calls)):
            start = time.thread_time()
            calls[name]()
            times[name].append(time.thread_time() - start)
    return {name: statistics.median(found) for name, found in times.items()}


def moves(rounds: int) -> None:
    """32,768 keys of 8 heads of 128 channels, and the one rotary head of 64 of latent attention, in place."""
    tokens = 32_768
    old = torch.arange(tokens)
    blocks, anywhere = torch.cat((old[20_000:], old[:20_000])), torch.randperm(tokens)
    plain, other = phasor.RotarySpec(head_dim=128, base=5e5), phasor.RotarySpec(head_dim=128, base=1e6)
    latent = phasor.RotarySpec(head_dim=64, interleaved=True)
    for dtype in (torch.float32, torch.bfloat16):
        for name, spec, shape in (
            ("8 heads of 128", plain, (1, 8, tokens, 128)),
            ("1 head of 64", latent, (1, 1, tokens, 64)),
        ):
            k = torch.randn(shape).to(dtype)
            out = torch.empty_like(k)
            calls = {
                "copy_": lambda k=k, out=out: out.copy_(k),
                "uniform": lambda k=k, spec=spec: phasor.shift(k, -1000, spec, out=k),
                "two blocks": lambda k=k, spec=spec: phasor.reposition(k, old, blocks, spec, out=k),
                "anywhere": lambda k=k, spec=spec: phasor.reposition(k, old, anywhere, spec, out=k),
            }
            if spec is plain:
                calls["another spec"] = lambda k=k: phasor.caches.change_spec(k, old, plain, other, out=k)
            found = medians(calls, rounds)
            ratios = ", ".join(f"{n} {t / found['copy_']:.2f}" for n, t in found.items() if n != "copy_")
            print(f"{str(dtype)[6:]}, {name}, in units of copy_: {ratios}", flush=True)


def decode(rounds: int) -> None:
    """A token of a patched Llama of 8 layers, hidden 512, 8 heads of 64, behind 512 and 2,048 others."""
    from transformers import DynamicCache

    from cache_argument import given

    model = _llama(False, torch.float32)
    phasor.patch(model)
    for tokens in (512, 2048):
        ids = torch.randint(2, 1024, (1, tokens))
        caches = {
            "transformers": DynamicCache(config=model.config),
            "growing": phasor.caches.LedgerCache(model),
            "sinks, one at a time": phasor.caches.LedgerCache(model, sinks=4, window=tokens - 3),
            "sinks, 16 at a time": phasor.caches.LedgerCache(model, sinks=4, window=tokens - 3, block=16),
        }
        with torch.no_grad():
            for cache in caches.values():
                model(ids, **given(cache))
            calls = {n: lambda c=c, ids=ids: model(ids[:, :1], **given(c)) for n, c in caches.items()}
            found = medians(calls, 5 * rounds)
        ratios = ", ".join(f"{n} {t / found['transformers']:.3f}" for n, t in found.items() if n != "transformers")
        print(f"a token behind {tokens}, in units of one with DynamicCache: {ratios}", flush=True)


def histories(rounds: int) -> None:
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


def memory(rounds: int) -> None:
    """One layer of 65,536 tokens, 8 heads of 128 channels in bfloat16: what all tensors hold, and what is stated."""
    spec, tokens = phasor.RotarySpec(head_dim=128), 65_536
    new = [torch.randn(1, 8, tokens, 128).bfloat16() for _ in range(2)]
    one = new[0].nbytes
    for keep in ("residual", "raw"):
        before = in_tensors()
        ledger = phasor.caches.KeyLedger(spec, keep=keep)
        ledger.append(new[0].clone(), torch.arange(tokens), new[1].clone())
        where, kept = 8 * tokens, one + 18 * tokens + 8 * tokens
        stated = {"as appended": 2 * one + where + (kept if keep == "raw" else 0), "all moved": 2 * one + where + kept}
        for state, expected in stated.items():
            if state == "all moved":
                ledger.shift(7)
            fork = ledger.fork()
            found, counted = in_tensors() - before, sum(ledger.memory.values())
            print(
                f"{keep}, {state}: stated {expected / one:.4f} x the keys, ledger.memory / stated "
                f"{counted / expected:.4f}, all tensors with those of a fork / stated {found / expected:.4f}"
            )
        del ledger, fork


def in_tensors() -> int:
    """Bytes of all tensors of this process, each memory once."""
    gc.collect()
    kept = [x.untyped_storage() for x in gc.get_objects() if type(x) is torch.Tensor]
    return sum({memory.data_ptr(): memory.nbytes() for memory in kept}.values())


def model_folder() -> Path:
    from stories import converted

    data = os.environ.get("PHASOR_TEST_DATA") or sys.exit("PHASOR_TEST_DATA must name the folder with stories260K")
    return converted(Path(data), Path(tempfile.mkdtemp()) / "hf")


@torch.no_grad()
def lengths(rounds: int) -> None:
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
def chunk(rounds: int) -> None:
    """stories260K: 200 tokens reused behind 100 others, KL of the next 100."""
    from torch.nn.functional import kl_div
    from transformers import DynamicCache

    from cache_argument import given
    from stories import stories, told

    folder = model_folder()
    model, ids = stories(folder), told(folder)
    before, middle, after = ids.split([100, 200, 100], dim=1)
    first, second = phasor.caches.LedgerCache(model), phasor.caches.LedgerCache(model)
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


PARTS = {f.__name__: f for f in (moves, decode, histories, memory, lengths, chunk)}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--rounds", type=int, default=21)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    PARTS[options.part](options.rounds)
