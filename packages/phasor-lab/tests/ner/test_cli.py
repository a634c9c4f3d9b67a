import json

import pytest

pytest.importorskip("typer")
from typer.testing import CliRunner

from phasor_lab.cli.ner import app
from phasor_lab.ner import evaluate, load, read

from .toy import DEV, TRAIN, write_spans

TINY = ["--lr", "0.01", "--threads", "1"]


def call(*words, stdin=None):
    """What the command prints; its error is raised."""
    result = CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False, input=stdin)
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    data = write_spans(folder / "train.jsonl", TRAIN), write_spans(folder / "dev.jsonl", DEV)
    shown = call("train", data[0], "--dev", data[1], "--out", folder / "model", "--epochs", 6, *TINY)
    return folder, shown


def test_training_tells_of_the_data_and_of_every_epoch(files):
    _, shown = files
    lines = shown.splitlines()
    assert lines[0] == "model: convolution on words, width 96"
    assert lines[1].startswith("train: 120 texts, ") and "0 misaligned" in lines[1]
    assert [line.split()[1] for line in lines[3:-1]] == [f"{i}/6" for i in range(1, 7)]
    assert "dev F1" in lines[-1] and "of 6," in lines[-1]


def test_evaluate_shows_what_the_metrics_say(files):
    folder, _ = files
    numbers = json.loads(call("evaluate", folder / "model", folder / "dev.jsonl", "--json"))
    call("predict", folder / "model", folder / "dev.jsonl")  # any text will do
    texts = "\n".join(example.text for example in DEV) + "\n"
    (folder / "texts").write_text(texts)
    predicted = folder / "predicted.jsonl"
    predicted.write_text(call("predict", folder / "model", folder / "texts"))
    scores = evaluate([example.entities for example in DEV], [example.entities for example in read(predicted)])
    assert numbers["overall"]["f1"] == scores.overall.f1 > 0.5
    assert numbers["nested"]["gold"] == scores.nested.gold > 0
    shown = call("evaluate", folder / "model", folder / "dev.jsonl")
    assert f"{scores.overall.f1:.4f}" in shown.splitlines()[1]


def test_predict_reads_a_file_or_the_standard_input(files, tmp_path):
    folder, _ = files
    (tmp_path / "texts").write_bytes(b"ada met bob in rome\r\n\r\nivan\n")
    shown = call("predict", folder / "model", tmp_path / "texts")
    assert [json.loads(line)["text"] for line in shown.splitlines()] == ["ada met bob in rome", "", "ivan"]
    assert call("predict", folder / "model", "-", stdin="ada met bob in rome\n\nivan\n") == shown
    assert call("predict", folder / "model", stdin="") == ""
    first = json.loads(shown.splitlines()[0])["spans"][0]
    assert set(first) == {"start", "end", "label", "score"}


def spans(**span):
    return json.dumps({"text": "ada", "spans": [span]})


@pytest.mark.parametrize(
    "line, broken, message",
    [
        (17, '{"text": "ada", "spa', "must be JSON"),
        (1, spans(start=0, end=3, label="nmae"), "'nmae'"),
        (4, spans(start=2, end=1, label="name"), "2"),
        (1, spans(start=0, end=9, label="name"), "9"),
    ],
)
def test_broken_data_is_one_line_and_nothing_is_written(files, tmp_path, line, broken, message):
    folder, _ = files
    lines = (folder / "dev.jsonl").read_text().splitlines()
    lines[line - 1] = broken
    (tmp_path / "data.jsonl").write_text("\n".join(lines) + "\n")
    with pytest.raises(ValueError, match=rf"data\.jsonl:{line}: .*{message}") as error:
        call("train", folder / "train.jsonl", "--dev", tmp_path / "data.jsonl", "--out", tmp_path / "model", *TINY)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize(
    "words, message",
    [
        (["--encoder", "cnn"], "encoder must be a folder with a transformers encoder, got 'cnn'"),
        (["--lr", "0"], "lr must be a finite number above 0"),
        (["--device", "abacus"], "--device must be one that torch can compute on here, got 'abacus'"),
        (["--device", "meta"], "--device must be one that torch can compute on here, got 'meta': Tensor.item"),
        (["--threads", "1025"], "--threads must be at most 1024, got 1025"),
        (["--threads", str(10**30)], r"--threads must be an integer of at most 2\*\*62, got 1"),
    ],
)
def test_mistakes_are_value_errors(files, tmp_path, words, message):
    folder, _ = files
    with pytest.raises(ValueError, match=message):
        call("train", folder / "train.jsonl", "--dev", folder / "dev.jsonl", "--out", tmp_path / "model", *words)
    assert not (tmp_path / "model").exists()


def test_columns_of_tags_are_named_for_training_and_development(tmp_path):
    data = tmp_path / "columns.conll"
    data.write_text("ada NN B-name\nmet VB O\n\nbob NN B-name\n")
    words = ["train", data, "--dev", data, "--out", tmp_path / "model", "--epochs", 1, *TINY]
    with pytest.raises(ValueError, match=r"columns.conll:1: .*--column"):
        call(*words)
    call(*words, "--column", 2)
    assert load(tmp_path / "model").model.config.labels == ("name",)
    assert json.loads(call("evaluate", tmp_path / "model", data, "--column", 2, "--json"))["overall"]["gold"] == 2


def test_data_without_entities_and_labels_the_model_does_not_know(files, tmp_path):
    folder, _ = files
    (tmp_path / "none").write_text('{"text": "ada", "spans": []}\n')
    with pytest.raises(ValueError, match="none: file must hold at least one entity"):
        call("train", tmp_path / "none", "--dev", folder / "dev.jsonl", "--out", tmp_path / "model")
    (tmp_path / "other").write_text(spans(start=0, end=3, label="person"))
    words = ["evaluate", str(folder / "model"), str(tmp_path / "other"), "--json"]
    result = CliRunner().invoke(app, words, catch_exceptions=False)
    assert result.stderr.strip().endswith("was not trained on and misses: person")
    assert json.loads(result.stdout)["labels"]["person"]["gold"] == 1


def test_a_folder_that_is_no_model_and_a_file_that_is_no_text(files, tmp_path):
    folder, _ = files
    with pytest.raises(ValueError, match="model must be a folder as `phasor ner train` makes it"):
        call("predict", tmp_path, "-", stdin="ada")
    (tmp_path / "latin").write_bytes(b"caf\xe9")
    with pytest.raises(ValueError, match="latin:1: file must be UTF-8, got byte 0xe9 at offset 3"):
        call("predict", folder / "model", tmp_path / "latin")


@pytest.mark.parametrize("texts, head", [("ada met bob", "efficient"), ("彭小军认为", "global-pointer")])
def test_characters_have_queries_for_each_label_and_words_share_them(tmp_path, texts, head):
    """What was measured best over the encoder of each (docs/spans.md, section 12)."""
    line = json.dumps({"text": texts, "spans": [{"start": 0, "end": 3, "label": "name"}]}) + "\n"
    (tmp_path / "train.jsonl").write_text(line * 20)
    call("train", tmp_path / "train.jsonl", "--out", tmp_path, "--epochs", 1, *TINY)
    assert json.loads((tmp_path / "config.json").read_text())["model"]["head"] == head
