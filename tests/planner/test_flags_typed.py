"""Flags as people type them: what is nearly one of them is no other flag."""

import pytest

from phasor.serving.engines.flags import json_object, length, parse

KNOWN = {"--hf-overrides": json_object, "--max-model-len": length}


def test_a_misspelled_flag_is_named():
    with pytest.raises(ValueError, match=r"--hf-overides is no flag .*; --hf-overrides is meant"):
        parse("vllm serve M --hf-overides '{}'", KNOWN, {}, "vllm")
    assert parse("vllm serve M --max-num-seqs 8 --tensor-parallel-size 2", KNOWN, {}, "vllm") == {}


def test_quotes_that_the_shell_took_away():
    with pytest.raises(ValueError, match="inside quoted flags, put single quotes around it"):
        parse('--hf-overrides {"rope_theta":1e6}', KNOWN, {}, "vllm")
