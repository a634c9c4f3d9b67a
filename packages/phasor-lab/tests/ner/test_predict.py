import pytest
import torch

from phasor.encodings.heads import decode
from phasor_lab.ner import load, predict
from phasor_lab.ner.data import Example, align
from phasor_lab.ner.predict import predict_windows

from .toy import DEV, LABELS, TOKENIZER, model


@pytest.fixture(scope="module")
def saved(trained):
    return load(trained.folder)


def spans(predictions):
    return [(p.start, p.end, p.label) for p in predictions]


def test_predictions_are_the_cells_above_the_threshold(saved):
    text = "ada met bob in rome fc"
    ids = torch.tensor([saved.tokenizer.encode(text).ids])
    scores = saved.model(ids, torch.ones_like(ids, dtype=torch.bool)).detach()
    cells = [(s.start, s.end + 1, LABELS[s.type], s.score) for s in decode(scores)[0]]  # one token a character
    (found,) = predict(saved, [text], mode="all")
    assert [(p.start, p.end, p.label) for p in found] == [cell[:3] for cell in sorted(cells)]
    assert [p.score for p in found] == pytest.approx([cell[3] for cell in sorted(cells)], abs=1e-6)
    assert (0, 3, "name") in spans(found) and (15, 22, "club") in spans(found)


def test_long_texts_are_read_in_windows(saved):
    """The model's windows have 32 characters; sentences it knows, one after the other, are found in a longer text."""
    sentence = "ada met bob in rome and "
    text = sentence * 20
    (found,) = predict(saved, [text])
    names = {span for span in spans(found) if span[2] == "name"}
    want = {(24 * i + at, 24 * i + at + 3, "name") for i in range(20) for at in (0, 8)}
    assert len(want & names) > 0.8 * len(want)
    assert len(set(spans(found))) == len(found)


def test_batches_and_order_do_not_matter(saved):
    texts = [example.text for example in DEV[:7]] + ["", "ada"]
    together = predict(saved, texts, batch=4)
    alone = [predict(saved, [text])[0] for text in texts]
    assert [spans(p) for p in together] == [spans(p) for p in alone]
    assert together[7] == []


def test_a_model_that_calls_all_cells_entities_is_read_by_its_best(monkeypatch):
    """As one that has just begun does: at n = 256 that would be 32896 spans a label and text."""
    spans = model().eval()
    scores = torch.randn(1, 3, 20, 20, generator=torch.manual_seed(0)).triu() + 10
    monkeypatch.setattr(spans, "forward", lambda *_: scores.masked_fill(torch.ones(20, 20).tril(-1) > 0, -torch.inf))
    windows, _ = align([Example("x" * 20, (), "")], TOKENIZER, LABELS, max_length=32)
    every, best = (predict_windows(spans, windows, 1, threshold=0.5, mode="all", most=most)[0] for most in (None, 2))
    assert (len(every), len(best)) == (3 * 210, 40)
    assert set(best) <= set(every)
    assert min(p.score for p in best) >= sorted(p.score for p in every)[-40]


def test_a_higher_threshold_keeps_less(saved):
    texts = [example.text for example in DEV]
    low, high = (predict(saved, texts, threshold=t, mode="all") for t in (0.1, 0.9))
    assert all(set(spans(h)) <= set(spans(ours)) for h, ours in zip(high, low, strict=True))
    assert all(p.score > 0.9 for found in high for p in found)
    with pytest.raises(ValueError, match="threshold must be"):
        predict(saved, texts, threshold=2.0)
    with pytest.raises(ValueError, match="mode must be"):
        predict(saved, texts, mode="some")
