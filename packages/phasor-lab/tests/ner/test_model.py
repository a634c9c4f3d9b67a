import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from phasor_lab.ner import load, make_tokenizer, predict, train
from phasor_lab.ner.encoders import BiLSTM
from phasor_lab.ner.model import SpanModel, save
from phasor_lab.ner.pretrained import load_pretrained, make_pretrained
from phasor_lab.ner.tokens import tokenizer_and_limits, tokenizer_of_encoder

from .toy import DEV, RUN, TOKENIZER, TRAIN, model, model_config, train_config


def rows(mask):
    return torch.randint(0, 10, mask.shape), mask


@pytest.mark.parametrize("head", ["efficient", "global-pointer"])
def test_scores_do_not_depend_on_padding(head):
    spans = model(head=head).eval()
    ids, mask = rows(torch.tensor([[True] * 9, [True] * 5 + [False] * 4]))
    batch = spans(ids, mask)[1, :, :5, :5]
    alone = spans(ids[1:, :5], mask[1:, :5])[0]
    torch.testing.assert_close(batch, alone, rtol=1e-5, atol=1e-5)
    assert bool((spans(ids, mask)[1, :, 5:] == -torch.inf).all())


def test_special_tokens_have_no_spans():
    spans = model().eval()
    ids, mask = rows(torch.ones(1, 6, dtype=torch.bool))
    content = mask.clone()
    content[0, [0, 5]] = False
    scores = spans(ids, mask, content)[0]
    assert bool((scores[:, [0, 5]] == -torch.inf).all()) and bool((scores[..., [0, 5]] == -torch.inf).all())
    assert torch.equal(scores[:, 1:5, 1:5], spans(ids, mask)[0][:, 1:5, 1:5])


def test_the_bilstm_is_torchs_on_packed_sequences():
    encoder = BiLSTM(model_config(layers=2)).eval()
    outside = nn.LSTM(32, 16, num_layers=2, bidirectional=True, batch_first=True)
    for layer in range(2):
        for lstm, suffix in ((encoder.forwards[layer], ""), (encoder.backwards[layer], "_reverse")):
            for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
                getattr(outside, f"{name}_l{layer}{suffix}").data.copy_(getattr(lstm, f"{name}_l0").data)
    ids, mask = rows(torch.arange(7) < torch.tensor([[7], [4], [1]]))
    packed = nn.utils.rnn.pack_padded_sequence(encoder.embedding(ids), mask.sum(1), batch_first=True)
    want, _ = nn.utils.rnn.pad_packed_sequence(outside(packed)[0], batch_first=True)
    torch.testing.assert_close(encoder(ids, mask)[mask], want[mask])


def test_a_saved_model_has_the_same_scores(tmp_path):
    spans = model().eval()
    save(tmp_path, spans, TOKENIZER, RUN)
    again = load(tmp_path)
    ids, mask = rows(torch.ones(2, 6, dtype=torch.bool))
    assert torch.equal(again.model(ids, mask), spans(ids, mask))
    assert again.tokenizer.encode("ada").ids == TOKENIZER.encode("ada").ids
    assert again.model.config == spans.config


def test_no_file_of_a_model_holds_a_character_that_a_terminal_obeys(tmp_path):
    text = "a\x85b\u202ec\x7f"
    tokenizer = make_tokenizer("characters", [text] * 8)  # rare ones have no token
    save(tmp_path, model(vocab=tokenizer.get_vocab_size()), tokenizer, RUN)
    assert (tmp_path / "tokenizer.json").read_text().isascii()
    assert load(tmp_path).tokenizer.encode(text).ids == tokenizer.encode(text).ids


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "model.safetensors"])
def test_a_folder_without_a_file_or_with_a_damaged_one_is_named(tmp_path, name):
    save(tmp_path, model(), TOKENIZER, RUN)
    data = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(data[: len(data) // 2])
    with pytest.raises(ValueError, match=r"must (hold a model|be the weights of a model) of `phasor ner train`, got: "):
        load(tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(
        ValueError, match=f"model must be a folder as `phasor ner train` makes it, got .* without {name}"
    ):
        load(tmp_path)


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"labels": ()}, "labels must name at least one type, got none"),
        ({"encoder": "cnn"}, "encoder must be 'bilstm', 'convolution' or 'pretrained', got 'cnn'"),
        ({"head": "crf"}, "head must be 'efficient' or 'global-pointer', got 'crf'"),
        ({"dim": 31}, "dim must be even"),
        ({"dropout": 1.0}, "dropout must be below 1, got 1.0"),
        ({"overlap": 32}, "overlap must be below max_length = 32, got 32"),
        ({"layers": 10**9}, "layers must be at most 1,024, got 1,000,000,000; make it smaller"),
        ({"layers": 1e9}, "layers must be an integer of at least 1, got 1000000000.0"),
        ({"head_dim": 10**9}, "head_dim must be at most 4,096, got 1,000,000,000"),
        ({"dim": 2**14, "layers": 1024}, "the number of weights must be at most 2,147,483,648, got"),
        ({"labels": ("a", "b", "a")}, "labels must differ, got 'a' twice"),
        ({"labels": (1, 2)}, r"labels must be a tuple of names, got \(1, 2\)"),
        ({"labels": "person"}, "labels must be a tuple of names, got 'person'"),
        ({"rotary": 1}, "rotary must be True or False, got 1"),
    ],
)
def test_bad_shapes_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        model_config(**changes)


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json"])
def test_a_change_that_no_weight_tells_of_is_noticed(tmp_path, name):
    save(tmp_path, model(), TOKENIZER, RUN)
    text = (tmp_path / name).read_text()
    changed = text.replace('"rotary": true', '"rotary": false').replace('"a": ', '"A": ')
    assert changed != text
    (tmp_path / name).write_text(changed)
    with pytest.raises(
        ValueError, match=f"got: {name} that is absent or has changed since it was written beside the we"
    ):
        load(tmp_path)


