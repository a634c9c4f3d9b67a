"""Folders whose configs contradict themselves or their weights, and the new folders where that is mended."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from integrations.sick import healthy
from phasor.tools.doctor.folder import examine, write
from phasor.tools.doctor.loading import load

VERSION = pytest.importorskip("transformers").__version__

THETA = {"rope_theta": 1e4}  # of a model whose rope_parameters say 5e5
# 1 / 500000 ** (2 i / 16), in float32 as Llama's code forms it
FREQUENCIES = 1.0 / (500_000.0 ** (torch.arange(0, 16, 2, dtype=torch.float) / 16))
STORED = "model.layers.0.self_attn.rotary_emb.inv_freq"  # where transformers kept it until 4.32


@pytest.fixture(scope="module")
def sound(tmp_path_factory) -> Path:
    """A small Llama of base 500000, 4 query heads and 2 key heads of 16, on disk."""
    folder = tmp_path_factory.mktemp("models") / "right"
    healthy("llama").save_pretrained(folder)
    (folder / "notes").mkdir()
    (folder / "notes" / "tokens.txt").write_text("a b c")
    return folder


@pytest.fixture
def edited(sound, tmp_path):
    """The folder with other keys in its config (None: without the key), and with more tensors."""

    def make(changes: dict[str, Any], tensors: dict[str, torch.Tensor] | None = None) -> Path:
        folder = tmp_path / "sick"
        shutil.copytree(sound, folder)
        config = json.loads((folder / "config.json").read_text()) | changes
        kept = {name: value for name, value in config.items() if value is not None}
        (folder / "config.json").write_text(json.dumps(kept))
        if tensors:
            file = folder / "model.safetensors"
            save_file(load_file(file) | tensors, file, metadata={"format": "pt"})
        return folder

    make.folder = tmp_path / "sick"
    return make


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def config_of(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "config.json").read_text())


def test_a_sound_folder(sound):
    found = examine(sound)
    assert found.findings == () and not found.mends
    assert [check.verdict for check in found.checks] == ["right"]


SCALED = {"rope_type": "linear", "factor": 2.0}
MENDED = {
    "a base at the top, saved by transformers 5": (
        THETA, {}, f"as transformers {VERSION} saves no other", {"rope_theta": None},
    ),
    "a base at the top, which the weights bear out": (
        {**THETA, "transformers_version": "4.30.0", "rope_parameters": {"rope_type": "default", "rope_theta": 1e6}},
        {STORED: 1.0 / (1e4 ** (torch.arange(0, 16, 2, dtype=torch.float) / 16))},
        "rope_theta 10000.0 stands, as the frequencies that are stored with the weights",
        {"rope_theta": None, "rope_parameters": {"rope_type": "default", "rope_theta": 1e4}},
    ),
    "one in rope_parameters, which the weights bear out": (
        {**THETA, "transformers_version": None}, {STORED: FREQUENCIES.half()},
        "rope_theta 500000.0 stands, as the frequencies", {"rope_theta": None},
    ),
    "rope_scaling beside rope_parameters": (
        {"rope_scaling": SCALED}, {}, f"rope_parameters stands, as transformers {VERSION}", {"rope_scaling": None},
    ),
    "head_dim": ({"head_dim": 32}, {}, "head_dim 16, as the weights are", {"head_dim": 16}),
    "key heads": ({"num_key_value_heads": 1}, {}, "num_key_value_heads 2, as", {"num_key_value_heads": 2}),
}  # fmt: skip


@pytest.mark.parametrize("case", MENDED)
def test_contradictions_that_can_be_decided(case, edited, sound, tmp_path):
    """The new folder says one thing, loads, and is sound; the old one is as it was."""
    changes, tensors, says, expected = MENDED[case]
    folder = edited(changes, tensors)
    before = contents(folder)
    found = examine(folder)
    assert all(finding.mended for finding in found.findings) and says in found.findings[0].mended, found
    assert {check.verdict for check in found.checks} == {"wrong"}
    names = write(found, tmp_path / "mended")
    assert contents(folder) == before
    assert "config.json" in names and not examine(tmp_path / "mended").findings
    config = config_of(tmp_path / "mended")
    assert {name: config.get(name) for name in expected} == expected
    assert {n: d for n, d in contents(tmp_path / "mended").items() if n not in names} == {
        n: d for n, d in before.items() if n not in names
    }
    model = load(tmp_path / "mended")
    assert torch.equal(model.model.embed_tokens.weight, load(sound).model.embed_tokens.weight)


LINEAR = 1.0 / (1e4 ** (torch.arange(0, 16, 2, dtype=torch.float) / 16)) / 2
# 1 / 10000 ** (2 i / 8), 8 of 16 channels, divided by 2: linear scaling
HALVED = 1.0 / (1e4 ** (torch.arange(0, 8, 2, dtype=torch.float) / 8)) / 2
WIDTH = {"model_type": "glm4", "architectures": ["Glm4ForCausalLM"], "partial_rotary_factor": 1.0}
TOGETHER = {
    "base and scaling": (
        {**THETA, "rope_scaling": SCALED}, {STORED: LINEAR},
        {"rope_parameters": {"rope_type": "linear", "rope_theta": 1e4, "factor": 2.0}},
    ),
    "base outside, scaling inside": (
        {**THETA, "rope_scaling": {"rope_type": "default"}, "rope_parameters": {**SCALED, "rope_theta": 5e5}},
        {STORED: LINEAR},
        {"rope_parameters": {"rope_type": "linear", "rope_theta": 1e4, "factor": 2.0}},
    ),
    "base, width and scaling": (
        {**THETA, **WIDTH, "rope_scaling": SCALED,
         "rope_parameters": {"rope_type": "default", "rope_theta": 5e5, "partial_rotary_factor": 0.5}},
        {STORED: HALVED},
        {"rope_parameters": {"rope_type": "linear", "rope_theta": 1e4, "factor": 2.0, "partial_rotary_factor": 0.5}},
    ),
    "a size, and a base that shows only in the right size": (
        {**THETA, "head_dim": 32, "rope_scaling": None}, {STORED: FREQUENCIES},
        {"head_dim": 16, "rope_parameters": {"rope_type": "default", "rope_theta": 5e5}},
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", TOGETHER)
def test_contradictions_that_only_show_together(case, edited):
    """Each by itself leaves other frequencies than the stored ones; one combination gives them."""
    changes, tensors, expected = TOGETHER[case]
    found = examine(edited({**changes, "transformers_version": None}, tensors))
    assert len(found.findings) > 1 and all(finding.mended for finding in found.findings), found
    assert {name: found.config.get(name) for name in expected} == expected
    assert not {"rope_theta", "rope_scaling", "partial_rotary_factor"} & found.config.keys() and not found.tensors


def test_contradictions_of_which_no_combination_fits(edited):
    found = examine(edited({**THETA, "rope_scaling": SCALED}, {STORED: FREQUENCIES * 3}))
    assert not found.mends and len(found.findings) == 2
    assert {finding.way_out for finding in found.findings} == {
        "none of the 4 ways to read the config gives the frequencies that are stored with the weights; keep that one "
        "by hand"
    }


def test_a_contradiction_that_the_stored_frequencies_do_not_show(edited):
    """YaRN with another attention factor has the same frequencies: that stays, and the base is decided."""
    from phasor import read_config

    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128}
    true = {**config_of(edited({})), "rope_parameters": {**yarn, "rope_theta": 1e4}}
    stored = read_config(true).with_angles("float32").layers[0].inv_freq().float()
    shutil.rmtree(edited.folder)
    inner = {**yarn, "rope_theta": 5e5}
    found = examine(
        edited({**THETA, "rope_parameters": inner, "rope_scaling": {**yarn, "attention_factor": 2.0}}, {STORED: stored})
    )
    assert [bool(finding.mended) for finding in found.findings] == [True, False]
    assert "both give the frequencies that are stored" in found.findings[1].way_out
    assert found.config["rope_parameters"] == {**inner, "rope_theta": 1e4} and "rope_scaling" in found.config


AMBIGUOUS = {
    "two bases and nothing that decides": (
        {**THETA, "transformers_version": "4.40.0"}, "nothing in the folder says which one the weights were",
    ),
    "two scalings and nothing that decides": (
        {"rope_scaling": SCALED, "transformers_version": None}, "nothing in the folder says which one",
    ),
    "sizes that several changes would mend": (
        {"num_attention_heads": 8, "num_key_value_heads": None, "head_dim": 16}, "no single size makes them fit",
    ),
    "a key that the code does not read": (
        {"partial_rotary_factor": 0.5}, "change that key by hand",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", AMBIGUOUS)
def test_what_is_ambiguous_is_named_and_not_guessed(case, edited):
    changes, says = AMBIGUOUS[case]
    found = examine(edited(changes))
    assert not found.mends and [finding.mended for finding in found.findings] == [""]
    assert says in found.findings[0].way_out, found


@pytest.mark.parametrize(
    "own, words",
    [
        (FREQUENCIES.bfloat16(), "rounded to bfloat16"),
        (FREQUENCIES.half(), "rounded to float16"),
        (torch.zeros(8), "zeros"),
        (FREQUENCIES * 2, "other values than the config gives"),
    ],
)
def test_stored_frequencies_that_the_model_does_not_read(own, words, edited, tmp_path):
    """transformers forms its own, so stored ones can only repeat the config. Other tensors stay byte for byte."""
    folder = edited({}, {STORED: own})
    before = load_file(folder / "model.safetensors")
    found = examine(folder)
    assert [(f.place, f.what) for f in found.findings] == [(STORED, f"stored frequencies are {words}")]
    assert write(found, tmp_path / "mended") == ["model.safetensors"]
    after = load_file(tmp_path / "mended" / "model.safetensors")
    assert torch.equal(after[STORED], FREQUENCIES) and after[STORED].dtype == torch.float32
    assert list(after) == list(before)
    assert all(torch.equal(after[name], before[name]) for name in before if name != STORED)
    assert not examine(tmp_path / "mended").findings


def test_stored_frequencies_that_the_model_reads(tmp_path):
    """Of another encoding they may be what the weights were trained with: named. Rounded they are mended."""
    import transformers

    config = transformers.EsmConfig(
        vocab_size=33, hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32,
        position_embedding_type="rotary", pad_token_id=1,
    )  # fmt: skip
    folder = tmp_path / "esm"
    transformers.EsmModel(config).save_pretrained(folder)
    tensors = load_file(folder / "model.safetensors")
    (name,) = (n for n in tensors if n.endswith("inv_freq"))
    for own, mended in ((tensors[name].bfloat16(), True), (tensors[name] / 2, False)):
        save_file(tensors | {name: own}, folder / "model.safetensors", metadata={"format": "pt"})
        found = examine(folder)
        assert [bool(finding.mended) for finding in found.findings] == [mended], found


def test_nothing_is_written_over_or_half(edited, tmp_path, monkeypatch):
    folder = edited(THETA)
    found = examine(folder)
    (tmp_path / "there").mkdir()
    for target, says in [
        (tmp_path / "there", "must be a new folder, and .* is there already"),
        (folder / "inside", "must not be inside the source or around it"),
        (folder, "is there already"),
    ]:
        with pytest.raises(ValueError, match=says):
            write(found, target)
    before = contents(tmp_path)
    monkeypatch.setattr("phasor.support.whole_files.sync_folder", _full)
    with pytest.raises(OSError, match="No space"):
        write(found, tmp_path / "new")
    assert contents(tmp_path) == before and not (tmp_path / "new").exists()


def test_a_number_without_end_stays(edited, tmp_path):
    """As hybrids with Mamba's layers state it."""
    endless = {"time_step_limit": [0.0, float("inf")]}
    write(examine(edited(THETA | endless)), tmp_path / "mended")
    assert config_of(tmp_path / "mended").items() >= endless.items()


