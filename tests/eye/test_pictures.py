"""Models of pictures, video and sound: their own tables are seen to the bit, and along which axes they turn."""

import json
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import phasor
from eye.picture_tables import builders, is_in, with_tables
from phasor.eye.grid import Grid, unwrapped, wrapped
from phasor.eye.tape import Tape
from phasor.models.configs import NoRotary, Refused

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::UserWarning")
FLUX = {
    "_class_name": "FluxTransformer2DModel", "attention_head_dim": 16, "axes_dims_rope": [4, 6, 6],
    "guidance_embeds": True, "in_channels": 8, "joint_attention_dim": 12, "num_attention_heads": 24, "num_layers": 19,
    "num_single_layers": 38, "patch_size": 1, "pooled_projection_dim": 10,
}  # fmt: skip


def packages() -> None:
    if builders() is None:
        pytest.skip("the builders of pictures are not there: PHASOR_TEST_DATA")
    diffusers = pytest.importorskip("diffusers", reason="diffusers and timm build these models")
    assert diffusers.FluxTransformer2DModel  # imported before torchvision seems to be there
    builders().stub_torchvision()
    pytest.importorskip("timm", reason="diffusers and timm build these models")


@pytest.mark.parametrize("grid", range(3))
@pytest.mark.parametrize("name", list(builders().MODELS) if builders() and find_spec("diffusers") else ["none"])
def test_every_model_turns_by_the_rows_of_its_own_table(name: str, grid: int) -> None:
    packages()
    make, inputs = builders().MODELS[name]
    model, given = make(), inputs[grid]()
    seen, tables = with_tables(name, model, given, lambda: phasor.observe(model, given))
    turning = [side for site in seen.sites for side in (site.q, site.k) if side.turns]
    missing = {site.q.seen.missing or site.k.seen.missing for site in seen.sites} - {""}
    assert turning
    assert all(is_in(side, tables) for side in turning)
    assert not missing


