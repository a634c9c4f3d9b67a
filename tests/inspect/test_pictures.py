"""The page of a model of pictures: which pairs turn by which axis, beside the size that its pipeline makes."""

import inspect
import math

import pytest
import torch

from blocks import ROOT, blocks, run_python
from eye.test_pictures import FLUX, packages
from phasor import ModelRotary, RotarySpec
from phasor.axes import Axial
from phasor.models.reading.default_sizes import SIZES
from phasor.tools.inspect.axes_picture import sized
from phasor.tools.inspect.model_page import model_facts, page
from phasor.tools.inspect.view import read_view
from phasor.tools.inspect.view_text import view_page

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::UserWarning")
BIG = {**FLUX, "attention_head_dim": 128, "axes_dims_rope": [16, 56, 56], "in_channels": 64}
CENTRES = {"model_type": "dinov3_vit", "hidden_size": 384, "num_attention_heads": 6, "num_hidden_layers": 12}
TUTORIAL = ROOT / "docs/tutorials/twice_the_resolution.md"
PIXELS = 16  # of a token along a side
FRAMES = {"CosmosTextToWorldPipeline": 8, "Kandinsky5T2VPipeline": 4}  # of one latent, 4 elsewhere


def lines(config: dict[str, object], wanted: str | None = None) -> dict[str, str]:
    view = read_view(config)
    text = view_page(view, [model_facts(model) for model in view.shown], wanted=sized(wanted))
    rows = text.partition("  turns")[2].splitlines()[1:]
    return {words[0]: " ".join(words[1:]) for row in rows if (words := row.split())}


def turning(pairs: int, base: float, steps: int) -> int:
    """Pairs of a ladder whose wavelength is at most so many steps."""
    return sum(2 * math.pi * base ** (i / pairs) <= steps for i in range(pairs))


def test_a_page_says_what_turns_by_which_axis_and_what_leaves_the_trained_size() -> None:
    packages()
    shown = lines(BIG, "128x64")
    few = turning(28, 1e4, 64)
    assert shown["frame"].endswith("0 of 8 pairs in 1")
    assert shown["row"].endswith(f"{few} of 28 pairs in 64; {28 - few} leave it in 128")
    assert shown["column"].endswith(f"{few} of 28 pairs in 64")
    for axis, pairs, whole in (("frame", 8, 0), ("row", 28, few), ("column", 28, few)):
        assert (shown[axis].count("●"), shown[axis].count("○")) == (whole, pairs - whole)


def test_without_a_declared_size_nothing_is_said_of_turns() -> None:
    packages()
    assert lines({**BIG, "in_channels": 384}, "128x128")["row"].endswith("○ 28 pairs")


def test_centres_of_patches_reach_two_units_and_are_not_asked_in_tokens() -> None:
    assert lines(CENTRES)["row"].endswith(f"{sum(100 ** (i / 16) <= 2 for i in range(16))} of 16 pairs in 2")
    with pytest.raises(ValueError, match="grid must be asked of positions that count tokens"):
        lines(CENTRES, "32x32")


def test_pairs_of_one_wavelength_and_pairs_that_stand_still_are_drawn() -> None:
    spec = RotarySpec(head_dim=8, frequencies=(0.5, 0.5, 0.5, 0.0), axes=Axial((2, 2)))
    model = ModelRotary(
        model_type="toy", layers=(spec,), layer_types=("a",), num_heads=1, grid={"row": 16.0, "column": None}
    )
    shown = page(model, model_facts(model))
    assert "once in 12.57 … 12.57, log scale; declared: 16 x ?" in shown
    assert "2 of 2 pairs in 16" in shown and "○" in shown and "  1 pairs" in shown


@pytest.mark.parametrize("text", ["128", "128x", "0x4", "1x2x3x4", "ax4", "-4x4"])
def test_a_size_is_rows_by_columns(text: str) -> None:
    with pytest.raises(ValueError, match=f"grid must be ROWSxCOLUMNS or FRAMESxROWSxCOLUMNS .* got '{text}'"):
        sized(text)


@pytest.mark.parametrize("name", SIZES)
def test_default_sizes_are_those_of_the_pipelines(name: str) -> None:
    """Frames and pixels of the call, or the size of the latents that a pipeline sets in its constructor or its call."""
    packages()
    import diffusers

    pipeline, _, (frames, rows, columns) = SIZES[name]
    cls = getattr(diffusers, pipeline)
    takes = {key: value.default for key, value in inspect.signature(cls.__call__).parameters.items()}
    if takes["height"] is not None:
        per = FRAMES.get(pipeline, 4)
        assert (takes["height"] // PIXELS, takes["width"] // PIXELS) == (rows, columns)
        assert (takes["num_frames"] - 1) // per + 1 == frames
    else:
        source = inspect.getsource(cls)
        latents = {128: 8, 64: 16}  # side -> pixels of one
        said = [side * pixels for side, pixels in latents.items() if f"default_sample_size = {side}" in source]
        said += [1024] if "height = height or 1024" in source else []
        own = inspect.signature(getattr(diffusers, name)).parameters.get("sample_size")
        said += [own.default * 8] if own is not None and not said else []
        assert said == [rows * PIXELS] == [columns * PIXELS] and frames == 1


def tutorial() -> dict[str, object]:
    """The names of the page about twice the resolution."""
    names: dict[str, object] = {"__name__": "page"}
    for block in blocks(TUTORIAL.read_text(encoding="utf-8")):
        if block.language == "python":
            assert not run_python(block, names, str(TUTORIAL))
    return names


def test_what_the_tutorial_puts_into_a_model_are_the_tables_of_its_own_code() -> None:
    """Of FLUX and Wan, by the functions of the page; NTK by the ``ntk_factor`` of diffusers."""
    packages()
    from diffusers.models.embeddings import get_1d_rotary_pos_embed
    from diffusers.models.transformers.transformer_flux import FluxPosEmbed
    from diffusers.models.transformers.transformer_wan import WanRotaryPosEmbed
    from diffusers.pipelines.flux.pipeline_flux import calculate_shift

    names: dict = tutorial()
    ids = torch.nn.functional.pad(torch.cartesian_prod(torch.arange(5), torch.arange(128)), (1, 0))
    own = names["PosEmbed"](names["flux"])(ids), FluxPosEmbed(10000, [16, 56, 56])(ids)
    wan = WanRotaryPosEmbed(128, (1, 2, 2), 1024)
    both = [own, ((names["cos"], names["sin"]), (wan.freqs_cos, wan.freqs_sin))]
    rows = get_1d_rotary_pos_embed(
        56, ids[:, 1].float(), 10000.0, use_real=True, ntk_factor=2 ** (56 / 54), freqs_dtype=torch.float64
    )
    both.append(([t[:, 16:72] for t in names["PosEmbed"](names["ntk"])(ids)], rows))
    for mine, theirs in both:
        for a, b in zip(mine, theirs, strict=True):
            torch.testing.assert_close(a, b, rtol=0, atol=2.5e-7)
    assert names["shift"](9216) == pytest.approx(calculate_shift(9216))


def test_the_tutorial_shows_what_inspect_prints() -> None:
    packages()
    shown = lines(BIG, "128x128")
    page = TUTORIAL.read_text(encoding="utf-8").partition("```console")[2].partition("```")[0]
    rows = {words[0]: " ".join(words[1:]) for row in page.splitlines()[-3:] if (words := row.split())}
    assert rows == {axis: shown[axis] for axis in ("frame", "row", "column")}
