"""One law for all published encodings: what others computed in float64, and one token at a time, padded or packed."""

import pytest
import torch

from phasor.encodings import Encoding
from phasor.encodings.attention import KVCache, attention
from phasor.encodings.base import Tokens, for_heads
from published import LENGTH, PUBLISHED, read
from published_by_position import BY_POSITION

ROWS = PUBLISHED | BY_POSITION
KEYS = ("q", "k", "v")
EARLIER = torch.ones(LENGTH, LENGTH).tril().bool()


@pytest.fixture(params=ROWS)
def published(request):
    return ROWS[request.param]


@pytest.fixture
def file(published, shared_data):
    return published.given(read(shared_data, published.file))


def attend(published, file, encoding, *, kernel="auto", rows=slice(0, LENGTH), **more):
    """Some of the tokens of a file."""
    q, k, v = (file[name][None, :, rows] for name in KEYS)
    hidden = published.hidden(file)
    hidden = hidden if hidden is None else hidden[:, rows]
    more = {"q_positions": file["pos"][rows], "causal": published.causal, **more}
    return attention(q, k, v, encoding, hidden=hidden, kernel=kernel, **more)


def close(ours, expected, atol):
    torch.testing.assert_close(ours, expected, rtol=0, atol=atol)


@pytest.mark.parametrize("kernel", ["auto", "reference"])
def test_gives_the_published_output(published, file, kernel):
    if published.out in file:  # else its logits are there
        close(attend(published, file, published.encoding(file), kernel=kernel)[0], file[published.out], 1e-12)


@pytest.mark.parametrize("at", ["pos", "far_pos"])
def test_gives_the_published_logits(published, file, at):
    far = at.removesuffix("pos")
    names = [far + name for name in (published.logits, "bias") if far + name in file]
    if not names:
        return  # this file has none
    encoding, positions = published.encoding(file), file[at]
    q, k = encoding.rotate(file["q"][None], file["k"][None], positions, positions)
    hidden, scale = published.hidden(file), encoding.default_scale(q.shape[-1])
    gates = None if hidden is None else encoding.gates(hidden, positions[None])
    seen = EARLIER[None, None] if published.causal else None
    scores = scale * q @ for_heads(k, q.shape[1]).mT
    bias = encoding.content_bias(q, k, Tokens(positions[None], positions[None], seen, gates), scale)
    ours = scores if bias is None else scores + bias
    expected = file[names[0]] + (scores[0] if "bias" in names[0] else 0)
    where = EARLIER if published.causal else torch.ones_like(EARLIER)
    close(ours.expand(1, *expected.shape)[0][:, where], expected[:, where], 1e-12)


def test_gives_the_published_weights(published, file):
    if published.weights not in file:
        return  # this file has none
    logits, at = file["q"][None] @ file["k"][None].mT * file["q"].shape[-1] ** -0.5, file["pos"][None]
    ours = published.encoding(file).weights(logits, Tokens(at, at, EARLIER[None, None]))
    close(ours[0], file[published.weights], 1e-12)


@pytest.mark.parametrize("at", ["", "far_"])
def test_gives_the_published_queries_and_keys(published, file, at):
    if at + "q_turned" not in file or not published.turned:
        return  # this one turns nothing, or otherwise
    positions = file["far_pos" if at else "pos"]
    turned = published.encoding(file).rotate(file["q"][None], file["k"][None], positions, positions)
    for ours, name in zip(turned, ("q_turned", "k_turned"), strict=True):
        # far keys of xPos are large numbers
        torch.testing.assert_close(ours[0], file[at + name], rtol=1e-12, atol=1e-12)


@torch.no_grad()
def test_flex_gives_it_too(published, file):
    """Within float32, in which some of its terms are looked up."""
    encoding = published.encoding(file)
    kind = type(encoding)
    adds, can = (
        any(getattr(kind, name) is not getattr(Encoding, name) for name in names)
        for names in (("bias", "content_bias"), ("score_mod", "content_score_mod"))
    )
    if encoding.needs_weights or (adds and not can):
        with pytest.raises(ValueError, match="kernel='flex'"):
            attend(published, file, encoding, kernel="flex")
    else:
        close(attend(published, file, encoding, kernel="flex"), attend(published, file, encoding), 1e-6)


