import json

import pytest
import torch

from phasor.encodings.heads import decode
from phasor_lab.ner import Prediction, Score, load, predict
from phasor_lab.ner.data import Example, align
from phasor_lab.ner.metrics import Scores, to_dict
from phasor_lab.ner.metrics import page as score_page
from phasor_lab.ner.predict import predict_windows
from phasor_lab.ner.view import marked

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


CLUB, PLACE, CROSSING = Prediction(3, 12, "club", 0.9), Prediction(3, 7, "place", 0.8), Prediction(5, 14, "name", 0.7)
TEXT = "in lima & <b>co</b>"


def test_the_marked_text_names_every_span_whatever_nests_or_crosses():
    assert marked(TEXT, [CLUB, PLACE]) == "in [[lima place 0.80] & <b club 0.90]>co</b>"
    assert marked(TEXT, [CLUB, CROSSING]) == "in [li[ma & <b club 0.90]>c name 0.70]o</b>"
    assert marked("", []) == ""


def test_a_label_of_a_megabyte_is_cut_wherever_it_is_shown():
    label = "x" * 10**6
    spans = [Prediction(0, 4, label, 0.5)]
    assert len(marked(TEXT, spans)) < 3000


def test_the_page_of_scores_says_what_is_taken_for_what():
    score = Score(3, 4, 6)
    scores = Scores(score, {"club": score, "name": Score(0, 0, 1)}, Score(1, 1, 1), {
        ("club", "club"): 3, ("club", "name"): 1, ("club", None): 2, (None, "name"): 5
    })  # fmt: skip
    lines = score_page(scores).splitlines()
    assert lines[1].split() == ["all", "0.7500", "0.5000", "0.6000", "3", "4", "6"]
    assert [line.split() for line in lines[-3:]] == [
        ["club", "1", "3", "1", "2"], ["name", "2", ".", ".", "."], ["extra", ".", "5"]
    ]  # fmt: skip
    assert json.loads(json.dumps(to_dict(scores)))["confusion"][1] == ["club", "name", 1]