def test_of_links_the_content_is_copied(edited, tmp_path):
    """A hub's cache: files are links to blobs; here a folder is one, too."""
    folder, beside = edited(THETA), tmp_path / "beside"
    (beside / "deep").mkdir(parents=True)
    (beside / "deep" / "words.txt").write_text("of another folder")
    (folder / "linked").symlink_to(beside)
    (folder / "notes" / "link.txt").symlink_to(beside / "deep" / "words.txt")
    write(examine(folder), tmp_path / "mended")
    made = contents(tmp_path / "mended")
    assert made["linked/deep/words.txt"] == made["notes/link.txt"] == b"of another folder"
    assert made.keys() == contents(folder).keys() | {"linked/deep/words.txt"}
    assert not any(p.is_symlink() for p in (tmp_path / "mended").rglob("*"))


@pytest.mark.parametrize("where, to, says", [
    ("around", ".", "around: links to a folder around it, so a copy has no end"),
    ("notes/around", "..", "around: links to a folder around it"),
    ("farther", "../..", "farther: links to a folder around it"),
    ("nothing", "nowhere", r"nothing: cannot be opened \(No such file or directory\)"),
])  # fmt: skip
def test_links_that_cannot_be_copied(where, to, says, edited, tmp_path):
    folder = edited(THETA)
    (folder / where).symlink_to(to)
    with pytest.raises(ValueError, match=says):
        write(examine(folder), tmp_path / "mended")
    assert {path.name for path in tmp_path.iterdir()} == {"sick"}


def test_every_folder_is_synced(edited, tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr("phasor.support.whole_files.sync_folder", lambda path: synced.append(path.name))
    write(examine(edited(THETA)), tmp_path / "mended")
    assert synced[1:] == ["notes", tmp_path.name] and synced[0] == "new"


def _full(path: Path) -> None:
    raise OSError(28, "No space left on device")