def test_gives_the_published_row_of_decoding(published, file):
    encoding, cache = published.encoding(file), KVCache()
    if encoding.whole_only:
        with pytest.raises(ValueError, match=r"cache, .* must be None for .*: a row depends on the key behind it"):
            attend(published, file, encoding, cache=cache)
        return
    attend(published, file, encoding, rows=slice(0, LENGTH - 1), cache=cache)
    ours = attend(published, file, encoding, rows=slice(LENGTH - 1, LENGTH), cache=cache)
    whole = file[published.out] if published.out in file else attend(published, file, encoding)[0]
    close(ours[0], file.get("dec_" + published.out, whole[:, -1:]), 1e-12)


def test_gives_the_published_gradients(published, file):
    inputs = {name: file[name].clone().requires_grad_() for name in (*KEYS, *published.gates)}
    encoding = published.encoding(file)
    named = inputs | {name: published.parameter(encoding, name) for name in published.learned}
    wanted = {name: file["grad_" + name] for name in named if "grad_" + name in file}
    if published.out != "out" or not wanted:
        return  # the file has the gradients of one of its outputs
    loss = (attend(published, {**file, **inputs}, encoding)[0] * file["g_out"]).sum()
    for ours, (name, expected) in zip(
        torch.autograd.grad(loss, [named[n] for n in wanted]), wanted.items(), strict=True
    ):
        assert expected.abs().sum() > 0, name
        close(ours if name in inputs else published.as_filed(name, ours, file), expected, 1e-8)


def in_float32(published, file):
    """The same tokens and parameters."""
    narrow = {name: x.float() if x.is_floating_point() else x for name, x in file.items()}
    return published.encoding(file).float(), narrow


@pytest.mark.parametrize("chunks", [[1] * LENGTH, [5, 4, 1, 2]])
def test_decoding_equals_the_full_pass(published, file, chunks):
    encoding, narrow = in_float32(published, file)
    if encoding.whole_only or not published.causal:
        return
    cache, parts, start = KVCache(), [], 0
    for length in chunks:
        parts.append(attend(published, narrow, encoding, rows=slice(start, start + length), cache=cache))
        start += length
    close(torch.cat(parts, -2), attend(published, narrow, encoding), 1e-6)


def test_packed_documents_are_as_if_alone(published, file):
    encoding, narrow = in_float32(published, file)
    if encoding.whole_only:
        return
    first = 7
    positions = torch.cat((narrow["pos"][:first], narrow["pos"][: LENGTH - first]))
    documents = (torch.arange(LENGTH) >= first).long()
    packed = attend(published, narrow, encoding, q_positions=positions, document_ids=documents)
    for rows in (slice(0, first), slice(first, LENGTH)):
        alone = attend(published, narrow, encoding, rows=rows, q_positions=positions[rows])
        close(packed[:, :, rows], alone, 1e-6)


def test_padding_changes_nothing(published, file):
    encoding, narrow = in_float32(published, file)
    if encoding.whole_only:
        return
    padded = {x: torch.cat((narrow[x][:, -3:], narrow[x]), 1) for x in (*KEYS, *published.gates)}
    padded["pos"] = torch.cat((torch.zeros(3, dtype=torch.int64), narrow["pos"]))
    mask = (torch.arange(LENGTH + 3) < 3)[None]
    ours = attend(published, padded, encoding, rows=slice(0, LENGTH + 3), key_padding_mask=mask)
    close(ours[:, :, 3:], attend(published, narrow, encoding), 1e-6)


def test_nan_in_what_was_learned_is_named(published, file):
    encoding = published.encoding(file)
    for name, parameter in encoding.named_parameters():
        with torch.no_grad():
            parameter.view(-1)[0] = torch.nan
        with pytest.raises(ValueError, match=rf"{name} of {type(encoding).__name__} must be finite"):
            attend(published, file, encoding)
        break


def test_hidden_must_be_there_and_fit(published, file):
    encoding = published.encoding(file)
    if not encoding.gated:
        return
    q, k, v = (file[name][None] for name in KEYS)
    for hidden, got in ((None, "None"), (published.hidden(file)[:, :5], r"\[1, 5, ")):
        with pytest.raises(ValueError, match=rf"hidden must be \[B, K, dim\] with B = 1 and K = 12 .* got {got}"):
            attention(q, k, v, encoding, q_positions=file["pos"], hidden=hidden)
