"""Every rule against `get_rope_index` of the model whose rule it is (transformers), on random seeded mixes."""

from contextlib import suppress
from dataclasses import replace

import pytest
import torch

pytest.importorskip("transformers")

from cache_argument import given
from phasor.configs import read_rule
from phasor.models.rows import ROWS
from phasor.positions import Rule, decode_from, from_kinds, from_segments, pack, token_kinds

from .mixes import AUDIO_ID, AUDIO_START, IMAGE_ID, VIDEO_ID, VISION_START, random_mix
from .theirs import MODELS as ALL
from .theirs import bare_model, config_of

RULES = {name: row.positions for name, row in ROWS.items() if getattr(row, "positions", None) is not None}
MODELS = set(ALL) - {"minicpmv4_7"}  # a canvas: test_canvas.py
OMNI = ("qwen2_5_omni", "qwen3_omni_moe")
NO_VIDEO = ("hunyuan_vl", "glm_image")
PLAIN = sorted(MODELS - set(OMNI) - set(NO_VIDEO))
SEEDS = range(40)
SOME = pytest.mark.parametrize(
    "seeds", [pytest.param(SEEDS[:6], id="some"), pytest.param(SEEDS[6:], id="others", marks=pytest.mark.slow)]
)


def test_every_rule_has_a_model():
    assert set(RULES) == MODELS


def mixed(name: str, seed: int, **options) -> tuple:
    mine = RULES[name]
    sizes = {"merge": mine.merge, "frame_merge": mine.frame_merge, "per_frame": mine.per_frame}
    return random_mix(seed, **(sizes | options)), mine


def assert_same(placed, theirs, offset):
    assert placed.positions.dtype == theirs.dtype
    assert torch.equal(placed.positions, theirs)
    assert placed.offset.shape == offset.shape and torch.equal(placed.offset, offset)


@SOME
@pytest.mark.parametrize("name", PLAIN)
def test_images_and_videos(name, seeds):
    model = bare_model(name, config_of(name))
    for seed in seeds:
        mix, mine = mixed(name, seed, padding=("left", "right", "both")[seed % 3])
        mask = mix.attention_mask()
        grids = {"image_grid_thw": mix.image_grids(), "video_grid_thw": mix.video_grids()}
        theirs = model.get_rope_index(mix.input_ids(), mix.kinds(), attention_mask=mask, **grids)
        ours = from_kinds(mix.kinds(), mine, image_grids=mix.image_grids(), video_grids=mix.video_grids(), mask=mask)
        assert_same(ours, *theirs)


@pytest.mark.parametrize("name", [*PLAIN, "hunyuan_vl"])
def test_one_row_without_mask(name):
    model = bare_model(name, config_of(name, **HUNYUAN) if name == "hunyuan_vl" else config_of(name))
    for seed in SEEDS[:4]:
        more = {"kinds": "ti", "line_break": True} if name == "hunyuan_vl" else {}
        mix, mine = mixed(name, seed, rows=1, **more)
        grids = {"image_grid_thw": mix.image_grids()}
        if not more:
            grids["video_grid_thw"] = mix.video_grids()
        theirs = model.get_rope_index(mix.input_ids(), mix.kinds(), **grids)
        assert_same(
            from_kinds(mix.kinds(), mine, image_grids=mix.image_grids(), video_grids=mix.video_grids()), *theirs
        )


@pytest.mark.parametrize("tokens_per_second", [1, 2, 3, 4, 25])
@pytest.mark.parametrize("as_tensor", [True, False])
def test_seconds_of_qwen2_5_vl(tokens_per_second, as_tensor):
    config = config_of("qwen2_5_vl", vision_config={"tokens_per_second": tokens_per_second})
    model, mine = bare_model("qwen2_5_vl", config), read_rule(config.to_dict())
    assert mine == replace(RULES["qwen2_5_vl"], rate=tokens_per_second)
    for seed in SEEDS[:15]:
        mix = random_mix(seed, kinds="tvv", seconds=(0.5, 0.1, 1.7, 30 / 7, 0.04, 1.8, 1.4))
        seconds = torch.tensor(mix.seconds) if as_tensor else mix.seconds
        videos, mask = mix.video_grids(), mix.attention_mask()
        theirs = model.get_rope_index(
            mix.input_ids(), mix.kinds(), video_grid_thw=videos, second_per_grid_ts=seconds, attention_mask=mask
        )
        assert_same(from_kinds(mix.kinds(), mine, video_grids=videos, seconds=seconds, mask=mask), *theirs)


