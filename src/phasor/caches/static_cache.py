"""A cache of fixed shapes for transformers: one decoded token is one graph, sinks and local windows included."""

from typing import Any

import torch
from torch import Tensor
from torch.compiler import is_compiling
from transformers.cache_utils import CacheLayerMixin, DynamicLayer, DynamicSlidingWindowLayer

from ..rotary.apply.move import reposition
from ..rotary.spec import Angles, RotarySpec
from .ledger import KeyLedger
from .model_cache import LedgerCache, LedgerLayer, UnpaddedCache, check_sizes, layers_of


class StaticLedgerLayer(CacheLayerMixin):
    """Keys and values of one layer in memory of one size, in the order of their tokens.

    ``size``: the most tokens. A layer that ``evicts`` drops the oldest tokens behind its ``sinks`` when it is full, and
    the sinks move up; each time they are rotated anew from how they were first rotated. Another one refuses more.
    """

    is_compileable, is_croppable = True, True

    def __init__(
        self, spec: RotarySpec | None, size: int, *, sinks: int = 0, evicts: bool = False, sliding: bool = False
    ) -> None:
        super().__init__()
        self.spec, self.size, self.sinks, self.evicts, self.is_sliding = spec, size, sinks, evicts, sliding
        self.held, self.seen = torch.tensor(0), torch.tensor(0)  # tokens here and so far: one graph for all

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """The memory, all zeros, for keys and values of these widths."""
        self.dtype, self.device = key_states.dtype, key_states.device
        rows, heads = key_states.shape[:2]
        self.keys = key_states.new_zeros(rows, heads, self.size, key_states.shape[-1])
        self.values = value_states.new_zeros(rows, heads, self.size, value_states.shape[-1])
        self.first = key_states.new_zeros(rows, heads, self.sinks, key_states.shape[-1])  # sinks as first rotated
        self.held, self.seen = self.held.to(self.device), self.seen.to(self.device)
        if not is_compiling():
            self._mark()
        self.is_initialized = True

    def _mark(self) -> None:
        """For a compiler: memory that stays where it is."""
        for kept in (self.keys, self.values, self.first, self.held, self.seen):
            torch._dynamo.mark_static_address(kept)

    def _check_alike(self, k: Tensor) -> None:
        assert self.keys is not None
        of = self.keys
        if k.shape[:2] != of.shape[:2] or k.shape[-1] != of.shape[-1] or k.dtype != of.dtype or k.device != of.device:
            got, held = ((*t.shape[:2], t.shape[-1], t.dtype, str(t.device)) for t in (k, of))
            raise ValueError(
                f"k must be of the (batch, heads, channels, dtype, device) of the cache, {held}, got {got}; another "
                "model or batch needs a cache of its own"
            )

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """New tokens; one: the whole memory, of which the mask hides what is empty; several: those held and the new."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        assert self.keys is not None and self.values is not None
        self._check_alike(key_states)
        if key_states.shape[-2] > 1:
            return self._several(key_states, value_states)
        self._check(1)
        if self.sinks:
            here = (torch.arange(self.sinks, device=self.device) == self.held)[:, None]
            self.first.copy_(torch.where(here, key_states, self.first))
        if self.evicts:
            self._step(key_states, value_states)
        else:
            at = self.held.reshape(1)
            self.keys.index_copy_(2, at, key_states)
            self.values.index_copy_(2, at, value_states)
        self.seen.add_(1)
        self.held.copy_((self.held + 1).clamp(max=self.size))
        self._move_sinks()
        return self.keys, self.values

    def moved(self, chunk: LedgerLayer, count: int) -> tuple[Tensor, Tensor]:
        """Keys and values of another layer as the ``count`` tokens behind these, each key rotated once.

        Changes nothing. A layer that sees its own window needs the last of them only.
        """
        if chunk.ledger is None:
            raise ValueError("chunk must hold tokens, got an empty layer")
        held, seen = int(self.held), int(self.seen)
        if len(chunk.ledger) < count and not self.is_sliding:
            raise ValueError(
                f"chunk must hold all of its {count} tokens, got {len(chunk.ledger)}; cut it before tokens are evicted"
            )
        if held < self.sinks and seen:
            raise ValueError(
                f"chunk must be the first tokens of the cache, or come after all {self.sinks} sinks, which must be "
                f"known as they were first rotated; got {held} tokens before it"
            )
        self._check(count)
        there = KeyLedger(chunk.ledger.spec if self.spec is None else self.spec)
        at, axes = seen + count - len(chunk.ledger), there.spec.axes.count
        there.reuse(chunk.ledger, at if axes == 1 else (at,) * axes)
        if self.is_initialized:
            self._check_alike(there.keys)
        assert there.values is not None
        return there.keys, there.values

    def append(self, keys: Tensor, values: Tensor, count: int) -> None:
        """What is `moved`: the last of ``count`` tokens; those before them are out of its window."""
        if not self.is_initialized:
            self.lazy_initialization(keys, values)
        if keys.shape[-2] < count:
            self.held.zero_()
        self._several(keys, values)
        self.seen.add_(count - keys.shape[-2])

    def copy(self) -> "StaticLedgerLayer":
        """Another layer with the same tokens, in memory of its own."""
        other: StaticLedgerLayer = object.__new__(StaticLedgerLayer)
        other.__dict__ = {n: x.clone() if isinstance(x, Tensor) else x for n, x in self.__dict__.items()}
        if self.is_initialized:
            other._mark()
        return other

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """How many keys ``query_length`` new tokens see, and the position of the first."""
        if query_length == 1:
            offset = (self.seen + 1 - self.size).maximum(self.seen - self.held) if self.evicts else 0
            return self.size, offset  # type: ignore[return-value]
        held = int(self.held)
        return held + int(query_length), int(self.seen) - held

    def get_seq_length(self) -> int:
        """All tokens so far, as a tensor: the position of the next one."""
        return self.seen if self.is_initialized else 0  # type: ignore[return-value]

    def get_max_length(self) -> int:
        """The most tokens that it holds; -1 if it goes on for ever."""
        return -1 if self.evicts else self.size

    def reset(self) -> None:
        """Without tokens; the memory stays."""
        self.held.zero_()
        self.seen.zero_()

    def crop(self, tokens_to_remove: int) -> None:
        """Without the last ``-tokens_to_remove`` tokens; evicted ones do not come back."""
        self.check_crop(tokens_to_remove)
        self.held.add_(tokens_to_remove)
        self.seen.add_(tokens_to_remove)

    def check_crop(self, tokens_to_remove: int) -> None:
        """``ValueError`` for what it cannot take back."""
        held = int(self.held)
        if tokens_to_remove > 0 or held + tokens_to_remove < 0:
            raise ValueError(f"tokens_to_remove must be a number from {-held} to 0, got {tokens_to_remove}")
        if held < int(self.seen) and held + tokens_to_remove < self.sinks:
            raise ValueError(f"tokens_to_remove must leave the {self.sinks} sinks, got {tokens_to_remove} of {held}")

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Rows of the batch, as beams are reordered; in the same memory where there are as many."""
        if not self.is_initialized:
            return
        for name in ("keys", "values", "first"):
            kept = getattr(self, name)
            chosen = kept.index_select(0, beam_idx.to(kept.device))
            if chosen.shape == kept.shape:
                kept.copy_(chosen)
            else:
                setattr(self, name, chosen)

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Each row ``repeats`` times."""
        if self.is_initialized:
            assert self.keys is not None
            self.reorder_cache(torch.arange(self.keys.shape[0]).repeat_interleave(repeats))

    def batch_select_indices(self, indices: Tensor) -> None:
        """Some rows."""
        if self.is_initialized:
            assert self.keys is not None
            self.reorder_cache(torch.arange(self.keys.shape[0])[indices])

    def _check(self, count: int) -> None:
        if self.evicts:
            return
        message = f"k must leave at most most={self.size} tokens in a static cache"
        if is_compiling():
            torch._assert_async(self.held + count <= self.size, message)
        elif int(self.held) + count > self.size:
            raise ValueError(f"{message}, got {count} for {int(self.held)}; make it larger")

    def _step(self, k: Tensor, v: Tensor) -> None:
        """The tokens behind the sinks one place nearer to them if there is no room, and the new one behind them."""
        slot = torch.arange(self.size, device=self.device)
        full = self.held >= self.size
        source = torch.where(full & (slot >= self.sinks), (slot + 1).clamp(max=self.size - 1), slot)
        new = (slot == self.held.clamp(max=self.size - 1))[:, None]
        for kept, one in ((self.keys, k), (self.values, v)):
            assert kept is not None
            kept.copy_(torch.where(new, one, kept.index_select(2, source)))

    def _several(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        assert self.keys is not None and self.values is not None
        count, held = k.shape[-2], int(self.held)
        self._check(count)
        if held < self.sinks:
            part = k[:, :, : self.sinks - held]
            self.first[:, :, held : held + part.shape[-2]].copy_(part)
        keys, values = (torch.cat((t[:, :, :held], x), -2) for t, x in ((self.keys, k), (self.values, v)))
        out = max(held + count - self.size, 0)
        for kept, every in ((self.keys, keys), (self.values, values)):
            kept[:, :, : self.sinks].narrow(-2, 0, min(self.sinks, held + count)).copy_(every[:, :, : self.sinks])
            rest = every[:, :, self.sinks + out :]
            kept[:, :, self.sinks : self.sinks + rest.shape[-2]].copy_(rest)
        self.seen.add_(count)
        self.held.add_(count - out)
        self._move_sinks()
        return keys, values

    def _move_sinks(self) -> None:
        if not self.sinks or self.spec is None:
            return
        assert self.keys is not None
        old, by = torch.arange(self.sinks, device=self.device), self.seen - self.held
        if (axes := self.spec.axes.count) > 1:
            old = old.expand(axes, -1)
        moved = reposition(self.first, old, old + by, self.spec)
        self.keys[:, :, : self.sinks].copy_(torch.where(by == 0, self.first, moved))


class StaticLedgerCache(UnpaddedCache):
    """A `LedgerCache` of fixed shapes, for models whose decoding is compiled: ``cache=``.

    ``most``: the tokens that a layer holds; more are refused. Or ``window`` and ``sinks``, as in `LedgerCache`: a layer
    that sees all tokens holds ``sinks + window``, and goes on for ever. Local layers hold their own window. Memory is
    taken at the first tokens. One token at a time reads all of it, and is one graph; several at once (prompts) read
    what is held, and are not meant to be compiled. Sinks are rotated once from how they were first rotated.

    ``model``, ``seq_len``, ``angles``, ``unpadded`` and what raises ``ValueError``: as in `LedgerCache`.

    Example::

        cache = phasor.caches.StaticLedgerCache(model, sinks=4, window=1020)
        step = torch.compile(model.forward, fullgraph=True)
    """

    layers: list[Any]

    def __init__(
        self,
        model: Any,
        *,
        most: int | None = None,
        sinks: int = 0,
        window: int | None = None,
        seq_len: int | None = None,
        angles: Angles | None = None,
        unpadded: bool = False,
    ) -> None:
        check_sizes(sinks, window, seq_len, most)
        if (most is None) == (window is None):
            raise ValueError(f"most or window must say how much memory to take, and not both, got {most} and {window}")
        self.unpadded = unpadded
        size, pairs = most or sinks + (window or 0), layers_of(model, seq_len, angles)
        super().__init__(layers=[_layer(i, own, s, size, sinks, most is None) for i, (own, s) in enumerate(pairs)])

    def reuse(self, chunk: LedgerCache) -> None:
        """The tokens of a growing cache of the same model behind these: each key rotated once, to its new position.

        What stays on a server are `LedgerCache`s, or parts of one (`LedgerCache.cut`). All layers take it or none.
        They were computed without what now stands before them; their positions are right.
        """
        if not isinstance(chunk, LedgerCache) or len(chunk.layers) != len(self.layers):
            raise ValueError(f"chunk must be a LedgerCache of the same model, got {type(chunk).__name__}")
        if (rows := chunk.layers[0].keys) is not None:
            self.check_unpadded(rows.shape[0], "that reuse a chunk, whose tokens follow the last position")
        count = chunk.get_seq_length()
        moved = [mine.moved(theirs, count) for mine, theirs in zip(self.layers, chunk.layers, strict=True)]
        for layer, (keys, values) in zip(self.layers, moved, strict=True):
            layer.append(keys, values, count)

    def fork(self) -> "StaticLedgerCache":
        """Another cache with the same tokens, to go on with otherwise or to come back to: a copy of all its memory."""
        other: StaticLedgerCache = object.__new__(StaticLedgerCache)
        other.__dict__ = self.__dict__ | {"layers": [layer.copy() for layer in self.layers]}
        return other

    def crop(self, tokens_to_remove: int) -> None:
        """Without the last ``-tokens_to_remove`` tokens, in all layers or, where one holds fewer, in none."""
        for layer in self.layers:
            layer.check_crop(tokens_to_remove)
        for layer in self.layers:
            layer.crop(tokens_to_remove)

    @property
    def memory(self) -> dict[str, int]:
        """Bytes of ``keys``, ``values``, ``origin`` (sinks as first rotated) and ``places`` (numbers of tokens)."""
        sizes = dict.fromkeys(("keys", "values", "origin", "places"), 0)
        for layer in self.layers:
            if layer.is_initialized:
                parts = (layer.keys,), (layer.values,), (layer.first,), (layer.held, layer.seen)
                for name, tensors in zip(sizes, parts, strict=True):
                    sizes[name] += sum(t.nbytes for t in tensors)
        return sizes


def _layer(index: int, theirs: Any, spec: RotarySpec | None, size: int, sinks: int, evicts: bool) -> StaticLedgerLayer:
    if type(theirs) is DynamicSlidingWindowLayer:
        return StaticLedgerLayer(spec, theirs.sliding_window, evicts=True, sliding=True)
    if type(theirs) is DynamicLayer:
        return StaticLedgerLayer(spec, size, sinks=sinks, evicts=evicts)
    raise ValueError(
        f"model must have layers that keep keys and values only, and layer {index} has a {type(theirs).__name__}"
    )
