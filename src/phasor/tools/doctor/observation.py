"""A model as the doctor observes it: its config as read, its modules, and what its attentions do in real calls."""

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from ... import eye
from ...eye.turning import Learned
from ...models.configs import read_config
from ...models.reading.refusal import Reason, Refused
from ...rotary.model_rotary import ModelRotary
from ...support.preserve_state import undisturbed
from ..patch.reading import ModelReading, specs_of
from ..patch.sites import find, nearest, nothing_rotates
from .inputs import Inputs, of_model
from .running import Decoding, Running, parts_of, subject_of
from .watching import attends, watch
from .ways import MOST, OWN_ROWS, Called, Way, called, ways

NO_VALUES = "the model is on the meta device; it is checked against the spec only"


class Observation:
    """What is known of a transformers model before anything is judged.

    - ``wrapper``: what is around the model (`torch.compile`), or the model.
    - ``sites``: where it uses positions; ``modules`` form cos and sin, ``stored`` keep them, by path.
    - ``reading``: its config as read. The examination of tables notes there which ones each module forms.
    - ``rotary``: what each part of the config rotates; ``specs``: all of them; ``length``: the longest declared.
    - ``nothing_rotates``: why not, empty where something may; ``on_meta``: whether weights have no values.
    - ``unread``: whether no row reads its config; ``watched``: its attentions as the eye sees them in one call.
    - ``subject``: how it is run, on ``inputs``; ``parts``: that, and the encoder beside it; ``plain`` and ``others``:
      the ways of calling a part, seen.

    ``bare``: the model of the same config without weights, where there is one already.
    """

    def __init__(
        self,
        model: nn.Module,
        inputs: Any = None,
        wrapper: Any = None,
        seen: eye.Observation | None = None,
        bare: nn.Module | None = None,
    ) -> None:
        self.model, self.wrapper = model, model if wrapper is None else wrapper
        self._inputs, self._seen, self._bare = inputs, seen, bare
        self._learned = Learned()
        self.sites = find(model)
        self.nothing_rotates = nothing_rotates(model)
        self.on_meta = any(p.is_meta for p in model.parameters())
        self.modules = {site.path: site.module for site in self.sites if site.kind == "tables"}
        self.stored = [site for site in self.sites if site.kind == "stored table"]
        self.reading = ModelReading(model, "float32")
        self.rotary = [part for part in self.reading.parts.values() if isinstance(part, ModelRotary)]
        self.specs = specs_of(self.rotary)
        self.length = self.rotary[0].max_position if self.rotary else None

    @property
    def unread(self) -> bool:
        parts = [part for part in self.reading.parts.values() if isinstance(part, str)]
        return not self.rotary and (not self.sites or any(part.startswith("not read") for part in parts))

    @property
    def contradiction(self) -> str:
        """Why its config is refused, where two keys of it contradict each other."""
        try:
            read_config(self.model.config)
        except Refused as refused:
            return str(refused) if refused.reason is Reason.CONTRADICTION else ""
        except ValueError:
            return ""
        return ""

    @cached_property
    def watched(self) -> eye.Observation | str:
        if self._seen is not None:
            return self._seen
        if self.on_meta:
            return NO_VALUES
        arguments = self._inputs if hasattr(self._inputs, "keys") else None
        return watch(self.model, arguments, whole=self.unread)

    @property
    def still(self) -> bool:
        """Whether nothing rotates in it, by its config and as it is seen."""
        watched = self.watched
        seen = not isinstance(watched, str) and not watched.turning and (attends(watched) or self.unread)
        return bool(seen) and not self.rotary

    def models_at(self, where: str) -> tuple[list[ModelRotary], str]:
        """What the config says of the part that a module belongs to, or why it says nothing.

        Of a module that names a part (``indexer``) that part alone: it may rotate other pairs than attention.
        """
        near = nearest(where, list(self.reading.tables))
        models, reason = self.reading.models_of(self.model.get_submodule(where), near)
        name = where.rpartition(".")[2]
        return [m for m in models if m.part.rpartition(".")[2] == name] or models, reason

    def fresh(self, where: str) -> nn.Module | None:
        """The module of that path as its class makes it; None where it cannot be made again."""
        if self._bare is not None:
            return dict(self._bare.named_modules()).get(where)
        return self.reading.rebuilt.module(where)

    @cached_property
    def subject(self) -> Running:
        return subject_of(self.model, self.reading.parts)

    @cached_property
    def parts(self) -> list[Running]:
        self.run_first()
        return parts_of(self.subject)

    def _ways(self, part: Running) -> list[Way]:
        """Every way of calling a part, the plain one first."""
        scalings = [s.scaling for s in self.specs if s.length_dependent and s.scaling is not None]
        changing = [scaling.trained_length for scaling in scalings if scaling.trained_length]
        original, caches = min(changing, default=None), not part.path
        embeds = part.named("inputs_embeds") in part.takes
        windows = [window for model in self.rotary for window in model.windows if window]
        static = min(windows, default=MOST) if caches and part.static else 0
        return ways(self.tokens(), self.length, original, part.counts, caches, embeds, static)

    @cached_property
    def plain(self) -> Called:
        """One plain call of the first part, seen."""
        return self.plain_of(self.parts[0])

    def plain_of(self, part: Running) -> Called:
        return called(part, self._ways(part)[0], self._learned)

    @property
    def rows(self) -> Called | None:
        """A batch of the first part whose rows have positions of their own, seen; None where none are given."""
        way = next((way for way in self._ways(self.parts[0]) if way.name == OWN_ROWS), None)
        return None if way is None else called(self.parts[0], way, self._learned)

    def others(self, plain: Called, part: Running) -> Iterator[Called]:
        """Every other way, seen, one after the other: each holds all that was computed in its attentions."""
        attentions = {site.where for site in plain.sites}
        keeps = True  # keys: else nothing is to be said of a static cache
        for way in self._ways(part)[1:] if attentions else ():
            if way.static and not keeps:
                continue
            seen = called(part, way, self._learned, attentions)
            yield seen
            keeps = keeps and not (seen.why_not and len(way.pieces) > 1)
            if seen.why_not and way.alone:
                alone = called(part, way.alone, self._learned, attentions)
                if alone.why_not != seen.why_not:
                    yield alone

    def run_first(self) -> None:
        """Once as its inputs say, where later calls need what it gives."""
        if hasattr(self._inputs, "keys") or isinstance(self.subject, Decoding):
            with undisturbed(self.model):
                self.inputs.run(self.subject)

    def tokens(self) -> Callable[[int, int], Tensor]:
        """What makes token ids up, ``[rows, length]``."""
        made = torch.Generator("cpu").manual_seed(0)
        words = int(self.inputs.tokens.max()) + 1
        low = int(self.inputs.tokens.min())

        def tokens(rows: int, length: int) -> Tensor:
            ids = torch.randint(low, words, (rows, length), generator=made, device="cpu")
            return ids.to(self.inputs.tokens.device)

        return tokens

    @cached_property
    def inputs(self) -> Inputs:
        return of_model(self.model, self._inputs)