def test_a_tokenizer_with_more_tokens_than_the_model_is_named(tmp_path):
    save(tmp_path, model(vocab=5), TOKENIZER, RUN)
    with pytest.raises(ValueError, match=r"tokenizer.json: token 17, where the model has 5 embeddings"):
        load(tmp_path)


def test_an_encoder_of_absurd_size_is_refused_before_it_is_built(bert, tmp_path):
    settings = json.loads((bert / "config.json").read_text())
    for change, message in (
        ({"num_hidden_layers": 10**9}, "encoder must have at most 1024 layers, got 1000000000 in the config of"),
        ({"intermediate_size": 10**12}, "the number of weights must be at most 2,147,483,648, got"),
    ):
        (tmp_path / "config.json").write_text(json.dumps(settings | change))
        with pytest.raises(ValueError, match=message):
            make_pretrained(tmp_path)


def test_nobody_is_asked_for_a_tokenizer(bert, monkeypatch):
    """The names of files that are absent are not looked up at the hub, whatever the environment allows."""
    import transformers

    asked = []
    real = transformers.AutoTokenizer.from_pretrained
    monkeypatch.setattr(
        transformers.AutoTokenizer, "from_pretrained", lambda *a, **how: (asked.append(how), real(*a, **how))[1]
    )
    tokenizer_of_encoder(bert)
    assert asked == [{"local_files_only": True, "trust_remote_code": False}]


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    """A folder with a very small BERT of random weights and its word-piece tokenizer."""
    transformers = pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("bert")
    words = "[PAD] [UNK] [CLS] [SEP] [MASK] met saw and in fc ada bob eve ivan no ##or rome oslo lima cairo"
    (folder / "vocab.txt").write_text(words.replace(" ", "\n"))
    transformers.BertTokenizer(str(folder / "vocab.txt")).save_pretrained(folder)
    config = transformers.BertConfig(
        vocab_size=20, hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32,
        max_position_embeddings=24,
    )  # fmt: skip
    transformers.BertModel(config).save_pretrained(folder)
    return folder


def test_a_transformers_encoder_trains_and_is_saved_whole(bert, tmp_path):
    tokenizer, longest = tokenizer_and_limits(bert, "characters", [], 256)
    assert longest == 24
    config = model_config(encoder="pretrained", vocab=tokenizer.get_vocab_size(), max_length=longest)
    spans = SpanModel(config, load_pretrained(bert))
    (tmp_path / "encoder").mkdir()
    (tmp_path / "encoder/config.json.7.partial").touch()  # by a run that was killed
    result = train(spans, tokenizer, TRAIN, DEV, train_config(epochs=8), tmp_path)
    assert result.dev.f1 > 0.95
    again = load(tmp_path)  # from the folder alone
    found = predict(again, ["noor met bob in rome fc", ""])
    assert [(p.start, p.end, p.label) for p in found[0]] == [
        (0, 4, "name"), (9, 12, "name"), (16, 20, "place"), (16, 23, "club")
    ]  # fmt: skip
    assert found[1] == [] and not list(tmp_path.rglob("*.partial"))


def test_an_encoder_stored_in_half_precision_is_trained_in_float32(bert, tmp_path):
    half = tmp_path / "half"
    load_pretrained(bert).to(torch.bfloat16).save_pretrained(half)
    assert {p.dtype for p in load_pretrained(half).parameters()} == {torch.float32}


def test_weights_are_loaded_in_silence_and_none_may_be_missing(bert, tmp_path, capfd):
    """Without a pooler, as of a masked language model; without a matching name, transformers fills in random ones."""
    shutil.copytree(bert, tmp_path, dirs_exist_ok=True)
    weights = load_file(bert / "model.safetensors")
    spared = {name: tensor for name, tensor in weights.items() if "pooler" not in name}
    save_file(spared | {"cls.bias": torch.zeros(2)}, tmp_path / "model.safetensors", metadata={"format": "pt"})
    assert torch.equal(load_pretrained(tmp_path).embeddings.LayerNorm.weight, weights["embeddings.LayerNorm.weight"])
    assert capfd.readouterr() == ("", "")
    save_file({"x." + name: tensor for name, tensor in weights.items()}, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match=r"folder with all weights of its BertModel, got .* without 21 of them, emb"):
        load_pretrained(tmp_path)


