"""Texts as tokens with their entities, and the count of what the tokens cannot say."""

from dataclasses import dataclass

from .example import Entity


@dataclass(frozen=True)
class Encoded:
    """The tokens of one window of a text.

    ``offsets``: the characters of each token in the text, half-open; ``special``: the tokens that stand for no
    character of it (``[CLS]``, ``[SEP]``, ...), never part of a span; ``spans``: ``(type, first token, last token)``,
    both included; ``example``: the index of the text; ``shift``: added to the index of a token that is not special,
    the index of that token in the whole text's encoding.
    """

    ids: list[int]
    offsets: list[tuple[int, int]]
    special: list[bool]
    example: int
    spans: list[tuple[int, int, int]]
    shift: int = 0


@dataclass(frozen=True)
class Report:
    """What became of the entities: ``kept + misaligned + truncated == entities``.

    ``misaligned``: they begin or end inside a token (or in characters that the tokenizer drops). ``truncated``: no
    window holds them whole. ``crossing`` (all of them kept or counted above): they overlap another without one
    containing the other. ``lost``: those not kept, with their source and the reason.
    """

    entities: int
    kept: int
    misaligned: int
    truncated: int
    crossing: int
    lost: tuple[tuple[str, Entity, str], ...] = ()

    def __str__(self) -> str:
        return (
            f"{self.kept} of {self.entities} entities kept, {self.misaligned} misaligned with the tokens, "
            f"{self.truncated} truncated by the windows; {self.crossing} cross another{self._first()}"
        )

    def _first(self) -> str:
        if not self.lost:
            return ""
        source, entity, reason = self.lost[0]
        return f"; first {reason}: {entity.label} from {entity.start} to {entity.end} at {source}"
