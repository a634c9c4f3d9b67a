"""The command line as a person meets it: what it prints, what it writes, how it refuses."""

import json
import os
import random
from pathlib import Path

import pytest

import limited

LLAMA = {
    "model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8,
    "num_hidden_layers": 2, "max_position_embeddings": 8192, "rope_theta": 500000.0,
}  # fmt: skip


def process(python, *args, **env):
    """The command line as a process of its own."""
    command = [python, "-m", "phasor", *map(str, args)]
    return limited.run(command, encoding="utf-8", env={**os.environ, **env})


@pytest.fixture
def config(tmp_path) -> Path:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(LLAMA))
    return path


def test_page(config, phasor):
    code, page, err = phasor("inspect", config)
    assert code == 0 and not err
    for said in (
        "llama, 2 of 2 layers rotate, 32 query heads, 8 key heads, 8,192 positions",
        "rope_theta → base 500000",
        "channel 0 pairs with 64",
        "wavelengths 6.283",
        "float32 angles are off by",
    ):
        assert said in page
    assert phasor("inspect", config.parent)[1] == page  # a folder that holds it


def test_json(config, phasor):
    data = json.loads(phasor("inspect", config, "--json")[1])
    assert data["layers"] == [0, 0] and data["rotations"][0]["spec"]["base"] == 500000.0
    assert len(data["rotations"][0]["wavelengths"]) == 64


def test_brief(config, tmp_path, phasor):
    """A line for each; only a config that is not understood is a mistake."""
    texts = {
        "bert": {"model_type": "bert", "hidden_size": 64, "num_attention_heads": 4},
        "typo": LLAMA | {"rope_thetta": 1.0},
        "none": {"name": "no model"},
    }
    for name, text in texts.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(text))
    bert, typo, none, absent = (tmp_path / f"{name}.json" for name in (*texts, "absent"))
    code, said, err = phasor("inspect", "--brief", config, bert)
    assert code == 0 and not err
    first, second = said.splitlines()
    assert first.startswith(f"{config}: llama, 2 of 2 layers: ") and "base 500000" in first
    assert second == f"{bert}: bert uses learned absolute positions; it has no rotary embedding to read"
    code, said, err = phasor("inspect", "--brief", typo, absent, config, none)
    lines = said.splitlines()
    assert code == 2 and not err and [": not read: " in line for line in lines] == [True, True, False, True]
    assert lines[0].startswith(f"{typo}: not read: rope_thetta is 1.0") and "model_type is missing" in lines[3]


def test_diff(config, tmp_path, phasor):
    other = tmp_path / "other.json"
    other.write_text(json.dumps(LLAMA | {"rope_theta": 10000.0}))
    code, said, _ = phasor("inspect", "--diff", config, other)
    assert code == 1 and "base: 500000.0  |  10000.0" in said and "from position" in said
    same, differs = (phasor("inspect", "--diff", "--json", config, path) for path in (config, other))
    assert same[0] == 0 and json.loads(same[1])["same"] is True
    assert differs[0] == 1 and json.loads(differs[1])["same"] is False


def test_diff_names_the_width_of_heads(config, tmp_path, phasor):
    """Their pairs lie otherwise as well, which is not why no tensor fits both."""
    other = tmp_path / "other.json"
    other.write_text(json.dumps(LLAMA | {"num_attention_heads": 64}))
    said = phasor("inspect", "--diff", config, other)[1]
    assert "heads have 128 and 64 channels: no tensor fits both" in said and "paired" not in said
    config.write_text(json.dumps(LLAMA | {"model_type": "glm", "head_dim": 128}))
    other.write_text(json.dumps(LLAMA | {"model_type": "glm", "head_dim": 128, "partial_rotary_factor": 0.25}))
    said = phasor("inspect", "--diff", config, other)[1]
    assert "64 and 32 channels of a head rotate: they disagree at every position but 0" in said and "paired" not in said


def test_diff_of_layers_that_do_not_rotate(tmp_path, phasor):
    paths = [tmp_path / f"{name}.json" for name in "abc"]
    for path, layers in zip(paths, ([1, 0, 0], [0, 0, 1], [1, 0, 0]), strict=True):
        path.write_text(json.dumps(LLAMA | {"model_type": "smollm3", "num_hidden_layers": 3, "no_rope_layers": layers}))
    code, said, _ = phasor("inspect", "--diff", "--json", *paths[:2])
    found = {tuple(one["layers"]): one["reason"] for one in json.loads(said)["findings"]}
    assert code == 1 and found == {
        (0,): "only the first rotates here", (1,): "neither rotates", (2,): "only the second rotates here",
    }  # fmt: skip
    assert phasor("inspect", "--diff", paths[0], paths[2])[0] == 0


def test_a_terminal_without_unicode(config, python):
    done = process(python, "inspect", config, PYTHONIOENCODING="ascii")
    assert done.returncode == 0 and "base 500000" in done.stdout


def test_a_refusal_is_one_line_and_exit_code_2(tmp_path, python):
    done = process(python, "inspect", tmp_path / "nowhere.json")
    assert done.returncode == 2 and not done.stdout
    assert done.stderr.count("\n") == 1 and done.stderr.startswith("phasor: ") and "nowhere.json" in done.stderr


def test_refusals(tmp_path, config, phasor):
    def refused(*args) -> str:
        code, said, err = phasor(*args)
        assert code == 2 and not said
        return err

    def one_line(*args) -> str:
        said = refused(*args)
        assert said.count("\n") == 1 and said.startswith("phasor: ")
        return said

    def written(text: str) -> Path:
        path = tmp_path / "bad.json"
        path.write_text(text)
        return path

    one_line("inspect", written("{"))
    one_line("inspect", written("[" * 100_000))
    one_line("inspect", written("[1, 2]"))
    assert "no rotary function" in one_line("inspect", written(json.dumps({"model_type": "resnet"})))
    assert "rope_thetta" in one_line("inspect", written(json.dumps(LLAMA | {"rope_thetta": 1.0})))
    assert "--diff compares two" in one_line("inspect", "--diff", config)
    assert "one config at a time" in one_line("inspect", config, config)
    assert "--brief is a line for each" in one_line("inspect", "--brief", config, "--json")
    assert "CONFIG" in refused("inspect")
    assert "seq-len" in refused("inspect", config, "--seq-len", "0")


def test_a_closed_pipe_is_no_error(config, python):
    command = f"{python} -m phasor inspect {config} | head -1"
    done = limited.run(command, shell=True)
    assert done.returncode == 0 and not done.stderr


@pytest.mark.parametrize("share", [pytest.param(1, marks=pytest.mark.slow, id="all"), pytest.param(6, id="a sixth")])
def test_every_config_has_a_page(share, shared_data):
    """In this process, for speed: each config that can be read gives a page that names its keys."""
    from phasor import read_config
    from phasor.tools.inspect.model_page import model_facts, page, to_dict

    paths = sorted(shared_data.glob("configs/*/*.json"))
    pages = 0
    for path in random.Random(0).sample(paths, len(paths) // share):
        try:
            model = read_config(path)
        except ValueError:
            continue  # which configs are refused, and why, is tested with the reader
        facts = model_facts(model)
        text = page(model, facts)
        assert all(key in text for key in model.sources) and text.count("\nrotation") == len(model.distinct)
        json.dumps(to_dict(model, facts), allow_nan=False)
        pages += 1
    assert pages > 100 / share
