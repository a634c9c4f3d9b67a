"""The numbers of a config, by their usual keys first and then whatever their keys are called."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeGuard

# What configs call the parameters, written small and without separators (`_plain`). The first of them is the usual one.
SPELLINGS: dict[str, tuple[str, ...]] = {
    "factor": ("factor", "scalingfactor", "ropescalingfactor", "ropefactor", "scalefactor", "scale"),
    "alpha": ("alpha", "ntkalpha", "ropealpha", "ntkfactor"),
    "original": (
        "originalmaxpositionembeddings", "originalmaxposition", "originalmaxlen", "originalcontextlength",
        "originalseqlen", "initialcontextlength", "oldcontextlen",
    ),
    "length": (
        "maxpositionembeddings", "maxposition", "maxseqlen", "maxseqlength", "seqlength", "maxsequencelength",
        "nctx", "npositions", "contextlength", "modelmaxlength",
    ),
    "beta_fast": ("betafast", "ntkbeta", "beta"),
    "beta_slow": ("betaslow",),
    "low": ("lowfreqfactor",),
    "high": ("highfreqfactor",),
    "attention": ("attentionfactor", "attnfactor", "attentionscaling"),
    "mscale": ("mscale",),
    "mscale_all_dim": ("mscalealldim",),
    "short_mscale": ("shortmscale",),
    "long_mscale": ("longmscale",),
    "short": ("shortfactor",),
    "long": ("longfactor",),
    "truncate": ("truncate",),
    "fraction": ("partialrotaryfactor", "rotarypct", "rotarypercent", "ropepct"),
}  # fmt: skip
_MEANING = {spelling: meaning for meaning, spellings in SPELLINGS.items() for spelling in spellings}
_BASES = ("theta", "base")  # a key that holds one of these is a base's
# The schemes that a word speaks of, by their `name`s; several may share one word.
_WORDS = {
    "linear": ("linear",),
    "dynamic": ("dynamic", "ntk"),
    "dynamicntk": ("stepped_ntk", "dynamic"),
    "ntk": ("ntk_fixed", "ntk"),
    "alpha": ("ntk",),
    "yarn": ("yarn", "yarn_paper"),
    "longrope": ("longrope",),
    "su": ("longrope",),
    "llama3": ("llama3",),
    "proportional": ("proportional",),
}
_LONGEST = 1024  # a longer list is no list of bases or divisors, but of tokens or labels


class Numbers:
    """What a config offers: its numbers in a good order to try, its lists, its words, and its *places*.

    A place is one of its dictionaries, through which parameters are looked up by what they mean: in itself, then in
    those around it, so that ``rope_parameters.full_attention`` finds ``max_position_embeddings`` at the top.

    >>> numbers = Numbers({"rope_theta": 5e5, "rope_scaling": {"rope_type": "linear", "factor": 4.0}, "layers": 2})
    >>> numbers.bases, numbers.places[0].get("factor"), numbers.words
    ((500000.0,), 4.0, ('linear',))
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.places: list[Place] = []
        self.lists: list[tuple[float, ...]] = []
        self._found: dict[float, bool] = {}  # number -> whether it is called a base
        self._said: dict[str, None] = {}
        self._walk(config, None)
        self.places.sort(key=lambda place: -place.speaks)
        self.bases = tuple(number for number, called in self._found.items() if called and number > 1)
        self.others = tuple(number for number, called in self._found.items() if not called)
        self.whole = tuple(int(number) for number in self._found if number >= 2 and number.is_integer())
        self.lengths = tuple(dict.fromkeys((*self._called("original"), *self._called("length"))))
        self.words = tuple(self._said)

    def near(self, value: float, tolerance: float) -> float | None:
        """The number of the config that is the nearest to ``value``, if it is within that relative tolerance."""
        if value > 1e300:
            return None
        best = min(self._found, key=lambda number: abs(number - value), default=None)
        return best if best is not None and abs(best - value) <= tolerance * abs(value) else None

    def parameters(self, *meanings: str) -> Iterator[dict[str, Any]]:
        """What each place says of ``meanings``, those alone that it knows; nothing twice."""
        told = []
        for place in self.places:
            values = {meaning: value for meaning in meanings if (value := place.get(meaning)) is not None}
            if values not in told:
                told.append(values)
                yield values

    def _called(self, meaning: str) -> Iterator[int]:
        """Every length under any spelling of ``meaning``, not the nearest alone: configs state several."""
        for place in self.places:
            values = (place.keys.get(spelling) for spelling in SPELLINGS[meaning])
            yield from (int(value) for value in values if is_number(value) and value >= 2)

    def _walk(self, data: Mapping[str, Any], around: Place | None) -> None:
        place = Place(data, around)
        self.places.append(place)
        for key, value in data.items():
            name = _plain(str(key))
            if isinstance(value, Mapping):
                self._walk(value, place)
            elif isinstance(value, str) or value is True:
                said = _WORDS.get(_plain(value) if isinstance(value, str) else name.removeprefix("use"), ())
                self._said.update(dict.fromkeys(said))
            elif isinstance(value, (list, tuple)) and len(value) <= _LONGEST:
                self._listed(name, value)
            elif is_number(value):
                self._note(name, value)

    def _listed(self, name: str, values: Any) -> None:
        if _is_list(values):
            self.lists.append(tuple(values))
            for value in dict.fromkeys(values):
                self._note(name, value)

    def _note(self, name: str, value: float) -> None:
        called = any(word in name for word in _BASES)
        self._found[float(value)] = self._found.get(float(value), False) or called


class Place:
    """A dictionary of a config together with those around it, the innermost first."""

    def __init__(self, data: Mapping[str, Any], around: Place | None = None) -> None:
        self.keys = {_plain(str(key)): value for key, value in data.items()}
        self._around = around
        self._meant = {meaning: value for meaning in SPELLINGS if (value := self._here(meaning)) is not None}
        self.speaks = sum(name in _MEANING for name in self.keys) if around is not None else 0

    def get(self, meaning: str) -> Any:
        """The value under a spelling of ``meaning``, else under a key that ends so; None where there is none."""
        if meaning in self._meant or self._around is None:
            return self._meant.get(meaning)
        return self._around.get(meaning)

    def _here(self, meaning: str) -> Any:
        fits = _FITS.get(meaning, is_number)
        spellings = SPELLINGS[meaning]
        alike = (name for name in self.keys if name not in _MEANING and name.endswith(spellings[0]))
        values = (self.keys.get(name) for name in (*spellings, *alike))
        return next((value for value in values if fits(value)), None)


def is_number(value: Any) -> TypeGuard[float]:
    """Whether it is a number that a float can hold, and no flag."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e300


def _plain(name: str) -> str:
    """Without case and separators, in which spellings of one name differ."""
    return "".join(c for c in name.lower() if c.isalnum())


def _is_list(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and bool(value) and all(is_number(item) for item in value)


_FITS = {"short": _is_list, "long": _is_list, "truncate": lambda value: isinstance(value, bool)}
