"""Small tokenizers of every kind that lays offsets differently, trained on a few sentences."""

from collections.abc import Callable
from typing import Any

from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

CORPUS = [
    "Ada met Bob in Paris and the quick brown fox",
    "Zoe\u0301 caf\u00e9 fine 12 bobs",
    "中国人民银行 नमस्ते 👩‍👩‍👧 𝒜da",
] * 4


def byte_level(*, prefix: bool = False, trim: bool | None = None, normalizer: Any = None, size: int = 300) -> Tokenizer:
    """BPE on bytes, as GPT-2 (prefix False) and RoBERTa (True, trimmed) have it."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix)
    if normalizer:
        tokenizer.normalizer = normalizer
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=size, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(CORPUS, trainer)
    if trim is not None:
        tokenizer.post_processor = processors.ByteLevel(trim_offsets=trim)
    return tokenizer


def sentence_piece(normalizer: Any = None) -> Tokenizer:
    """BPE on words that begin with ▁."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.normalizer = normalizer or normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.BpeTrainer(vocab_size=110, special_tokens=["<unk>"], show_progress=False)
    tokenizer.train_from_iterator(CORPUS, trainer)
    return with_specials(tokenizer)


def word_piece() -> Tokenizer:
    """BERT's: lower case, accents taken away, Chinese by characters."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(vocab_size=120, special_tokens=["[UNK]"], show_progress=False)
    tokenizer.train_from_iterator(CORPUS, trainer)
    return with_specials(tokenizer)


def characters(specials: bool = True) -> Tokenizer:
    """One token a character, white space too."""
    vocabulary = {c: i for i, c in enumerate(sorted({c for text in CORPUS for c in text}), start=1)}
    tokenizer = Tokenizer(models.WordLevel({"[UNK]": 0, **vocabulary}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    return with_specials(tokenizer) if specials else tokenizer


def with_specials(tokenizer: Tokenizer) -> Tokenizer:
    tokenizer.add_special_tokens(["[CLS]", "[SEP]"])
    ids = [(name, tokenizer.token_to_id(name)) for name in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=ids)
    return tokenizer


TOKENIZERS: dict[str, Callable[[], Tokenizer]] = {
    "characters": characters,
    "characters without special tokens": lambda: characters(specials=False),
    "words of BERT": word_piece,
    "bytes of GPT-2": byte_level,
    "bytes of RoBERTa": lambda: byte_level(prefix=True, trim=True),
    "bytes, not trimmed": lambda: byte_level(prefix=True, trim=False),
    "bytes without merges": lambda: byte_level(size=256),
    "bytes after NFKC": lambda: byte_level(normalizer=normalizers.NFKC()),
    "SentencePiece": sentence_piece,
    "SentencePiece without accents": lambda: sentence_piece(
        normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents()])
    ),
}
