"""LedgerCache: a cache for models of transformers whose keys may move. It imports transformers; others need not."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin, DynamicCache, DynamicLayer, DynamicSlidingWindowLayer

from ..eye import Observation
from ..models.configs import ModelRotary
from ..models.rotary_of import rotary_of
from ..rotary.spec import Angles, RotarySpec
from ..support.checks import whole
from .ledger import KeyLedger


class LedgerLayer(CacheLayerMixin):
    """Keys and values of one layer in a `KeyLedger`, as transformers asks for them.

    ``spec`` is None for a layer that does not rotate. ``window``: how many tokens attention reads at most, the new ones
    and the one that asks among them; ``sinks``: how many of the first ones stay, moved up to right before the others;
    ``block``: how many are evicted at a time.
    """

    is_croppable = True

    def __init__(
        self,
        spec: RotarySpec | None,
        *,
        sinks: int = 0,
        window: int | None = None,
        block: int = 1,
        sliding: bool = False,
        most: int | None = None,
    ) -> None:
        super().__init__()
        self.spec, self.most, self.is_sliding = spec, most, sliding
        self.sinks, self.window, self.block = sinks, window, block
        self.ledger: KeyLedger | None = None
        self.seen = 0  # tokens so far, evicted ones too: the position of the next

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """The ledger, for keys of this width."""
        width = key_states.shape[-1]
        spec = self.spec
        if spec is None:  # no rotation is one of no frequency
            spec = RotarySpec(head_dim=width, rotary_dim=2, frequencies=(0.0,))
        self.dtype, self.device = key_states.dtype, key_states.device
        self.ledger, self.is_initialized = KeyLedger(spec, most=self.most), True

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """New tokens at the positions after those so far; all keys and values that they attend to."""
        if self.ledger is None:
            self.lazy_initialization(key_states, value_states)
        assert self.ledger is not None
        count = key_states.shape[-2]
        self.ledger.extend(key_states, self.seen, value_states)
        self.seen += count
        states = self.ledger.keys, self.ledger.values
        self._evict()
        return states  # type: ignore[return-value]

    def reuse(self, chunk: "LedgerLayer", count: int) -> None:
        """The tokens of another layer behind these, as ``count`` tokens of which it may have evicted the first."""
        if chunk.ledger is None:
            raise ValueError("chunk must hold tokens, got an empty layer")
        if self.ledger is None:
            self.lazy_initialization(chunk.ledger.keys, chunk.ledger.keys)
        assert self.ledger is not None
        at, axes = self.seen + count - len(chunk.ledger), self.ledger.spec.axes.count
        self.ledger.reuse(chunk.ledger, at if axes == 1 else (at,) * axes)
        self.seen += count
        self._evict()

    def change_length(self, seq_len: int) -> None:
        """Keys of another length's regime; nothing where frequencies depend on none."""
        scaling = None if self.spec is None else self.spec.scaling
        if self.spec is not None and (free := getattr(scaling, "scaling", None)) is not None:
            spec = self.spec.replace(scaling=free).at_length(seq_len)
            if self.ledger is not None:
                self.ledger.change_spec(spec)
                self._expose()
            self.spec = spec

    def cut(self, start: int, stop: int) -> "LedgerLayer":
        """Another layer with the tokens from ``start`` to ``stop``, counted from the first one ever seen."""
        count = 0 if self.ledger is None else len(self.ledger)
        if self.ledger is None or start < self.seen - count or stop > self.seen:
            raise ValueError(
                f"start and stop must lie in the tokens that are held, {self.seen - count} to {self.seen}, got {start} "
                f"and {stop}; cut before tokens are evicted"
            )
        other = LedgerLayer(
            self.spec, sinks=self.sinks, window=self.window, block=self.block, sliding=self.is_sliding, most=self.most
        )
        first = start - (self.seen - count)
        other.ledger, other.is_initialized = self.ledger.cut(range(first, first + stop - start)), True
        other.dtype, other.device, other.seen = self.dtype, self.device, stop - start
        other._expose()
        return other

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """How many keys ``query_length`` new tokens will see, and how many were before these."""
        count = 0 if self.ledger is None else len(self.ledger)
        return count + int(query_length), self.seen - count

    def get_seq_length(self) -> int:
        """All tokens so far: the position of the next one."""
        return self.seen

    def get_max_length(self) -> int:
        """The most tokens that it holds, or -1."""
        return -1 if self.most is None else self.most

    def reset(self) -> None:
        """As new."""
        self.ledger, self.is_initialized, self.seen = None, False, 0
        self.keys = self.values = None

    def crop(self, tokens_to_remove: int) -> None:
        """Without the last ``-tokens_to_remove`` tokens; evicted ones do not come back."""
        if tokens_to_remove > 0:
            raise ValueError(f"tokens_to_remove must be a number of tokens below 0, got {tokens_to_remove}")
        if self.ledger is not None and tokens_to_remove:
            self.ledger.crop(len(self.ledger) + tokens_to_remove)
            self.seen += tokens_to_remove
            self._expose()

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Rows of the batch, as beams are reordered."""
        if self.ledger is not None:
            self.ledger.reorder(beam_idx)
            self._expose()

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Each row ``repeats`` times."""
        if self.ledger is not None:
            rows = torch.arange(self.ledger.keys.shape[0], device=self.device)
            self.reorder_cache(rows.repeat_interleave(repeats))

    def batch_select_indices(self, indices: Tensor) -> None:
        """Some rows."""
        if self.ledger is not None:
            self.reorder_cache(torch.arange(self.ledger.keys.shape[0], device=self.device)[indices])

    def _evict(self) -> None:
        assert self.ledger is not None
        if self.window is not None and len(self.ledger) > self.sinks + self.window - 1:
            self.ledger.stream(self.sinks, self.window - self.block)
        self._expose()

    def _expose(self) -> None:
        assert self.ledger is not None
        self.keys, self.values = self.ledger.keys, self.ledger.values


