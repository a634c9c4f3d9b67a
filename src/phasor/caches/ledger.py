"""KeyLedger: the keys of some sequences, where they stand, and how they come to stand elsewhere at the right angle."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from ..rotary.apply.input_checks import check_tensor
from ..rotary.apply.move import check_alike
from ..rotary.apply.relative_rotation import check_moves
from ..rotary.spec import RotarySpec
from ..rotary.tables import check_positions
from ..support.checks import one_of, whole
from ..support.tracing import readable
from .origin import Origin
from .tokens import Tokens, check_distinct, check_distinct_after
from .tree import depths, is_path, tree_mask

Keep = Literal["raw", "residual"]


class KeyLedger:
    """Keys of one layer, for one or many sequences: their positions, their regime, and what they were rounded from.

    ``keys`` ``[batch, heads, tokens, head_dim]`` are what attention reads: rotated by ``spec`` at ``positions``
    ``[batch, tokens]`` (``[axes, batch, tokens]`` for several axes). ``values`` follow their tokens. All rows hold as
    many tokens; sequences of different lengths have a ledger each. A key that moves is rotated once, from what
    ``keep`` says, however often it has moved before:

    - ``"residual"``: from the key as it was first rotated, which is kept for moved tokens only, with the position and
      the spec it had: sqrt(2) of the error of a fresh rotation. Memory: the keys, and once more for tokens that have
      moved and not come back.
    - ``"raw"``: from the raw key, which is kept for every token: the error of a fresh rotation. Memory: twice the keys.

    Beside that a token costs 8 bytes for each row and axis, 18 or more if it has moved (`memory`). Every operation
    makes new tensors: `fork` costs nothing, and to roll back is to go on with a fork. What raises ``ValueError``
    (positions held twice, other heads, rows or dtypes, more than ``most`` tokens, a spec that depends on a length) has
    changed nothing. Positions are looked at on a CPU only. Moves multiply magnitudes by 1, `change_spec` by the ratio
    of both attention factors.

    Source: MiniPIC, arXiv:2606.13126 (keys without positions); StreamingLLM, arXiv:2309.17453 (sinks).

    >>> ledger = KeyLedger(RotarySpec(head_dim=4))
    >>> ledger.append(torch.ones(1, 1, 6, 4), torch.arange(6))
    >>> ledger.stream(sinks=1, window=3)
    >>> ledger.positions.tolist(), len(ledger)
    ([[2, 3, 4, 5]], 4)
    >>> ledger
    KeyLedger(4 tokens of 1 x 1 heads, torch.float32, 1 moved, keep='residual', all 4 channels, halves, base 10000, ...
    """

    def __init__(
        self, spec: RotarySpec, *, keep: Keep = "residual", most: int | None = None, log_scale: Tensor | None = None
    ) -> None:
        one_of("keep", keep, get_args(Keep))
        if not (keep == "raw" and isinstance(spec, RotarySpec) and not spec.length_dependent):
            check_moves("spec", spec)
        if most is not None:
            whole("most", most)
        self.spec, self.keep, self.most, self.log_scale = spec, keep, most, log_scale
        self._tokens: Tokens | None = None

    def __len__(self) -> int:
        return 0 if self._tokens is None else len(self._tokens)

    def __repr__(self) -> str:
        if self._tokens is None:
            return f"KeyLedger(no tokens yet, {self.spec.describe()})"
        (batch, heads, tokens, _), dtype = self.keys.shape, self.keys.dtype
        moved = 0 if self._tokens.origin is None or self.keep == "raw" else len(self._tokens.origin)
        return (
            f"KeyLedger({tokens} tokens of {batch} x {heads} heads, {dtype}, {moved} moved, keep={self.keep!r}, "
            f"{self.spec.describe()})"
        )

    @property
    def keys(self) -> Tensor:
        """``[batch, heads, tokens, head_dim]``: rotated by the spec at the positions."""
        return self._held.keys

    @property
    def values(self) -> Tensor | None:
        """Those that were given with the keys, or None."""
        return self._held.values

    @property
    def positions(self) -> Tensor:
        """``[(axes,) batch, tokens]``."""
        return self._held.positions

    @property
    def memory(self) -> dict[str, int]:
        """Bytes that its tensors hold, each memory once: of ``keys``, ``values``, ``origin`` (moved or raw keys), and
        ``places`` (positions and regimes).
        """
        tokens, seen = self._held, set()
        origin = tokens.origin
        moved = () if origin is None else (origin.slots, origin.positions, origin.regime)
        parts = {"keys": (tokens.keys,), "values": (tokens.values,), "origin": () if origin is None else (origin.keys,)}
        places = (tokens.positions, *moved)
        sizes = dict.fromkeys((*parts, "places"), 0)
        for name, tensors in {**parts, "places": places}.items():
            for memory in (t.untyped_storage() for t in tensors if t is not None):
                if memory.data_ptr() not in seen:
                    seen.add(memory.data_ptr())
                    sizes[name] += memory.nbytes()
        return sizes

    def append(self, k: Tensor, positions: Tensor, v: Tensor | None = None, *, rotated: bool = False) -> None:
        """Add tokens at ``positions`` ``[(axes,) (batch,) tokens]``. ``k`` is raw, unless ``rotated`` by the spec.

        Keys that come rotated are kept as they are, and only with ``keep="residual"``.
        """
        positions = self._positions_of(k, positions)
        self._add(k, positions, v, lambda: self._new(k, positions, v, rotated))

    def extend(self, k: Tensor, start: int, v: Tensor | None = None) -> None:
        """Rotated keys at positions ``start``, ``start + 1``, … of every row and axis, beyond all others: nothing to
        check about them. What a model appends for every token; the rest as `append`.
        """
        at = torch.arange(start, start + k.shape[-2], device=k.device).expand(k.shape[0], -1)
        axes = self.spec.axes.count
        positions = at if axes == 1 else at.expand(axes, -1, -1)
        self._add(k, positions, v, lambda: Tokens(k, v, positions, None), twice=True)

    def reuse(self, chunk: "KeyLedger", at: int | tuple[int, ...]) -> None:
        """Add the tokens of another ledger of the same model: the first at position ``at``, the others as far apart.

        ``at`` is one number for each axis. What was computed behind another prefix attends as it did there: positions
        are right, the text before it is not what the values have seen.
        """
        if not isinstance(chunk, KeyLedger) or not len(chunk):
            raise ValueError(f"chunk must be a KeyLedger that holds tokens, got {type(chunk).__name__}")
        check_alike(chunk.spec, self.spec)
        if chunk.spec.replace(scaling=None) != self.spec.replace(scaling=None):
            raise ValueError(f"chunk must be of the same model, got other fields {sorted(chunk.spec.diff(self.spec))}")
        if self.keep == "raw" and chunk.keep != "raw":
            raise ValueError(
                "chunk must have keep='raw' for a ledger that has it, got 'residual'; its raw keys are gone"
            )
        tokens, axes = chunk._held, self.spec.axes.count
        start = at if isinstance(at, tuple) else (at,)
        if len(start) != axes or not all(isinstance(a, int) and not isinstance(a, bool) for a in start):
            raise ValueError(f"at must be one integer for each of {axes} axes, got {at!r}")
        first = tokens.positions[..., :1]
        to = torch.tensor(start, device=first.device).view(*(axes,) * (axes > 1), 1, 1)
        positions, source = tokens.positions - first + to, chunk._source(range(len(chunk)))
        self._add(source.keys, positions, tokens.values, lambda: self._placed(source, positions, tokens.values))

    def evict(self, slots: range | Sequence[int] | Tensor) -> None:
        """Remove the tokens ``slots``, numbered as they stand in the ledger; the others keep their positions."""
        gone, tokens = self._slots(slots), self._free()
        stays = torch.ones(len(tokens), dtype=torch.bool, device=gone.device)
        stays[gone] = False
        self._tokens = tokens.take(stays.nonzero()[:, 0])

    def stream(self, sinks: int, window: int) -> None:
        """Keep the first ``sinks`` tokens and the last ``window``; the sinks move to right before the others.

        Later tokens keep their positions, and so do the queries: what comes next stands where it would have stood.
        Nothing happens while there are no more. Source: StreamingLLM, arXiv:2309.17453, section 3.2.
        """
        whole("sinks", sinks, at_least=0)
        whole("window", window)
        tokens = self._free()
        if len(tokens) <= sinks + window:
            return
        recent = tokens.between(len(tokens) - window, len(tokens))
        if sinks:
            to = recent.positions.amin(-1, keepdim=True) - torch.arange(sinks, 0, -1, device=tokens.keys.device)
            values = None if tokens.values is None else tokens.values[..., :sinks, :]
            recent = self._placed(self._source(range(sinks)), to, values).then(recent)
        self._tokens = recent

    def move(self, positions: Tensor, slots: range | Sequence[int] | Tensor | None = None) -> None:
        """Move the tokens, all or ``slots``, to ``positions`` ``[(axes,) (batch,) tokens]``: each is rotated once."""
        tokens = self._free()
        chosen = torch.arange(len(tokens), device=tokens.keys.device) if slots is None else self._slots(slots)
        source = self._source(chosen)
        positions = self._positions_of(source.keys, positions)
        check_distinct(tokens.positions.index_copy(-1, chosen, positions))
        moved = self._placed(source, positions, None)
        if len(chosen) == len(tokens):
            order = chosen.argsort()
            self._tokens = replace(moved.take(order), values=tokens.values)
            return
        rest = torch.ones(len(tokens), dtype=torch.bool, device=chosen.device)
        rest[chosen] = False
        others = replace(tokens, values=None).take(rest.nonzero()[:, 0])
        order = torch.cat((rest.nonzero()[:, 0], chosen)).argsort()
        self._tokens = replace(others.then(moved).take(order), values=tokens.values)

    def shift(self, by: int | tuple[int, ...], slots: range | Sequence[int] | Tensor | None = None) -> None:
        """Move the tokens, all or ``slots``, by one distance, with a number for each axis."""
        axes = self.spec.axes.count
        each = by if isinstance(by, tuple) else (by,)
        if len(each) != axes or not all(isinstance(d, int) and abs(d) <= 2**31 for d in each):
            raise ValueError(f"by must be one integer of at most 2**31 for each of {axes} axes, got {by!r}")
        tokens = self._free()
        chosen = torch.arange(len(tokens), device=tokens.keys.device) if slots is None else self._slots(slots)
        # As positions are laid out, which of one axis have none for it: [(axes,) rows, tokens].
        distance = torch.tensor(each, device=chosen.device).view(*(axes,) * (axes > 1), 1, 1)
        self.move(tokens.positions.index_select(-1, chosen) + distance, chosen)

    def change_spec(self, spec: RotarySpec) -> None:
        """Rotate all keys as another spec does at their positions: another regime, or the same one for longer."""
        check_moves("spec", spec)
        check_alike(self.spec, spec)
        tokens = self._free()
        source = self._source(range(len(tokens)))
        keys = source.at(spec, tokens.positions, self.log_scale)
        origin = source.moved_to(spec, tokens.positions, raw=self.keep == "raw")
        self._tokens, self.spec = replace(tokens, keys=keys, origin=origin), spec

    def draft(self, k: Tensor, parents: Sequence[int], v: Tensor | None = None, *, rotated: bool = False) -> Tensor:
        """Add the tokens of a tree after the last one; those of one depth share a position. Returns their mask.

        ``parents[i]`` is the draft that token ``i`` follows, an earlier one, or -1 for the last token of the ledger.
        The mask ``[drafts, tokens]`` is true where a draft may attend: all tokens before the tree, its ancestors and
        itself. Until `accept` nothing else changes the ledger. Source: SpecInfer, arXiv:2305.09781, section 4.2.

        >>> ledger = KeyLedger(RotarySpec(head_dim=2))
        >>> ledger.append(torch.ones(1, 1, 1, 2), torch.tensor([7]))
        >>> ledger.draft(torch.ones(1, 1, 3, 2), [-1, -1, 0]).int().tolist()
        [[1, 1, 0, 0], [1, 0, 1, 0], [1, 1, 0, 1]]
        >>> ledger.positions.tolist(), ledger.accept([0, 2]), ledger.positions.tolist()
        ([[7, 8, 8, 9]], None, [[7, 8, 9]])
        """
        tokens = self._free()
        depth = torch.tensor(depths(parents), device=tokens.keys.device)
        self._check_new(k)
        if k.shape[-2] != len(depth):
            raise ValueError(f"parents must have one entry for each of {k.shape[-2]} drafts, got {len(depth)}")
        positions = tokens.positions.amax(-1, keepdim=True) + depth
        self._add(k, positions, v, lambda: self._new(k, positions, v, rotated), twice=True)
        self._tokens = replace(self._held, parents=tuple(parents))
        return tree_mask(parents, len(tokens), tokens.keys.device)

    def accept(self, path: Sequence[int]) -> None:
        """Keep only the drafts of ``path``, each the parent of the next; none of them for an empty path."""
        tokens = self._held
        if not tokens.parents:
            raise ValueError("path must be one of drafts, and there are none; call draft first")
        if not is_path(path, tokens.parents):
            raise ValueError(
                f"path must go from a child of -1 from parent to child, got {list(path)} of {tokens.parents}"
            )
        before = len(tokens) - len(tokens.parents)
        slots = torch.tensor([*range(before), *(before + i for i in path)], device=tokens.keys.device)
        self._tokens = replace(tokens.take(slots), parents=())

    def crop(self, length: int) -> None:
        """Keep only the first ``length`` tokens."""
        whole("length", length, at_least=0)
        tokens = self._free()
        if length > len(tokens):
            raise ValueError(f"length must be at most the {len(tokens)} tokens that are held, got {length}")
        self._tokens = tokens.between(0, length)

    def reorder(self, rows: Tensor) -> None:
        """Take the rows ``rows`` of the batch, as beams are reordered; a row may come twice, or not at all."""
        tokens = self._free()
        if not isinstance(rows, Tensor) or rows.dtype not in (torch.int64, torch.int32) or rows.ndim != 1:
            raise ValueError(f"rows must be a tensor of integers [rows], got {rows!r:.80}")
        batch = tokens.keys.shape[0]
        if readable(rows) and rows.is_cpu and rows.numel() and not 0 <= int(rows.min()) <= int(rows.max()) < batch:
            raise ValueError(f"rows must be from 0 to {batch - 1}, got {rows.tolist()}")
        rows = rows.to(tokens.keys.device)
        self._tokens = replace(
            tokens,
            keys=tokens.keys.index_select(0, rows),
            values=None if tokens.values is None else tokens.values.index_select(0, rows),
            positions=tokens.positions.index_select(-2, rows),
            origin=tokens.origin and tokens.origin.rows(rows),
        )

    def fork(self) -> "KeyLedger":
        """Another ledger with the same tokens: a branch, or a state to roll back to. Shares memory; costs none."""
        other = KeyLedger(self.spec, keep=self.keep, most=self.most, log_scale=self.log_scale)
        other._tokens = self._tokens
        return other

    def cut(self, slots: range | Sequence[int] | Tensor) -> "KeyLedger":
        """Another ledger with the tokens ``slots`` only: a chunk to be reused."""
        other = self.fork()
        other._tokens = self._free().take(self._slots(slots))
        return other

    @property
    def _held(self) -> Tokens:
        if self._tokens is None:
            raise ValueError("this ledger holds no tokens yet; append some first")
        return self._tokens

    def _free(self) -> Tokens:
        """What is held, with no drafts open."""
        if self._held.parents:
            raise ValueError(
                f"drafts must be accepted first: {len(self._held.parents)} are open; call accept with a path of them, "
                "or []"
            )
        return self._held

    def _slots(self, slots: Any) -> Tensor:
        """Tokens that are held, each once."""
        tokens = self._held
        if isinstance(slots, range | list | tuple):
            slots = torch.tensor(slots) if len(slots) else torch.empty(0, dtype=torch.int64)
        chosen = None if slots is None else torch.as_tensor(slots, device=tokens.keys.device)
        if chosen is None or chosen.ndim != 1 or chosen.is_floating_point() or chosen.dtype == torch.bool:
            raise ValueError(f"slots must be a range, a list or a tensor of integers [tokens], got {slots!r:.80}")
        if chosen.is_cpu and chosen.numel():
            low, high = int(chosen.min()), int(chosen.max())
            if low < 0 or high >= len(tokens):
                raise ValueError(
                    f"slots must be from 0 to {len(tokens) - 1}, which are held, got {low if low < 0 else high}"
                )
            if len(chosen.unique()) < len(chosen):
                raise ValueError(f"slots must name every token once, got {chosen.tolist()!s:.80}")
        return chosen.long()

    def _positions_of(self, k: Tensor, positions: Any) -> Tensor:
        """``[(axes,) batch, tokens]`` for new keys, in the integers or float64."""
        self._check_new(k)
        at = check_positions(positions, self.spec)
        number = torch.float64 if self.spec.coordinates == "real" else torch.int64
        if at[0].shape not in (k.shape[-2:-1], (k.shape[0], k.shape[-2])):
            raise ValueError(
                f"positions must be [{k.shape[-2]}] or [{k.shape[0]}, {k.shape[-2]}], one for each token, "
                f"got shape {tuple(positions.shape)}"
            )
        rows = [p.to(number).expand(k.shape[0], -1) for p in at]
        return rows[0] if len(rows) == 1 else torch.stack(rows)

    def _check_new(self, k: Any) -> None:
        check_tensor("k", k)
        if k.ndim != 4 or k.shape[-1] != self.spec.head_dim:
            raise ValueError(f"k must be [batch, heads, tokens, {self.spec.head_dim}], got shape {tuple(k.shape)}")
        if self._tokens is None:
            return
        mine = self._tokens.keys
        here, there = ((t.shape[0], t.shape[1], t.dtype, t.device) for t in (mine, k))
        if here != there:
            raise ValueError(f"k must be of the (batch, heads, dtype, device) of the ledger, {here}, got {there}")

    def _check_values(self, v: Any, k: Tensor) -> None:
        mine = None if self._tokens is None else self._tokens.values
        if self._tokens is not None and len(self) and (v is None) != (mine is None):
            raise ValueError("v must be given for all tokens of a ledger or for none, got both kinds")
        if v is not None:
            check_tensor("v", v)
            if (
                v.ndim != 4
                or v.shape[:3:2] != k.shape[:3:2]
                or (mine is not None and v[:, :, :0].shape != mine[:, :, :0].shape)
            ):
                raise ValueError(
                    f"v must be [batch, heads, tokens, channels] for k {tuple(k.shape)}, got {tuple(v.shape)}"
                )

    def _add(
        self, k: Tensor, positions: Tensor, v: Tensor | None, form: Callable[[], Tokens], twice: bool = False
    ) -> None:
        """What is formed of new tokens, behind those that are held."""
        before = self._free() if self._tokens is not None else None
        self._check_new(k)
        self._check_values(v, k)
        count = len(self) + k.shape[-2]
        if self.most is not None and count > self.most:
            raise ValueError(
                f"k must leave at most most={self.most} tokens, got {k.shape[-2]} for {len(self)}; evict some"
            )
        if not twice:
            check_distinct_after(None if before is None else before.positions, positions)
        self._tokens = form() if before is None else before.then(form())

    def _new(self, k: Tensor, positions: Tensor, v: Tensor | None, rotated: bool) -> Tokens:
        """Tokens that have been nowhere else."""
        if rotated and self.keep == "raw":
            raise ValueError("k must be raw for keep='raw', got rotated keys, which were rounded; use keep='residual'")
        if rotated:
            return Tokens(k, v, positions, None)
        return self._placed(Origin.of(k, positions, None), positions, v)

    def _source(self, slots: range | Tensor) -> Origin:
        """What the tokens ``slots`` come from, whether they have moved or not."""
        tokens, origin = self._held, self._held.origin
        if isinstance(slots, range):
            part = tokens.between(slots.start, slots.stop)
            source = Origin.of(part.keys, part.positions, self.spec)
        else:
            keys, positions = tokens.keys.index_select(-2, slots), tokens.positions.index_select(-1, slots)
            source = Origin.of(keys, positions, self.spec)
        if origin is None:
            return source
        chosen = source.slots + slots.start if isinstance(slots, range) else slots
        entries = origin.entries_of(chosen, len(tokens))
        there = entries >= 0
        moved = origin.take(entries[there], there.nonzero()[:, 0])
        if len(moved) == len(source):
            return moved
        stay = (~there).nonzero()[:, 0]
        both = source.take(stay, stay).then(moved)
        order = both.slots.argsort()
        return both.take(order, both.slots[order])

    def _placed(self, source: Origin, positions: Tensor, values: Tensor | None) -> Tokens:
        """Tokens of their own, at ``positions`` of this spec."""
        keys = source.at(self.spec, positions, self.log_scale)
        return Tokens(keys, values, positions, source.moved_to(self.spec, positions, raw=self.keep == "raw"))