def test_a_tokenizer_of_another_model_is_refused(bert, tmp_path):
    transformers = pytest.importorskip("transformers")
    shutil.copytree(bert, tmp_path, dirs_exist_ok=True)
    transformers.BertConfig(vocab_size=19, hidden_size=32, num_hidden_layers=1, num_attention_heads=2).save_pretrained(
        tmp_path
    )
    with pytest.raises(ValueError, match="an embedding for each token of its tokenizer, got 19 embeddings and the tok"):
        tokenizer_and_limits(tmp_path, "characters", [], 256)


def test_an_encoder_without_a_longest_text_takes_what_is_asked_for(bert, tmp_path):
    transformers = pytest.importorskip("transformers")
    shutil.copytree(bert, tmp_path, dirs_exist_ok=True)
    config = transformers.XLNetConfig(vocab_size=20, d_model=32, n_layer=1, n_head=2, d_inner=32)
    config.save_pretrained(tmp_path)
    assert config.max_position_embeddings == -1
    assert tokenizer_and_limits(tmp_path, "characters", [], 256)[1] == 256


def test_positions_that_begin_behind_the_padding_token_are_counted(bert, tmp_path):
    transformers = pytest.importorskip("transformers")
    config = transformers.RobertaConfig(
        vocab_size=20, hidden_size=32, num_hidden_layers=1, num_attention_heads=2, max_position_embeddings=26
    )
    shutil.copytree(bert, tmp_path, dirs_exist_ok=True)
    config.save_pretrained(tmp_path)
    assert config.pad_token_id == 1
    assert tokenizer_and_limits(tmp_path, "characters", [], 256)[1] == 24
    config = transformers.ModernBertConfig(
        max_position_embeddings=200
    )  # rotary: its padding token, 50283, is no offset
    config.save_pretrained(tmp_path)
    assert tokenizer_and_limits(tmp_path, "characters", [], 256)[1] == 200


def test_folders_that_transformers_cannot_use_are_refused(bert, tmp_path):
    transformers = pytest.importorskip("transformers")
    shutil.copytree(bert, tmp_path, dirs_exist_ok=True)
    weights = (tmp_path / "model.safetensors").read_bytes()
    (tmp_path / "model.safetensors").write_bytes(weights[:500])
    with pytest.raises(ValueError, match=r"encoder must be a folder that transformers can load, got .*header"):
        load_pretrained(tmp_path)
    for file in [*tmp_path.glob("tok*"), *tmp_path.glob("vocab*")]:
        file.unlink()
    with pytest.raises(ValueError, match=r"encoder must have a tokenizer in its folder \(tokenizer.json\), got none"):
        tokenizer_and_limits(tmp_path, "characters", [], 256)
    (tmp_path / "config.json").write_text('{"model_type": "nonsense"}')
    with pytest.raises(ValueError, match=r"encoder must be a folder that transformers can load, got .*nonsense"):
        tokenizer_and_limits(tmp_path, "characters", [], 256)
    transformers.T5Config(vocab_size=20, d_model=32, num_layers=1).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="encoder must be an encoder alone, got t5, which has a decoder"):
        tokenizer_and_limits(tmp_path, "characters", [], 256)


@pytest.mark.parametrize("name", ["config.json", "tokenizer_config.json", "tokenizer.json"])
@pytest.mark.parametrize("text", ["[]", "{"])
def test_of_an_encoder_the_file_that_is_no_json_object_is_named(bert, tmp_path, name, text):
    shutil.copytree(bert, tmp_path, dirs_exist_ok=True)
    (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match=rf"{name}: (must hold a JSON object, got list|is not JSON in UTF-8: Exp)"):
        tokenizer_and_limits(tmp_path, "characters", [], 256)


def test_an_encoder_with_weights_that_are_no_numbers_is_refused(bert, tmp_path):
    shutil.copytree(bert, tmp_path, dirs_exist_ok=True)
    weights = load_file(tmp_path / "model.safetensors")
    name = next(name for name in weights if name.endswith("word_embeddings.weight"))
    weights[name][3, 1] = float("nan")
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ValueError, match=r"encoder must have finite weights, got .* with others in .*word_emb"):
        load_pretrained(tmp_path)


def test_slow_tokenizers_and_folders_without_encoder_are_refused(tmp_path):
    transformers = pytest.importorskip("transformers")
    with pytest.raises(ValueError, match="encoder must be a folder with a transformers encoder"):
        tokenizer_and_limits(tmp_path, "characters", [], 256)
    transformers.CanineTokenizer().save_pretrained(tmp_path)
    transformers.CanineConfig().save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"encoder must have a fast tokenizer .* got the slow CanineTokenizer"):
        tokenizer_and_limits(tmp_path, "characters", [], 256)