class Willow(nn.Module):
    """A picture of nobody's library behind words: a table for rows, counted from the middle, and one for columns."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.first = nn.Linear(16, 48), 1.0 / 100.0 ** (torch.arange(0, 8, 2) / 8)

    def forward(self, words: Tensor, picture: Tensor) -> Tensor:
        rows, columns = picture.shape[1:3]
        up = (torch.arange(rows) - (rows - 1) / 2)[:, None] * self.first
        right = 2.0 * torch.arange(columns)[:, None] * self.first
        angles = torch.cat((up[:, None].expand(-1, columns, -1), right.expand(rows, -1, -1)), -1).flatten(0, 1)
        turn = torch.polar(torch.ones(len(angles) + 3, 8), torch.cat((torch.zeros(3, 8), angles)))
        q, k, v = self.qkv(torch.cat((words, picture.flatten(1, 2)), 1)).chunk(3, -1)
        q, k = (torch.view_as_real(torch.view_as_complex(x.unflatten(-1, (8, 2))) * turn).flatten(-2) for x in (q, k))
        return nn.functional.scaled_dot_product_attention(q, k, v)


def test_an_observation_says_which_pairs_turn_by_the_row_and_by_the_column() -> None:
    seen = phasor.observe(Willow(), {"words": torch.randn(1, 3, 16), "picture": torch.randn(1, 3, 5, 16)})
    (axes,) = [fact.value for fact in seen.facts if fact.name == "axes"]
    assert "tokens 3-17, 3 x 5: row: 4 pairs, one turn in 6.283 to 198.7, centred" in axes
    assert "column: 4 pairs, one turn in 3.142 to 99.35, from 0" in axes
    assert seen.rotary is not None
    (spec,) = seen.rotary.layers
    assert spec is not None
    assert (spec.base, spec.axes) == (100.0, phasor.axes.Axial((4, 4)))


def grid_of(angles: Tensor) -> tuple[Grid, ...]:
    from types import SimpleNamespace

    from phasor.eye.grid import grids

    return grids(Tape(), SimpleNamespace(angles=wrapped(angles.double())))  # type: ignore[arg-type]


@pytest.mark.parametrize("shape", [(2, 3, 5), (4, 4), (3, 2, 2), (2, 7)])
def test_a_grid_is_found_behind_tokens_that_stand_still(shape: tuple[int, ...]) -> None:
    ladder = 50.0 ** (-torch.arange(4) / 4)
    places = torch.cartesian_prod(*(torch.arange(n) + 1.5 for n in shape))
    angles = torch.cat([places[:, a, None] * ladder for a in range(len(shape))], -1).T[None]
    (grid,) = grid_of(nn.functional.pad(angles, (3, 0)))
    assert (grid.start, grid.shape) == (3, shape)
    for a in range(len(shape)):
        assert grid.moves[0, :, a].nonzero().flatten().tolist() == list(range(4 * a, 4 * a + 4))
        torch.testing.assert_close(grid.steps[0, 4 * a : 4 * a + 4, a], ladder.double(), rtol=1e-5, atol=0)


def test_words_in_a_row_are_one_axis_and_noise_is_none() -> None:
    ladder = 50.0 ** (-torch.arange(4) / 4)
    (line,) = grid_of((torch.arange(12) * ladder[:, None])[None])
    assert line.shape == (12,)
    assert grid_of(torch.rand(1, 6, 12, generator=torch.Generator().manual_seed(0)) * 6) == ()


def test_whole_turns_come_back_only_where_a_ladder_says_them() -> None:
    ladder = 490.0 * 1.3 ** -torch.arange(30, dtype=torch.float64)
    for fast in (ladder, ladder.flip(0), -ladder):
        torch.testing.assert_close(unwrapped(wrapped(fast)), fast, rtol=1e-9, atol=0)
    noise = torch.rand(12, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 6 - 3
    assert torch.equal(unwrapped(noise), noise)


def test_a_config_of_diffusers_gives_the_axes_that_it_states() -> None:
    packages()
    model = phasor.read_config(FLUX)
    assert (len(model.layers), model.num_heads, model.model_type) == (57, 24, "FluxTransformer2DModel")
    (spec,) = model.distinct
    assert (spec.head_dim, spec.interleaved, spec.base, spec.axes) == (16, True, 1e4, phasor.axes.Axial((2, 3, 3)))
    other = phasor.read_config({**FLUX, "axes_dims_rope": [8, 4, 4]})
    assert next(iter(other.distinct)).axes == phasor.axes.Axial((4, 2, 2))


def test_the_folder_of_a_pipeline_is_read_by_its_transformer(tmp_path: Path) -> None:
    packages()
    (tmp_path / "transformer").mkdir()
    (tmp_path / "transformer" / "config.json").write_text(json.dumps(FLUX))
    (tmp_path / "model_index.json").write_text(json.dumps({"_class_name": "FluxPipeline"}))
    assert phasor.read_config(tmp_path) == phasor.read_config(FLUX)


def test_a_config_of_timm_is_read_with_its_class_token() -> None:
    packages()
    model = phasor.read_config({"architecture": "vit_small_patch16_rope_224", "model_args": {"img_size": 64}})
    (spec,) = model.distinct
    assert (len(model.layers), spec.base, spec.head_dim, model.prefix_tokens) == (12, 100.0, 64, 1)
    assert any("4 x 4: row: 16 pairs" in note and "column: 16 pairs" in note for note in model.notes)
    with pytest.raises(NoRotary, match=r"rotates nothing .* learned positions"):
        phasor.read_config({"architecture": "vit_tiny_patch16_224"})


@pytest.mark.parametrize("key", ["_class_name", "architecture"])
def test_without_its_package_a_config_says_what_to_install(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    package = {"_class_name": "diffusers", "architecture": "timm"}[key]
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(Refused, match=rf"{key} is 'Alder', .* install {package}"):
        phasor.read_config({key: "Alder"})


@pytest.mark.parametrize("name", ["os", "ModelMixin.from_pretrained", "AlderTransformer2DModel", "DiffusionPipeline"])
def test_a_name_that_is_no_model_of_diffusers_is_refused(name: str) -> None:
    packages()
    with pytest.raises(Refused, match=r"_class_name is .* no model of that name"):
        phasor.read_config({"_class_name": name})


def test_what_no_spec_says_is_told_by_its_axes() -> None:
    packages()
    with pytest.raises(Refused, match=r"frame: 5 pairs, of all heads together.*row: 5 pairs.*column: 5 pairs"):
        phasor.read_config(
            {
                "_class_name": "LTXVideoTransformer3DModel", "in_channels": 4, "out_channels": 4, "caption_channels": 8,
                "num_attention_heads": 2, "attention_head_dim": 16, "cross_attention_dim": 32, "num_layers": 2,
            }
        )  # fmt: skip


def test_a_pipeline_without_a_transformer_names_the_parts_it_has(tmp_path: Path) -> None:
    (tmp_path / "model_index.json").write_text(json.dumps({"_class_name": "StableDiffusionPipeline"}))
    with pytest.raises(ValueError, match=r"the pipeline in it has no transformer, .* no part with a config.json"):
        phasor.read_config(tmp_path)
    for part in ("vae", "unet"):
        (tmp_path / part).mkdir()
        (tmp_path / part / "config.json").write_text("{}")
    with pytest.raises(ValueError, match="no transformer, which rotates; it has unet, vae: name the folder of one"):
        phasor.read_config(tmp_path)


@pytest.mark.parametrize("name", ["flux1-dev.safetensors", "wan.gguf", "model.ckpt"])
def test_weights_alone_say_that_they_are_no_config(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"\x08\x00\x00\x00\x00\x00\x00\x00{}      ")
    with pytest.raises(ValueError, match=f"must be a config.json, got the weights .*{name}.* name the config.json"):
        phasor.read_config(tmp_path / name)


@pytest.mark.parametrize(
    "change, said",
    [
        ({"rope_theta": 500.0}, "rope_theta: FluxTransformer2DModel does not read it; remove the key"),
        (
            {"axes_dims_rope": [4, 6, 4]},
            r"axes_dims_rope must add up to attention_head_dim 16, got \[4, 6, 4\] with sum 14",
        ),
        ({"axes_dims_rope": [3, 7, 6]}, r"axes_dims_rope must be even numbers of channels, got \[3, 7, 6\]"),
        ({"attention_head_dim": "x"}, "could not be observed: invalid literal"),
    ],
)
def test_a_config_that_its_class_cannot_be_built_of_says_why_in_a_line(change: dict[str, object], said: str) -> None:
    packages()
    with pytest.raises(Refused, match=said) as raised:
        phasor.read_config({**FLUX, **change})
    assert "\n" not in str(raised.value)


def test_a_key_that_says_nothing_of_positions_may_be_of_another_version() -> None:
    packages()
    assert phasor.read_config({**FLUX, "of_later": 1, "_rope": 2}) == phasor.read_config(FLUX)


@pytest.mark.parametrize("shape", [(2, 3, 5), (4, 6)])
def test_tables_in_bfloat16_stand_on_whole_steps_as_others_do(shape: tuple[int, ...]) -> None:
    from phasor.eye.grid import by_axes

    places = torch.cartesian_prod(*(torch.arange(n) for n in shape)).double()
    angles = torch.cat([places[:, a, None] * 1e4 ** (-torch.arange(8) / 8) for a in range(len(shape))], -1).T[None]
    rounded = torch.atan2(angles.sin().bfloat16().double(), angles.cos().bfloat16().double())
    (grid,) = grid_of(rounded)
    known = by_axes(rounded, (grid,))
    assert known is not None
    for a, size in enumerate(shape):
        assert torch.equal(grid.at[a], torch.arange(size, dtype=torch.float64))
        assert torch.equal(known[2][a], places[:, a])


def test_steps_that_are_uneven_stay_so() -> None:
    rows = torch.tensor([0.0, 5.0, 10.0, 16.0, 21.0])  # index * 27 // 5
    (line,) = grid_of((100.0 ** (-torch.arange(4)[:, None] / 4) / 5 * rows)[None])
    torch.testing.assert_close(line.at[0], rows.double() / 5.25, rtol=1e-4, atol=0)


def test_a_tower_of_transformers_that_wraps_a_model_of_timm_is_read() -> None:
    packages()
    wrapped = {
        "model_type": "timm_wrapper",
        "architecture": "vit_small_patch16_rope_224",
        "model_args": {"img_size": 64},
    }
    (spec,) = phasor.read_config(wrapped).distinct
    assert (spec.base, spec.head_dim) == (100.0, 64)
    with pytest.raises(NoRotary, match=r"rotates nothing .* learned positions"):
        phasor.read_config({"model_type": "timm_wrapper", "architecture": "vit_tiny_patch16_224"})
    with pytest.raises(Refused, match="the code of timm_wrapper does not read it"):
        phasor.read_config({**wrapped, "rope_theta": 10000.0})


def test_a_tower_of_timm_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "timm", None)
    monkeypatch.setattr("phasor.models.reading.of_timm.find_spec", lambda name: None)
    with pytest.raises(Refused, match="its architecture 'Alder' comes from timm; install timm"):
        phasor.read_config({"model_type": "timm_wrapper", "architecture": "Alder"})