def of_omni(name: str, mix, *, together: bool):
    ids = {"image_token_id": IMAGE_ID, "video_token_id": VIDEO_ID, "audio_token_id": AUDIO_ID}
    marks = {"vision_start_token_id": VISION_START, "audio_start_token_id": AUDIO_START}
    config = config_of(name, **ids)
    for key, value in marks.items():
        setattr(config, key, value)
    frames = [4 * n if name == "qwen2_5_omni" else 100 * (n // 13) + 8 * (n % 13) for n in mix.sounds]
    return bare_model(name, config).get_rope_index(
        mix.input_ids(),
        mix.image_grids(),
        mix.video_grids(),
        mix.attention_mask(),
        use_audio_in_video=together,
        audio_seqlens=torch.tensor(frames),
        second_per_grids=torch.tensor(mix.seconds),
    )


OMNI_SECONDS = {
    "qwen2_5_omni": (1.0, 0.1, 1.7, 3.5, 30 / 7, 0.04, 1.8, 1.4),
    "qwen3_omni_moe": (1.0, 0.5, 0.25, 0.125, 3.5),
}


@SOME
@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("name", OMNI)
def test_sound(name, together, seeds):
    """Qwen-Omni: sound alone, videos with their sound mixed in or without."""
    for seed in seeds:
        kinds = "tiam" if together else "tiva"
        mix, mine = mixed(name, seed, kinds=kinds, seconds=OMNI_SECONDS[name])
        if not mix.images and not mix.videos:
            continue
        grids = {"image_grids": mix.image_grids(), "video_grids": mix.video_grids()}
        ours = from_kinds(mix.kinds(), mine, seconds=mix.seconds, mask=mix.attention_mask(), **grids)
        assert_same(ours, *of_omni(name, mix, together=together))


def alone(name: str, mix):
    """What the model's own code gives for one document; phasor's for the model whose tests stand elsewhere."""
    if name in OMNI:
        return of_omni(name, mix, together=False)
    grids = {"image_grid_thw": mix.image_grids(), "video_grid_thw": mix.video_grids()}
    if name == "hunyuan_vl":
        del grids["video_grid_thw"]
    if name in MODELS - {"glm_image"}:
        config = config_of(name, **HUNYUAN) if name == "hunyuan_vl" else config_of(name)
        return bare_model(name, config).get_rope_index(mix.input_ids(), mix.kinds(), **grids)
    return from_kinds(mix.kinds(), RULES[name], image_grids=mix.image_grids())


@pytest.mark.parametrize("name", sorted(MODELS))
def test_packed_documents_are_numbered_as_if_each_were_alone(name):
    """Two rows, of three documents and two, with padding before, between and behind."""
    more = {"seconds": OMNI_SECONDS[name], "kinds": "iv"} if name in OMNI else {}
    more |= {"kinds": "ti", "line_break": name == "hunyuan_vl"} if name in NO_VIDEO else {}
    for seed in range(3):
        mixes = [mixed(name, 100 * seed + i, rows=1, **more)[0] for i in range(5)]
        each = [mix.kinds()[0].tolist() for mix in mixes]
        rows = [[-1, *[0] * len(each[0]), *[1] * len(each[1]), -1, -1, *[2] * len(each[2])],
                [*[7] * len(each[3]), *[4] * len(each[4])]]  # fmt: skip
        documents = torch.full((2, max(map(len, rows))), -1)
        for i, row in enumerate(rows):
            documents[i, : len(row)] = torch.tensor(row)
        kinds = torch.zeros_like(documents)
        kinds[documents >= 0] = torch.tensor([kind for one in each for kind in one])
        images, videos, times = (
            [x for mix in mixes for x in getattr(mix, of)] for of in ("images", "videos", "seconds")
        )
        grids = {
            "image_grids": torch.tensor(images) if images else None,
            "video_grids": torch.tensor(videos) if videos else None,
        }
        if name in OMNI and not all(mix.images or mix.videos for mix in mixes):
            continue
        packed = pack(kinds, RULES[name], documents, seconds=times if name in OMNI else None, text_axis=True, **grids)
        for number, (mix, one) in enumerate(zip(mixes, each, strict=True)):
            positions, offset = alone(name, mix)
            here = documents == (7 if number == 3 else number)
            assert torch.equal(packed.positions[1:, here], positions[:, 0].to(packed.positions)), (seed, number)
            assert packed.positions[0, here].tolist() == list(range(len(one)))
            assert packed.offsets[number] == offset[0, 0]
        assert (packed.positions[:, documents < 0] == RULES[name].padding).all()


@pytest.mark.parametrize("together", [False, True])
def test_fractional_seconds_of_qwen3_omni(together):
    """Seconds that float32 rounds: sums are formed in another order, so the last bits may differ."""
    for seed in SEEDS[:20]:
        mix, mine = mixed("qwen3_omni_moe", seed, kinds="tim" if together else "tiv", seconds=(0.1, 0.7, 30 / 7))
        if not mix.images and not mix.videos:
            continue
        grids = {"image_grids": mix.image_grids(), "video_grids": mix.video_grids()}
        ours = from_kinds(mix.kinds(), mine, seconds=mix.seconds, mask=mix.attention_mask(), **grids)
        theirs, offset = of_omni("qwen3_omni_moe", mix, together=together)
        torch.testing.assert_close(ours.positions, theirs, rtol=8 * 2**-24, atol=0)
        torch.testing.assert_close(ours.offset, offset, rtol=0, atol=8 * 2**-24 * float(theirs.max()))


@pytest.mark.parametrize("name", OMNI)
def test_sound_without_images(name):
    """Their other branch: numbers of the mask. Padding is 1 there, and so says the rule of Qwen2.5-Omni."""
    mix, mine = mixed(name, 3, kinds="ta")
    ours, mask = from_kinds(mix.kinds(), mine, mask=mix.attention_mask()), mix.attention_mask()
    theirs, offset = of_omni(name, mix, together=False)
    real = mask.bool()
    assert torch.equal(ours.positions[:, real], theirs[:, real]) and torch.equal(ours.offset, offset)
    assert name == "qwen3_omni_moe" or torch.equal(ours.positions, theirs)


HUNYUAN = {"text_config": {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [16] * 4}}}


@SOME
@pytest.mark.parametrize("sections", [3, 4])
@pytest.mark.parametrize("marks_inside", [False, True])
def test_hunyuan(sections, marks_inside, seeds):
    """Images lie apart; their number counts through the batch, and their marks may count as image tokens."""
    rope = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [64 // sections] * (sections - 1)}
    rope["mrope_section"].append(64 - sum(rope["mrope_section"]))
    config = config_of("hunyuan_vl", text_config={"rope_parameters": rope})
    model, mine = bare_model("hunyuan_vl", config), read_rule(config.to_dict())
    assert mine.axes == sections
    for seed in seeds:
        mix = random_mix(seed, kinds="ti", line_break=True)
        kinds, mask, images = mix.kinds(), mix.attention_mask(), mix.image_grids()
        if marks_inside:
            ids = mix.input_ids()
            kinds = (kinds + (ids == 1) + (ids == 2)).clamp(max=1)
            if (ids[:, 1:] == 1).logical_and(ids[:, :-1] == 2).any():
                continue  # two images side by side would be one run
        theirs = model.get_rope_index(mix.input_ids(), kinds, image_grid_thw=images, attention_mask=mask)
        assert_same(from_kinds(kinds, mine, image_grids=images, mask=mask), *theirs)


def test_glm_image():
    """Images of the prompt, then those that the model draws: grids of the drawn ones come last, newest first."""
    config = config_of("glm_image")
    config.image_start_token_id, config.image_end_token_id = 1, 2
    model = bare_model("glm_image", config)
    for seed in SEEDS[:12]:
        mix, mine = mixed("glm_image", seed, kinds="ti", rows=1, padding="left")
        drawn = [[1, 4, 3], [1, 2, 5]]
        shown = len(mix.images)
        theirs, _ = model.get_rope_index(
            mix.input_ids(),
            torch.tensor([*mix.images, *drawn]),
            torch.tensor([shown + 2]),
            attention_mask=mix.attention_mask(),
        )
        ours = from_kinds(mix.kinds(), mine, image_grids=mix.image_grids(), mask=mix.attention_mask())
        assert torch.equal(ours.positions, theirs)
        start = int(ours.offset) + len(mix.ids[0])
        steps = from_segments([start, (2, 5), (4, 3), 1], mine).positions[:, start:]
        assert torch.equal(model._cached_decode_position_ids[0], steps)
    padded, mine = mixed("glm_image", 5, kinds="t")
    theirs, _ = model.get_rope_index(padded.input_ids(), attention_mask=padded.attention_mask())
    assert torch.equal(from_kinds(padded.kinds(), mine, mask=padded.attention_mask()).positions, theirs)


@pytest.mark.parametrize("name", ["qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen2_5_omni"])
def test_decoding_goes_on_as_theirs(name):
    """`compute_3d_position_ids` with a cache: the mask covers the prompt and the new tokens."""
    mix, mine = mixed(name, 1, padding="left")
    mask = mix.attention_mask()
    grids = {"image_grids": mix.image_grids(), "video_grids": mix.video_grids()}
    offset = from_kinds(mix.kinds(), mine, mask=mask, **grids).offset
    model = bare_model("qwen2_vl", config_of("qwen2_vl"))
    model.rope_deltas = offset

    class Cache:
        def get_seq_length(self):
            return mask.shape[1]

    longer = torch.cat((mask, torch.ones(len(mask), 2, dtype=mask.dtype)), 1)
    embeds = torch.zeros(len(mask), longer.shape[1], 1)
    theirs = model.compute_3d_position_ids(None, embeds, attention_mask=longer, **given(Cache()))
    assert torch.equal(decode_from(offset, mask.sum(-1), 2), theirs[..., -2:])
    assert (offset != 0).any()


@pytest.mark.parametrize("name", sorted(MODELS))
def test_default_config_gives_the_rule(name):
    config = config_of(name, **HUNYUAN) if name == "hunyuan_vl" else config_of(name)
    data = config.to_dict()
    assert read_rule(data) == RULES[name]
    if name in OMNI:
        assert read_rule({"model_type": name, "thinker_config": data}) == RULES[name]
        assert read_rule({"model_type": name, "thinker_config": data | {"position_id_per_seconds": 13}}).rate == 13


WRONG = [
    ("qwen2_vl", {"after": "largest"}),
    ("qwen2_5_vl", {"rate": 2}),
    ("qwen3_vl", {"per_frame": False, "after": "largest"}),
    ("ernie4_5_vl_moe", {"after": "largest"}),
]


@pytest.mark.parametrize(("name", "change"), WRONG)
def test_another_rule_would_be_noticed(name, change):
    model = bare_model(name, config_of(name))
    same = 0
    for seed in SEEDS[:10]:
        mix, mine = mixed(name, seed, kinds="tiv")
        more = {"image_grids": mix.image_grids(), "video_grids": mix.video_grids(), "mask": mix.attention_mask()}
        theirs, _ = model.get_rope_index(
            mix.input_ids(),
            mix.kinds(),
            image_grid_thw=mix.image_grids(),
            video_grid_thw=mix.video_grids(),
            attention_mask=mix.attention_mask(),
        )
        with suppress(ValueError):  # frames that are no longer alone do not fill their runs
            same += torch.equal(from_kinds(mix.kinds(), replace(mine, **change), **more).positions, theirs)
    assert same < 5


def test_kinds_of_glm():
    """One placemodel for images and videos: `create_mm_token_type_ids` of the GLM-4V processor."""
    from transformers.models.glm4v.processing_glm4v import Glm4vProcessor

    class Bare(Glm4vProcessor):
        def __init__(self):
            self.image_token_id, self.video_start_id, self.video_end_id = 90, 6, 7

    rows = [[90, 5, 6, 1, 90, 90, 2, 5, 90, 7, 5, 90], [5, 6, 90, 7, 6, 90, 7, 90, 5, 5, 5, 5]]
    theirs = Bare().create_mm_token_type_ids(rows)
    assert token_kinds(torch.tensor(rows), image=90, video_marks=(6, 7)).tolist() == theirs


def test_kinds_of_ids():
    mix = random_mix(0, kinds="tivam")
    ids = {"image": IMAGE_ID, "video": VIDEO_ID, "audio": AUDIO_ID}
    assert torch.equal(token_kinds(mix.input_ids(), **ids), mix.kinds())
    assert {1, 2, 3} <= set(mix.kinds().unique().tolist()) and Rule() == RULES["qwen2_vl"]
