"""Damaged configs of checkpoints: refused before anything is written, by a line that names config.json and the key."""
# ruff: noqa: E501 (one defect a line)

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from phasor.support.plain_text import one_line
from phasor.tools.checkpoints import make_plan

from . import synthetic
from .test_bad_inputs import SIZES, config

NAN, TEN_MB = float("nan"), "x" * 10_000_000
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1024}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 1024,
}
LONG = {
    "rope_type": "longrope",
    "short_factor": [1.0] * 8,
    "long_factor": [1.0] * 8,
    "original_max_position_embeddings": 1024,
}


def scaling(**words: Any) -> Callable[[Path], None]:
    return config(rope_scaling=words)


def text(data: bytes | str) -> Callable[[Path], None]:
    return lambda folder: (
        (folder / "config.json").write_bytes(data if isinstance(data, bytes) else data.encode()) and None
    )


def instead(make: Callable[[Path], Any]) -> Callable[[Path], None]:
    """Something else stands where the config was."""

    def spoil(folder: Path) -> None:
        (folder / "config.json").unlink()
        make(folder / "config.json")

    return spoil


def circle_of_two(path: Path) -> None:
    path.symlink_to(path.with_name("other.json"))
    path.with_name("other.json").symlink_to(path)


HEAD = '{"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2'
# what must be named beside config.json; nothing where no key is at fault
BAD: dict[str, tuple[Callable[[Path], None], str]] = {
    "theta beyond floats": (text(HEAD + ', "rope_theta": 1e400}'), "rope_theta"),
    "theta negative": (config(rope_theta=-1e4), "rope_theta"),
    "theta 0": (config(rope_theta=0), "rope_theta"),
    "theta 1": (config(rope_theta=1), "rope_theta"),
    "theta a word": (config(rope_theta="10000"), "rope_theta"),
    "theta a truth": (config(rope_theta=True), "rope_theta"),
    "theta a list": (config(rope_theta=[1e4]), "rope_theta"),
    "theta misspelt": (config(rope_tehta=1e6), "rope_tehta"),
    "factor 0": (scaling(rope_type="linear", factor=0), "factor"),
    "factor negative": (scaling(rope_type="linear", factor=-2.0), "factor"),
    "factor missing": (scaling(rope_type="linear"), "factor"),
    "factor a word": (scaling(rope_type="linear", factor="4"), "factor"),
    "factor NaN": (scaling(rope_type="linear", factor=NAN), "factor"),
    "factor misspelt": (scaling(rope_type="linear", factr=2.0, factor=2.0), "factr"),
    "unknown scaling": (scaling(rope_type="lineer", factor=2.0), "lineer"),
    "two names of a scaling": (scaling(rope_type="linear", type="yarn", factor=2.0), "type"),
    "two scalings": (config(rope_scaling={"rope_type": "linear", "factor": 2.0}, rope_parameters={**YARN, "rope_theta": 1e4}), "rope_(scaling|parameters)"),
    "scaling a word": (config(rope_scaling="linear"), "rope_scaling"),
    "scaling a number": (config(rope_scaling=4.0), "rope_scaling"),
    "scaling a list": (config(rope_scaling=[{"rope_type": "linear", "factor": 2.0}]), "rope_scaling"),
    "llama3: bounds swapped": (scaling(**{**LLAMA3, "low_freq_factor": 8.0}), "low_freq_factor|high_freq_factor"),
    "llama3: no original length": (scaling(**{k: v for k, v in LLAMA3.items() if "original" not in k}), "original_max_position"),
    "yarn: betas swapped": (scaling(**YARN, beta_fast=1, beta_slow=32), "beta_fast|beta_slow"),
    "yarn: original length 0": (scaling(**{**YARN, "original_max_position_embeddings": 0}), "original_max_position"),
    "longrope: a short list": (scaling(**{**LONG, "short_factor": [1.0] * 3}), "short_factor"),
    "longrope: NaN": (scaling(**{**LONG, "long_factor": [NAN] * 8}), "long_factor"),
    "longrope: one list": (scaling(**{k: v for k, v in LONG.items() if k != "long_factor"}), "long_factor"),
    "share of channels above 1": (config(partial_rotary_factor=1.5), "partial_rotary_factor"),
    "share of channels negative": (config(partial_rotary_factor=-0.5), "partial_rotary_factor"),
    "share of channels a word": (config(partial_rotary_factor="half"), "partial_rotary_factor"),
    "length negative": (config(max_position_embeddings=-1), "max_position_embeddings"),
    "length a word": (config(max_position_embeddings="4096"), "max_position_embeddings"),
    "length a fraction": (config(max_position_embeddings=4096.5), "max_position_embeddings"),
    "heads 0": (config(num_attention_heads=0), "num_attention_heads"),
    "heads negative": (config(num_attention_heads=-4), "num_attention_heads"),
    "heads a word": (config(num_attention_heads="4"), "num_attention_heads"),
    "heads a fraction": (config(num_attention_heads=4.5), "num_attention_heads"),
    "heads of k 0": (config(num_key_value_heads=0), "num_key_value_heads"),
    "width 0": (config(hidden_size=0), "hidden_size"),
    "width of a head 0": (config(head_dim=0), "head_dim"),
    "width of a head a word": (config(head_dim="16"), "head_dim"),
    "layers 0": (config(num_hidden_layers=0), "num_hidden_layers"),
    "layers negative": (config(num_hidden_layers=-1), "num_hidden_layers"),
    "layers 10^6": (config(num_hidden_layers=10**6), r"num_hidden_layers|layers\."),
    "layers 10^18": (config(num_hidden_layers=10**18), "num_hidden_layers"),
    "layers missing": (config(num_hidden_layers=None), r"layers\.2\."),
    "a kind of layers misspelt": (config(model_type="qwen2", layer_types=["fulll_attention"] * 2), "fulll_attention"),
    "sections a word": (config(model_type="qwen2_vl", rope_scaling={"type": "mrope", "mrope_section": "2,3,3"}), "mrope_section"),
    "model a number": (config(model_type=7), "model_type"),
    "model a list": (config(model_type=["llama"]), "model_type"),
    "model nothing": (config(model_type=""), "model_type"),
    "model of 10 MB": (config(model_type=TEN_MB), "model_type"),
    "a part that is a list": (config(model_type="llava", text_config=[]), "text_config"),
    "a key twice": (text(HEAD + ', "hidden_size": 32}'), "hidden_size"),
    "empty": (text(""), ""),
    "a list": (text("[]"), ""),
    "a word": (text('"llama"'), ""),
    "null": (text("null"), ""),
    "UTF-16": (text((HEAD + "}").encode("utf-16")), ""),
    "no UTF-8": (text(b'{"model_type": "\xff"}'), ""),
    "cut": (text(HEAD), ""),
    "a comma too many": (text(HEAD + ",}"), ""),
    "a comment": (text("// mine\n" + HEAD + "}"), ""),
    "nested 900 times": (text('{"text_config": ' * 900 + "{}" + "}" * 900), ""),
    "nested 10^5 times": (text('{"a": ' * 10**5), ""),
    "a folder": (instead(Path.mkdir), ""),
    "a pipe": (instead(os.mkfifo), ""),
    "a device": (instead(lambda path: path.symlink_to("/dev/zero")), ""),
    "a link to nothing": (instead(lambda path: path.symlink_to("nowhere")), ""),
    "a link to itself": (instead(lambda path: path.symlink_to(path)), ""),
    "two links in a circle": (instead(circle_of_two), ""),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_refused_by_a_line_that_names_the_file_and_the_key(name, tmp_path):
    spoil, key = BAD[name]
    folder = synthetic.write(tmp_path / "model", **SIZES)
    spoil(folder)
    with pytest.raises(ValueError, match=key or "config.json") as error:
        make_plan(folder, "interleaved")
    says = one_line(str(error.value))  # as the command line prints it
    assert "config.json" in says and len(says) < 3000 and says.isprintable(), says
