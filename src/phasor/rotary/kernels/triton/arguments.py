"""What the kernels are launched with, in groups; Triton takes tuples, and hands their members over one by one.

Sizes and strides are numbers that serving changes. Members of `HeadLayout`, `NormKind`, `Reading` and `Cut` are
constants of the code, which is made anew for others.
"""

from typing import Any, NamedTuple


class Heads(NamedTuple):
    """q and k, and where they are written, rotated; q again where there is no k. Or the strides of each."""

    q: Any
    k: Any
    y: Any
    z: Any


class Tables(NamedTuple):
    """Of positions the turns of each pair per position, ``[axes, P]``; or cosines and sines."""

    steps: Any
    cos: Any
    sin: Any


class Weights(NamedTuple):
    """Of the norms: contiguous channels, or None."""

    q: Any
    k: Any


class Sizes(NamedTuple):
    """Rows (tokens of all batches), tokens of one, heads, groups of heads of q, and batches of angles."""

    rows: Any
    tokens: Any
    of_q: Any
    of_k: Any
    q_groups: Any
    at_batches: Any


class Strides(NamedTuple):
    """Of one tensor. The last is that of channels; of pairs where it is a table, of axes where it is positions.

    The batch of a cache is a block.
    """

    batch: Any
    head: Any
    token: Any
    step: Any


class CacheHeads(NamedTuple):
    """q and where it is written, rotated; k and v, and the pages that they are written to. Or the strides of each."""

    q: Any
    k: Any
    v: Any
    y: Any
    k_cache: Any
    v_cache: Any


class CacheWeights(NamedTuple):
    """Of the norms of q, k and v; and scales of caches of float8, one or one for each head."""

    q: Any
    k: Any
    v: Any
    k_scale: Any
    v_scale: Any


class CacheSizes(NamedTuple):
    """As `Sizes`; slots of a block and of the cache; and from one head's scale to the next."""

    rows: Any
    tokens: Any
    of_q: Any
    of_k: Any
    q_groups: Any
    k_groups: Any
    block_size: Any
    places: Any
    at_batches: Any
    k_scale: Any
    v_scale: Any


class BackHeads(NamedTuple):
    """q and k, gradients of what they became, and where their own are written. Or the strides of each."""

    q: Any
    k: Any
    of_y: Any
    of_z: Any
    of_q: Any
    of_k: Any


class HeadLayout(NamedTuple):
    """Where the pairs of a head lie, and the channels that pass.

    Triton's ranges are powers of two: ``wide`` is one for the pairs, ``part`` one for ``parts`` of the channels that
    pass. ``twins`` are pairs of neighbours, else halves of ``blocks``.
    """

    pairs: int
    wide: int
    blocks: int
    read_twins: bool
    write_twins: bool
    first: int
    rest: int
    part: int
    parts: int
    rest_first: int


class NormKind(NamedTuple):
    """``rounds``: 0 no norm, 1 nothing, 2 the result, 3 both. ``offset``: weights are kept less one."""

    rounds: int
    weighted: bool
    offset: bool


class CacheLayout(NamedTuple):
    """Of heads of q and k; and how many channels v has, and the next power of two."""

    qk: HeadLayout
    channels: int
    wide: int


class CacheNorms(NamedTuple):
    """Of q and k, and of v."""

    qk: NormKind
    v: NormKind


class Reading(NamedTuple):
    """How cos and sin come about: from positions of so many ``axes``, or, of none, from tables.

    Strides of tables count ``unit`` pairs; those of pairs are one if ``adjacent``. ``repeats``: heads have more batches
    than angles have. ``rounded``: products are, to the dtype of q.
    """

    axes: int
    per_head: bool
    negate: bool
    scaled: bool
    rounded: bool
    repeats: bool
    unit: int
    adjacent: bool


class Cut(NamedTuple):
    """What one program has: heads of q or of k in so many rows, ``ahead`` of them loaded before the first is stored.

    Strides of heads count ``unit`` channels; those of channels are one if ``adjacent``. ``even``: heads fill all
    groups. ``one_axis``: there is one batch.
    """

    rows: int
    heads: int
    ahead: int
    even: bool
    one_axis: bool
    unit: int
    adjacent: bool
