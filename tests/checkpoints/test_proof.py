"""The proof sees every byte, however the two sides are cut into pieces."""

import random
import shutil

import numpy as np
import pytest

from phasor.tools.checkpoints import convert, make_plan, proof
from phasor.tools.checkpoints.proof import _Pieces, prove

from . import synthetic


@pytest.mark.parametrize("seed", range(20))
def test_pieces_of_any_size_are_the_bytes_of_the_blocks(seed):
    dice = random.Random(seed)
    blocks = [np.frombuffer(dice.randbytes(dice.choice([0, 1, 7, 50])), np.uint8) for _ in range(dice.randrange(12))]
    whole = b"".join(block.tobytes() for block in blocks)
    pieces, taken = _Pieces(iter(blocks)), b""
    while taken != whole:
        taken += (piece := pieces.take(dice.choice([1, 3, 49, 120]))).tobytes()
        assert len(piece) and whole.startswith(taken)
    assert len(pieces.take(5)) == 0


def test_a_byte_anywhere_is_noticed_and_its_tensor_named(tmp_path, monkeypatch):
    """Of tensors longer than a piece, and of those whose rows have moved."""
    source = synthetic.write(tmp_path / "source", layers=1, hidden=512, heads=8, kv_heads=2, wide=1024)
    convert(source, tmp_path / "result", to="interleaved")
    plan = make_plan(source, "interleaved")
    after = make_plan(tmp_path / "result", "halves").source.tensors
    monkeypatch.setattr(proof, "STEP", 2**18)
    assert max(tensor.size for tensor in after.values()) > 3 * proof.STEP
    dice = random.Random(0)
    names = [*plan.moves, *dice.sample(sorted(after.keys() - plan.moves.keys()), 4)]
    for name in names:
        tensor = after[name]
        shutil.copytree(tmp_path / "result", tmp_path / "damaged", dirs_exist_ok=True)
        with open(tmp_path / "damaged" / tensor.file.name, "r+b") as file:
            file.seek(at := tensor.offset + dice.choice([0, tensor.size - 1, dice.randrange(tensor.size)]))
            byte = file.read(1)[0]
            file.seek(at)
            file.write(bytes([byte ^ 1]))
        with pytest.raises(ValueError, match=rf"{name}: its bytes are not those of the source"):
            prove(plan, tmp_path / "damaged")
