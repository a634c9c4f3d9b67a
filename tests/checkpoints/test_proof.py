"""The proof sees every byte."""

import random
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from phasor.tools.checkpoints import convert, make_plan
from phasor.tools.checkpoints.proof import prove
from phasor.tools.checkpoints.stored import Stored, join

from . import synthetic


def test_a_byte_anywhere_is_noticed_and_its_tensor_named(tmp_path):
    """Of tensors whose rows have moved, too."""
    source = synthetic.write(tmp_path / "source", layers=1, hidden=512, heads=8, kv_heads=2, wide=1024)
    convert(source, tmp_path / "result", to="interleaved")
    plan = make_plan(source, "interleaved")
    after = make_plan(tmp_path / "result", "halves").source.tensors
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


DOWN, LOST = "model.layers.0.mlp.down_proj.weight", "must be on both sides, and is on one"


@pytest.mark.parametrize(
    "change, says",
    [
        (lambda held: held.pop(DOWN), LOST),
        (lambda held: held.update({f"{DOWN}.more": torch.ones(2)}), LOST),
        (lambda held: held.update({DOWN: held[DOWN].flatten()}), "must be .* got "),
        (lambda held: held.update({DOWN: held[DOWN].view(torch.int16)}), "must be BF16 .* got I16 "),
    ],
)
def test_a_tensor_that_is_lost_added_or_another_is_noticed(change, says, tmp_path):
    source = synthetic.write(tmp_path / "source", layers=1, hidden=64, heads=4, kv_heads=2, wide=64)
    convert(source, tmp_path / "result", to="interleaved")
    (shard,) = (tmp_path / "result").glob("*.safetensors")
    (tmp_path / "result/model.safetensors.index.json").unlink()  # which would tell, too
    change(held := load_file(shard))
    save_file(held, shard.rename(tmp_path / "result/model.safetensors"))
    with pytest.raises(ValueError, match=rf"{DOWN}.*: {says}"):
        prove(make_plan(source, "interleaved"), tmp_path / "result")


@pytest.mark.parametrize("axis", range(3))
def test_parts_are_joined_where_all_other_axes_agree(axis):
    def part(*shape, dtype="F32"):
        return Stored(dtype, shape, Path("share"), 0, 4)

    def longer(at, by):
        return part(*(size + by * (i == at) for i, size in enumerate((2, 3, 4))))

    assert join([part(2, 3, 4), longer(axis, 1), longer(axis, -1)], axis, "w").shape[axis] == 3 * (2, 3, 4)[axis]
    others = [longer(at, by) for at in range(3) for by in (1, -1) if at != axis]
    for other in (*others, part(2, 3), part(2, 3, 4, 1), part(2, 3, 4, dtype="F16")):
        with pytest.raises(ValueError, match=f"share: w: must have dtype and shape of the part .* beside axis {axis}"):
            join([part(2, 3, 4), other], axis, "w")
    with pytest.raises(ValueError, match="w: must have dtype and shape"):
        join([part(2), part(2)], axis + 1, "w")
