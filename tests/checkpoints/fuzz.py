"""Random damage to headers, indexes and configs: every one is read, or refused with a ValueError; nothing else happens.

    python tests/checkpoints/fuzz.py [--minutes 10] [--corpus FOLDER] [--seed 0]

Bytes are flipped, cut out, repeated and replaced by those that matter in these formats, in files that are valid. What
raises anything but a ValueError, or takes more than five seconds or 500 MB, is kept in the corpus and ends the run.
"""

import argparse
import hashlib
import json
import random
import resource
import struct
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

SECONDS, MEGABYTES = 5.0, 500
TOKENS = [
    b"18446744073709551615", b"-1", b"1e999", b"NaN", b"null", b"true", b"[]", b"{}", b'""', b'"../x"', b"\xff", b"\0",
    struct.pack("<Q", 2**60), struct.pack("<I", 2**31), struct.pack("<Q", 2**64 - 1), b'"F64"', b"[[[[", b"9" * 400,
]  # fmt: skip


def damaged(data: bytes, made: random.Random) -> bytes:
    """A few changes to valid bytes, most of them near the start, where the headers are."""
    held = bytearray(data)
    for _ in range(made.choice((1, 1, 2, 5))):
        if not held:
            return bytes(held)
        at = made.randrange(min(len(held), made.choice((16, 256, 4096, len(held)))))
        what = made.randrange(6)
        if what == 0:
            held[at] ^= 1 << made.randrange(8)
        elif what == 1:
            held[at : at + len(token)] = (token := made.choice(TOKENS))
        elif what == 2:
            held[at:at] = made.choice(TOKENS)
        elif what == 3:
            del held[at : at + made.randrange(1, 64)]
        elif what == 4:
            held[at:at] = held[at : at + made.randrange(1, 64)]
        else:
            del held[made.randrange(len(held)) :]
    return bytes(held)


def seeds(folder: Path) -> dict[str, Callable[[bytes], None]]:
    """Valid files, each with what reads it."""
    import torch
    from safetensors.torch import load_file

    from checkpoints import synthetic
    from phasor.tools.checkpoints import make_plan

    model = synthetic.write(folder / "model", layers=2, hidden=32, heads=2, kv_heads=1, wide=16, per_shard=1)
    old = folder / "old"
    old.mkdir()
    (old / "config.json").write_bytes((model / "config.json").read_bytes())
    torch.save(
        {n: t for p in sorted(model.glob("*.safetensors")) for n, t in load_file(p).items()}, old / "pytorch_model.bin"
    )
    found = {}
    for path in (
        *sorted(model.glob("*.json")),
        sorted(model.glob("*.safetensors"))[0],
        old / "pytorch_model.bin",
    ):

        def read(data: bytes, path: Path = path) -> None:
            path.write_bytes(data)
            make_plan(path.parent, "interleaved", allow_pickle=True)

        found[str(path.relative_to(folder))] = read
    try:
        from checkpoints.test_gguf import SIZES, plain, write
    except ImportError:
        return found
    made = write(folder / "model.gguf", plain.random_weights(**SIZES))

    def read_gguf(data: bytes) -> None:
        made.write_bytes(data)
        make_plan(made, "transformers")

    return {**found, "model.gguf": read_gguf}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--corpus", type=Path, default=Path("fuzz-corpus"))
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    made, counts, words = random.Random(asked.seed), {"read": 0, "refused": 0}, set()
    with tempfile.TemporaryDirectory() as at:
        valid = {name: ((Path(at) / name).read_bytes(), read) for name, read in seeds(Path(at)).items()}
        end = time.monotonic() + 60 * asked.minutes
        while time.monotonic() < end:
            name = made.choice(list(valid))
            data, read = valid[name]
            bad = damaged(data, made)
            started, before = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            try:
                read(bad)
                counts["read"] += 1
            except ValueError as error:
                counts["refused"] += 1
                if (word := str(error).split(": ", 2)[-1][:24]) not in words:  # a refusal that was not seen before
                    words.add(word)
                    keep(asked.corpus, name, bad)
            except BaseException:
                print(f"kept as {keep(asked.corpus, name, bad)}")
                raise
            grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
            if (took := time.process_time() - started) > SECONDS or grown > MEGABYTES:
                sys.exit(f"{name} took {took:.1f} s and {grown:.0f} MB; kept as {keep(asked.corpus, name, bad)}")
            (Path(at) / name).write_bytes(data)
    print(json.dumps({**counts, "kinds of refusals": len(words)}))


def keep(corpus: Path, name: str, data: bytes) -> Path:
    corpus.mkdir(parents=True, exist_ok=True)
    path = corpus / f"{hashlib.sha256(data).hexdigest()[:12]}-{Path(name).name}"
    path.write_bytes(data)
    return path


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    main()
