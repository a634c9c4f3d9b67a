"""Flags as people type them: what is nearly one of them is no other flag."""

import pytest

from phasor_serve.engines.flags import json_object, length, parse

KNOWN = {"--hf-overrides": json_object, "--max-model-len": length}


def test_a_misspelled_flag_is_named():
    with pytest.raises(ValueError, match=r"--hf-overides is no flag .*; --hf-overrides is meant"):
        parse("vllm serve M --hf-overides '{}'", KNOWN, {}, "vllm")
    assert parse("vllm serve M --max-num-seqs 8 --tensor-parallel-size 2", KNOWN, {}, "vllm") == {}


def test_quotes_that_the_shell_took_away():
    with pytest.raises(ValueError, match="inside quoted flags, put single quotes around it"):
        parse('--hf-overrides {"rope_theta":1e6}', KNOWN, {}, "vllm")


@pytest.mark.parametrize(
    "text, value", [("4096", 4096), ("32k", 32_000), ("32K", 32_768), ("1m", 1_000_000), ("1M", 1_048_576)]
)
def test_a_length_as_vllm_reads_it(text, value):
    """As vLLM's documentation says of --max-model-len: small letters are decimal units, capitals binary ones."""
    assert length(text) == value


@pytest.mark.parametrize("text", ["k", "", "32kk", "1.5k", "many"])
def test_what_is_no_length(text):
    with pytest.raises(ValueError, match="must be a number of positions, got"):
        length(text)
    with pytest.raises(ValueError, match=r"^--max-model-len must be an integer of at least 1, got -5$"):
        parse("--max-model-len -5", KNOWN, {}, "vllm")