class LedgerCache(Cache):
    """A cache for a transformers model, patched or not, whose keys move without a wrong angle: ``cache=``.

    Before transformers 5.24 the models call this argument ``past_key_values=``.

    Grows with the sequence. With ``window`` every layer that sees all tokens keeps the first ``sinks`` tokens and the
    last ones, at most ``window`` with the one that asks (``block`` fewer when tokens were just evicted, which costs
    time for each block and not for each token), so generation may go on for ever: distances stay below
    ``sinks + window``, which should not exceed the trained length, and queries keep the positions they have. Prompts
    longer than that are given in parts (``generate(prefill_chunk_size=)``). Sliding layers keep their own window.

    ``model`` is a transformers model or its config, whose layers `read_config` reads, or an `Observation` of a model;
    one of a type that is not read is observed: bases of their own, YaRN, latent attention, M-RoPE (whose axes move
    alike), layers without rotation. ``seq_len`` freezes lengths that frequencies
    depend on, and the model must be frozen alike, by the same ``seq_len`` of `phasor.patch`. ``angles``: ``"exact"``
    for a model patched with exact ones; else its own. ``most``: how many tokens a layer holds at most.

    A cache does not see which tokens are padding, and counts positions alike in all rows. That is right for rows that
    are padded on the left as long as keys only move together. Sinks, `reuse` and `change_length` need the position of
    each token, so they refuse several rows unless ``unpadded=True`` says that none is padded.

    Raises ``ValueError`` for what is no transformers model, for layers that keep something else than keys and values
    (states, an indexer's keys), and for a missing ``seq_len``. Source: StreamingLLM, arXiv:2309.17453.

    Example::

        cache = phasor.caches.LedgerCache(model, sinks=4, window=1020)
        model.generate(ids, cache=cache, max_new_tokens=100_000)
    """

    layers: list[Any]

    def __init__(
        self,
        model: Any,
        *,
        sinks: int = 0,
        window: int | None = None,
        block: int = 1,
        seq_len: int | None = None,
        angles: Angles | None = None,
        most: int | None = None,
        unpadded: bool = False,
    ) -> None:
        whole("sinks", sinks, at_least=0)
        whole("block", block)
        for name, value in (("window", window), ("seq_len", seq_len), ("most", most)):
            if value is not None:
                whole(name, value)
        if sinks and window is None:
            raise ValueError(f"window must say how many tokens stay beside the sinks, got None with sinks={sinks}")
        if window is not None and block >= window:
            raise ValueError(f"block must be less than the window, {window}, got {block}")
        self.unpadded = unpadded
        how = {"sinks": sinks, "window": window, "block": block, "most": most}
        super().__init__(layers=_layers_of(model, seq_len, angles, how))

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """New keys and values of a layer; all that it attends to."""
        layer = self.layers[layer_idx]
        if layer.sinks:
            self.check_unpadded(key_states.shape[0], "with sinks, which must be the first tokens of every row")
        states: tuple[Tensor, Tensor] = layer.update(key_states, value_states)
        return states

    def check_unpadded(self, rows: int, which: str) -> None:
        """``ValueError`` for rows that may be padded where positions must be known."""
        if rows > 1 and not self.unpadded:
            raise ValueError(
                f"unpadded must be True for {rows} rows {which}: say {type(self).__name__}(unpadded=True) if no row is "
                "padded on the left, or give each row a cache of its own"
            )

    def cut(self, start: int, stop: int) -> "LedgerCache":
        """Another cache with the tokens from ``start`` to ``stop``: a chunk for `reuse`. Shares no memory."""
        whole("start", start, at_least=0)
        whole("stop", stop, at_least=start + 1)
        return self._with([layer.cut(start, stop) for layer in self.layers])

    def reuse(self, chunk: "LedgerCache") -> None:
        """The tokens of another cache of the same model behind these, at their new positions: each rotated once.

        They were computed without what now stands before them; their positions are right.
        """
        if not isinstance(chunk, LedgerCache) or len(chunk.layers) != len(self.layers):
            raise ValueError(f"chunk must be a LedgerCache of the same model, got {type(chunk).__name__}")
        count, rows = chunk.get_seq_length(), chunk.layers[0].keys
        if rows is not None:
            self.check_unpadded(rows.shape[0], "that reuse a chunk, whose tokens follow the last position")
        pairs = zip(self.layers, chunk.layers, strict=True)
        self._all_or_none(lambda: [mine.reuse(theirs, count) for mine, theirs in pairs])

    def crop(self, tokens_to_remove: int) -> None:
        """Without the last ``-tokens_to_remove`` tokens, in all layers or, where one holds fewer, in none."""
        self._all_or_none(lambda: [layer.crop(tokens_to_remove) for layer in self.layers])

    def fork(self) -> "LedgerCache":
        """Another cache with the same tokens, to go on with otherwise or to come back to. Costs no memory."""
        return self._with([_fork(layer) for layer in self.layers])

    def change_length(self, seq_len: int) -> None:
        """Keys of another length's regime, where frequencies depend on it. Freeze the model alike."""
        whole("seq_len", seq_len)
        keys = [layer.keys for layer in self.layers if layer.ledger is not None]
        if keys:
            self.check_unpadded(keys[0].shape[0], "whose regime changes, which depends on each position")
        self._all_or_none(lambda: [layer.change_length(seq_len) for layer in self.layers])

    @property
    def memory(self) -> dict[str, int]:
        """Bytes, as `KeyLedger.memory` counts them, of all layers."""
        counts = [layer.ledger.memory for layer in self.layers if layer.ledger is not None]
        return {name: sum(count[name] for count in counts) for name in (counts[0] if counts else ())}

    def _all_or_none(self, change: Callable[[], object]) -> None:
        """A change of all layers; if one of them refuses it, all are as before."""
        before = [_fork(layer) for layer in self.layers]
        try:
            change()
        except ValueError:
            self.layers = before
            raise

    def _with(self, layers: list[LedgerLayer]) -> "LedgerCache":
        other: LedgerCache = object.__new__(LedgerCache)
        other.__dict__ = self.__dict__ | {"layers": layers}
        return other


