"""Faults of tables whose cause the doctor names by golden's judging: cos for sin, a ladder in reverse, other parameters
of a scaling, TF32, tables that end too early. Each is put in by hand, in the model's own arithmetic."""

import pytest
import torch

import phasor

pytest.importorskip("transformers")
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 8192}  # fmt: skip
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4096}


def llama(scaling=None):
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(
        hidden_size=128, num_attention_heads=2, num_hidden_layers=1, intermediate_size=64, vocab_size=64,
        max_position_embeddings=32_768, rope_theta=500_000.0, rope_scaling=scaling,
    )).eval()  # fmt: skip


def tf32(x):
    return ((x.contiguous().view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)


def by_tables(forward):
    """A model whose rotary module is of a class of its own."""

    def broken():
        model = llama()
        module = model.model.rotary_emb
        own = type(module)
        module.__class__ = type("Changed", (own,), {"forward": lambda self, x, position_ids: forward(
            lambda at: own.forward(self, x, at), self, x, position_ids)})  # fmt: skip
        return model

    return broken


def with_frequencies(change, scaling=None):
    def broken():
        model = llama(scaling)
        module = model.model.rotary_emb
        module.inv_freq = module.original_inv_freq = change(module.inv_freq)
        return model

    return broken


def of_config(scaling, **changes):
    """The frequencies that another config gives."""
    return with_frequencies(lambda _: llama({**scaling, **changes}).model.rotary_emb.inv_freq, scaling)


def in_tf32(own, self, x, at):
    angles = tf32(at.float())[..., None] * tf32(self.inv_freq)
    return torch.cat((angles, angles), -1).cos(), torch.cat((angles, angles), -1).sin()


FAULTS = {
    "cos for sin": (by_tables(lambda own, self, x, at: own(at)[::-1]), "cos and sin exchanged", "exchanged"),
    "TF32": (by_tables(in_tf32), "half precision", "TF32"),
    "a table that ends": (by_tables(lambda own, self, x, at: own(at.clamp(max=2047))), "positions", "beyond 2047"),
    "int16": (by_tables(lambda own, self, x, at: own(at.to(torch.int16).long())), "positions", "int16 ends at 32,767"),
    "reverse": (with_frequencies(lambda f: f.flip(0).clone()), "frequencies in reverse order", "is reversed"),
    "llama3 low": (of_config(LLAMA3, low_freq_factor=2.0), "scaling", "low_freq_factor of the llama3 scaling is 2"),
    "yarn fast": (of_config(YARN, beta_fast=16.0), "scaling", "beta_fast of the yarn scaling is 16, and must be 32"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_the_cause_is_named(name):
    broken, cause, words = FAULTS[name]
    found = phasor.diagnose(broken())
    assert found.causes and all(one.startswith(cause) for one in found.causes), str(found)
    assert any(words in fault.reason for fault in found.wrong), str(found)
