"""What a fault does to a model's answers, in one sentence for somebody who has never heard of rotary positions."""

_TABLES = (
    "the model takes tokens to be nearer or farther apart than they are; short prompts may look fine, long ones fail"
)
_SHARPNESS = "attention is sharper or flatter than in training, so answers are off at every length"
_BATCH = "the answer to one text depends on what else is in the batch"
_CACHE = "the answer depends on how the text was fed: at once, in pieces, or token by token while generating"

EFFECTS = {  # by the beginning of what was looked at
    "frequencies": _TABLES,
    "tables": _TABLES,
    "table ": _TABLES,
    "positions have an effect": "the model cannot tell the order of words",
    "positions": "tokens are taken to stand at other places in the text",
    "rotation of q and k": "attention sees distances that it was not trained on: text gets worse at every length",
    "shift of all positions": "the answer depends on where the text begins, and not only on what it says",
    "own positions of each row": _BATCH,
    "padded": _BATCH,
    "alone": _BATCH,
    "packed": "documents that share a row see each other's positions, in training too",
    "same prompt": "a long call changes the answers to all later ones",
    "cached": _CACHE,
    "chunked": _CACHE,
    "compiled": "the compiled model gives other answers than its own code",
    "eager": "another implementation of attention gives other answers",
    "logits": "some of the model's outputs are no numbers",
    "loss on the text": "the model predicts real text worse than its weights can",
    "consistency": "programs that read this folder will disagree about what the model is",
}


def effect_of(what: str, cause: str = "") -> str:
    """The sentence for what was looked at and why it is wrong, or nothing where none is known.

    >>> effect_of("padded left = alone")
    'the answer to one text depends on what else is in the batch'
    """
    if cause == "attention factor":
        return _SHARPNESS
    return next((effect for start, effect in EFFECTS.items() if what.startswith(start)), "")