def _fork(layer: LedgerLayer) -> LedgerLayer:
    other: LedgerLayer = object.__new__(LedgerLayer)
    other.__dict__ = dict(layer.__dict__)
    other.ledger = None if layer.ledger is None else layer.ledger.fork()
    return other


def _layers_of(model: Any, seq_len: int | None, angles: Angles | None, how: dict[str, Any]) -> list[Any]:
    """A layer for each that transformers gives the cache of a model or its config, with what rotates there."""
    inner: Any = model.model if isinstance(model, Observation) else model
    config = getattr(inner, "config", inner)
    if not hasattr(config, "get_text_config"):
        raise ValueError(f"model must be a transformers model or its config, got {type(model).__name__}")
    rotary = rotary_of(model)
    specs = _specs(rotary.with_angles(angles or rotary.own_angles), seq_len)
    theirs = DynamicCache(config=config).layers
    if len(theirs) != len(specs):
        raise ValueError(f"model must have a layer of its cache for each of {len(specs)} layers, got {len(theirs)}")
    layers = []
    for index, (own, spec) in enumerate(zip(theirs, specs, strict=True)):
        if type(own) is DynamicSlidingWindowLayer:
            layers.append(LedgerLayer(spec, window=own.sliding_window, sliding=True))
        elif type(own) is DynamicLayer:
            layers.append(LedgerLayer(spec, **how))
        else:
            name = type(own).__name__
            raise ValueError(f"model must have layers that keep keys and values only, and layer {index} has a {name}")
    return layers


def _specs(rotary: ModelRotary, seq_len: int | None) -> list[RotarySpec | None]:
    dependent = next((s.scaling.name for s in rotary.layers if s and s.scaling and s.length_dependent), None)
    if dependent and seq_len is None:
        raise ValueError(
            f"seq_len is missing: {dependent} scaling has frequencies that depend on it; "
            "phasor.patch(model, seq_len=n) freezes the model, and seq_len=n its cache"
        )
    return [spec if spec is None or seq_len is None else spec.at_length(seq_len) for spec in rotary.layers]
