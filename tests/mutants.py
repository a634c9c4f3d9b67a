"""Break the code by one line at a time and see whether the tests notice.

    python tests/mutants.py              all edits
    python tests/mutants.py yarn cache   those whose name has one of the words

Each edit is made on a temporary copy; its tests must fail there. A line per edit: KILLED or ALIVE. Ends with 1 if one is
alive, and with an error if the code no longer has the text that an edit replaces, or if the tests fail unbroken.
"""

# ruff: noqa: E501  (a table of edits is read line by line)

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import NamedTuple

import limited
from mutants_of_reading import EDITS

ROOT = Path(__file__).resolve().parents[1]
WORKERS = max(1, min(4, os.cpu_count() or 1))
LAWS = "test_algebra"
BATCHES = "tests/positions/test_check.py"
BY_TEXT = "tests/doctor/test_by_text.py"


class Mutant(NamedTuple):
    name: str
    file: str  # below src/phasor
    old: str
    new: str
    tests: str  # files of tests/core without .py; one that starts with tests/ is passed to pytest as it is


FORGETFUL = """def _forgetful(f):
    seen = {}
    def remember(spec, seq_len=None):
        key = KEY
        if key not in seen:
            seen[key] = f(spec, seq_len)
        return seen[key]
    return remember


@_forgetful
def exact_frequencies("""

CACHED = "@lru_cache(maxsize=512)\ndef exact_frequencies("
FLOORS = "tests/test_floors.py -k every_module"

# fmt: off
MUTANTS = [
    # phase
    Mutant("phase: steps rounded down", "rotary/phase.py", ".to_integral_value()", '.to_integral_value("ROUND_FLOOR")', "test_precision"),
    Mutant("phase: quarter is an eighth", "rotary/phase.py", "_QUARTER = TURN_BITS - 2", "_QUARTER = TURN_BITS - 3", "test_precision"),
    Mutant("phase: wrong quarters below", "rotary/phase.py", "(quarter & 2).bool()", "(quarter & 1).bool()", "test_precision"),
    Mutant("phase: wrong quarters left", "rotary/phase.py", "((quarter + 1) & 2)", "(quarter & 2)", "test_precision"),
    Mutant("phase: negative zero", "rotary/phase.py", "torch.where(flip_x, 0 - x, x)", "torch.where(flip_x, -x, x)", "test_precision"),
    Mutant("phase: second axis lost", "rotary/phase.py", "range(1, len(positions))", "range(1, 1)", "test_axes"),
    Mutant("phase: pi in float64", "rotary/phase.py", "3.14159265358979323846264338327950288419716939937510582097494459", "3.141592653589793", "test_precision"),
    Mutant("phase: few digits", "rotary/phase.py", "PRECISION = 50", "PRECISION = 16", "test_precision"),
    Mutant("phase: radians in half a turn", "rotary/phase.py", "2 * math.pi / 2**TURN_BITS", "math.pi / 2**TURN_BITS", "test_precision"),
    # frequencies
    Mutant("frequencies: exponent off by one", "rotary/frequencies.py", "Decimal(-2 * i) / dim", "Decimal(-2 * i) / (dim - 1)", "test_scaling"),
    Mutant("frequencies: first pair lost", "rotary/frequencies.py", "Decimal(-2 * i) / dim", "Decimal(-2 * (i + 1)) / dim", "test_scaling"),
    Mutant("frequencies: sign", "rotary/frequencies.py", "Decimal(-2 * i) / dim", "Decimal(2 * i) / dim", "test_scaling"),
    Mutant("frequencies: float32 in float64", "rotary/frequencies.py", ".to(torch.float32) / dim", ".to(torch.float64) / dim", "test_scaling_float32"),
    Mutant("frequencies: default dtype", "rotary/frequencies.py", ".to(torch.float32) / dim", ".to(torch.get_default_dtype()) / dim", "test_precision"),
    # pairs
    Mutant("layout: swapped in split", "rotary/layout.py", "        if self.interleaved:\n            return x[..., 0::2]", "        if not self.interleaved:\n            return x[..., 0::2]", "test_layout"),
    Mutant("layout: join in reverse", "rotary/layout.py", "return torch.cat((a, b), dim=-1)", "return torch.cat((b, a), dim=-1)", "test_layout"),
    Mutant("layout: permutation direction", "rotary/layout.py", "zip(target.channels(), self.channels(), strict=True)", "zip(self.channels(), target.channels(), strict=True)", "test_layout"),
    Mutant("layout: passing channels forgotten", "rotary/layout.py", "(*self.split(index), index[self.passing])", "(*self.split(index), index[: self.head_dim - self.rotary_dim])", "test_layout"),
    Mutant("layout: trailing ignored", "rotary/layout.py", "if self.trailing else slice(0, self.rotary_dim)", "if False else slice(0, self.rotary_dim)", "test_layout"),
    Mutant("layout: odd widths pass", "rotary/layout.py", "self.rotary_dim < 2 or self.rotary_dim % 2", "self.rotary_dim < 2", "test_errors"),
    # checks
    Mutant("checks: bool is a number", "support/checks.py", "isinstance(value, int | float) and not isinstance(value, bool)", "isinstance(value, int | float)", "test_errors"),
    Mutant("checks: bound itself passes", "support/checks.py", "value <= above", "value < above", "test_errors"),
    # scaling
    Mutant("linear: multiplied", "rotary/scaling/linear.py", "f / Decimal(self.factor)", "f * Decimal(self.factor)", "test_scaling"),
    Mutant("linear: float32 path plain", "rotary/scaling/linear.py", "inverse_frequencies_float32(base, dim) / self.factor", "inverse_frequencies_float32(base, dim)", "test_scaling_float32"),
    Mutant("ntk: exponent 1", "rotary/scaling/ntk.py", "(Decimal(dim) / (dim - 2))", "Decimal(1)", "test_scaling"),
    Mutant("ntk: exponent of d + 2", "rotary/scaling/ntk.py", "(Decimal(dim) / (dim - 2))", "(Decimal(dim) / (dim + 2))", "test_scaling"),
    Mutant("ntk fixed: half the exponent", "rotary/scaling/ntk_fixed.py", "Decimal(2) / dim", "Decimal(1) / dim", "test_scaling"),
    Mutant("dynamic: not clamped below", "rotary/scaling/dynamic_ntk.py", "factor * max(seq_len or 0, trained)", "factor * (seq_len or trained)", "test_scaling"),
    Mutant("dynamic: forgets factor - 1", "rotary/scaling/dynamic_ntk.py", "/ trained - (factor - 1)", "/ trained", "test_scaling"),
    Mutant("dynamic: float32 forgets factor - 1", "rotary/scaling/dynamic_ntk.py", "length / trained) - (self.factor - 1)", "length / trained)", "test_scaling_float32"),
    Mutant("stepped: octave too few", "rotary/scaling/dynamic_ntk.py", "2 ** (octaves + 1) - 1", "2 ** octaves", "test_scaling"),
    Mutant("stepped: rounded down", "rotary/scaling/dynamic_ntk.py", "math.ceil(math.log2(", "math.floor(math.log2(", "test_scaling"),
    Mutant("yarn: ramp reversed", "rotary/scaling/yarn.py", "f * (1 - ramp) + f / factor * ramp", "f * ramp + f / factor * (1 - ramp)", "test_scaling_yarn"),
    Mutant("yarn: low rounded up", "rotary/scaling/yarn.py", "low.__floor__()", "low.__ceil__()", "test_scaling_yarn"),
    Mutant("yarn: truncate ignored", "rotary/scaling/yarn.py", "            if self.truncate:\n                low, high = low.", "            if True:\n                low, high = low.", "test_scaling_yarn"),
    Mutant("yarn: high not clamped", "rotary/scaling/yarn.py", "min(high, Decimal(dim - 1))", "high", "test_scaling_yarn"),
    Mutant("yarn: low not clamped", "rotary/scaling/yarn.py", "max(low, Decimal(0))", "low", "test_scaling_yarn"),
    Mutant("yarn: beta_fast 30", "rotary/scaling/yarn.py", "beta_fast: float = 32.0", "beta_fast: float = 30.0", "test_scaling_yarn"),
    Mutant("yarn: stated factor multiplied", "rotary/scaling/yarn.py", "            return self.attention\n", "            return self.attention * magnitude(self.factor)\n", "test_scaling_yarn"),
    Mutant("yarn: one mscale is enough", "rotary/scaling/yarn.py", "if self.mscale and self.mscale_all_dim", "if self.mscale is not None", "test_scaling_yarn"),
    Mutant("yarn: mscale ignored", "rotary/scaling/yarn.py", "0.1 * mscale * math.log(factor)", "0.1 * math.log(factor)", "test_scaling_yarn"),
    Mutant("yarn: float32 guard lost", "rotary/scaling/yarn.py", "high += 0.001 * (low == high)", "high += 1 * (low == high)", "test_scaling_yarn"),
    Mutant("yarn paper: ramp from beta", "rotary/scaling/yarn.py", "max((turns - alpha) / (beta - alpha)", "max(turns / beta", "test_scaling_yarn test_scaling"),
    Mutant("longrope: long at the length itself", "rotary/scaling/longrope.py", "seq_len > self.original_max_position", "seq_len >= self.original_max_position", "test_scaling"),
    Mutant("longrope: sides swapped", "rotary/scaling/longrope.py", '"long_factor" if self.is_long(seq_len) else "short_factor"', '"short_factor" if self.is_long(seq_len) else "long_factor"', "test_scaling"),
    Mutant("longrope: no square root", "rotary/scaling/longrope.py", "math.sqrt(1 + ", "(1 + ", "test_scaling"),
    Mutant("longrope: short attention for long", "rotary/scaling/longrope.py", "and not self.is_long(seq_len)", "and self.is_long(seq_len)", "test_scaling"),
    Mutant("llama3: blend reversed", "rotary/scaling/llama3.py", "f * (keep + (1 - keep) / factor)", "f * ((1 - keep) + keep / factor)", "test_scaling"),
    Mutant("llama3: bounds swapped in the blend", "rotary/scaling/llama3.py", "keep = (turns - low) / (high - low)", "keep = (turns - high) / (low - high)", "test_scaling"),
    Mutant("llama3: fast pairs slowed", "rotary/scaling/llama3.py", "if turns < low:", "if turns > low:", "test_scaling"),
    Mutant("llama3: float32 blends all", "rotary/scaling/llama3.py", "torch.where(slow | fast, slowed, blended)", "torch.where(slow, slowed, blended)", "test_scaling_float32"),
    Mutant("proportional: rounded", "rotary/scaling/proportional.py", "int(self.fraction * dim // 2)", "round(self.fraction * dim / 2)", "test_scaling"),
    Mutant("proportional: squeezed ladder", "rotary/scaling/proportional.py", "powers_float32(base, dim, kept)", "powers_float32(base, 2 * kept, kept)", "test_scaling"),
    # axes
    Mutant("axes: order reversed", "rotary/axes/base.py", "for axis in range(self.count)", "for axis in reversed(range(self.count))", "test_axes"),
    Mutant("axial: one ladder", "rotary/axes/axial.py", "(j, size) for size", "(j, pairs) for size", "test_axes"),
    Mutant("interleaved sections: rest to height", "rotary/axes/mrope.py", "else 0 for j in range(pairs)", "else 1 for j in range(pairs)", "test_axes"),
    Mutant("interleaved sections: contiguous", "rotary/axes/mrope.py", "tuple(j % n if j < n * self.sections[j % n] else 0 for j in range(pairs))", "super().axis_of_pair(pairs)", "test_axes"),
    Mutant("mixed: second half not turned", "rotary/axes/mixed.py", "angle + math.pi / 2", "angle + math.pi", "test_axes"),
    Mutant("mixed: x and y exchanged", "rotary/axes/mixed.py", "torch.stack((both.cos(), both.sin()), dim=1)", "torch.stack((both.sin(), both.cos()), dim=1)", "test_axes"),
    # spec
    Mutant("spec: cache forgets the base", "rotary/spec.py", CACHED, FORGETFUL.replace("KEY", "(spec.rotary_dim, spec.scaling, spec.axes, spec.frequencies, seq_len)"), "test_precision test_scaling"),
    Mutant("spec: cache forgets seq_len", "rotary/spec.py", CACHED, FORGETFUL.replace("KEY", "spec"), "test_scaling"),
    Mutant("spec: unknown keys pass", "rotary/spec.py", "sorted(set(data) - known)", "sorted(known - known)", "test_errors"),
    Mutant("spec: attention factor lost", "rotary/spec.py", "return 1.0 if self.scaling is None else", "return 1.0 if self is not None else", "test_scaling_yarn"),
    Mutant("schemes: dict forgets the fields", "support/schemes.py", "**lists(dataclasses.asdict(scheme))", "", "test_spec"),
    Mutant("spec: diff finds nothing", "rotary/spec.py", "if mine != theirs}", "if mine is None}", "test_spec"),
    Mutant("spec: share of the axis lost", "rotary/spec.py", "f * Decimal(w) for f, w", "f * Decimal(bool(w)) for f, w", "test_axes"),
    Mutant("spec: float32 mode is exact", "rotary/spec.py", 'if self.angles == "float32":\n            return float32', 'if self.angles == "none":\n            return float32', "test_scaling_float32"),
    # rotation
    Mutant("tables: always floating-point angles", "rotary/tables.py", 'return self.spec.angles == "exact" and', 'return self.spec.angles == "none" and', "test_precision"),
    Mutant("tables: positions through bfloat16", "rotary/tables.py", "else positions.to(torch.int64)", "else positions.to(torch.bfloat16).to(torch.int64)", "test_precision"),
    Mutant("tables: float64 in float32", "rotary/tables.py", "torch.float64 if dtype == torch.float64 else torch.float32", "torch.float32", "test_precision"),
    Mutant("tables: factor on cos only", "rotary/tables.py", "cos * factor, sin * factor", "cos * factor, sin", LAWS),
    Mutant("tables: exact ones in the activation's dtype", "rotary/tables.py", '        if spec.angles == "exact":\n            return _as_one(cos, sin)\n', "", "test_precision"),
    Mutant("tables: rounded ones not widened", "rotary/tables.py", 'if spec.tables == "rounded":', 'if spec.tables == "none":', "test_apply"),
    Mutant("rotation: inverse is identity", "rotary/planes.py", "(self.cos, -self.sin) if shrink == 1", "(self.cos, self.sin) if shrink == 1", LAWS),
    Mutant("rotation: inverse keeps the factor", "rotary/planes.py", "self.magnitude**-2", "self.magnitude**0", LAWS),
    Mutant("rotation: inverse magnitude", "rotary/planes.py", "magnitude=1 / self.magnitude", "magnitude=self.magnitude", LAWS),
    Mutant("rotation: transpose is identity", "rotary/planes.py", "self.replace(sin=-sin, second=second", "self.replace(sin=sin, second=second", LAWS),
    Mutant("rotation: compose subtracts", "rotary/planes.py", "self.sin * other.cos + self.cos * other.sin", "self.sin * other.cos - self.cos * other.sin", LAWS),
    Mutant("rotation: seq_len not asked for", "rotary/tables.py", "if seq_len is None and spec.length_dependent:", "if seq_len is None and spec is None:", "test_errors_of_use"),
    Mutant("rotation: learned axes alike", "rotary/tables.py", "inv_freq[..., a, :]", "inv_freq[..., 0, :]", "test_axes"),
    Mutant("rotation: slice by one", "rotary/planes.py", "table[..., start:stop, :]", "table[..., start + 1 : stop + 1, :]", "test_apply"),
    # factors that few models use
    Mutant("layout: blocks lost in split", "rotary/layout.py", "torch.unflatten(x, -1, (self.blocks, 2, -1)).unbind(-2)", "torch.unflatten(x, -1, (1, 2, -1)).unbind(-2)", "test_factors"),
    Mutant("layout: blocks joined as halves", "rotary/layout.py", "        if self.blocks > 1:\n            return torch.cat", "        if self.blocks < 1:\n            return torch.cat", "test_factors"),
    Mutant("frequencies: odd width rounded down", "rotary/frequencies.py", "count = (dim + 1) // 2 if", "count = dim // 2 if", "test_models"),
    Mutant("spec: exponent_dim ignored", "rotary/spec.py", "2 * n if spec.exponent_dim is None else spec.exponent_dim", "2 * n", "test_factors"),
    Mutant("spec: scale of positions ignored", "rotary/spec.py", "f * Decimal(spec.position_scale) for f", "f for f", "test_factors"),
    Mutant("tables: scale of real positions ignored", "rotary/tables.py", "at = [p * spec.position_scale for p in at]", "at = [p * 1.0 for p in at]", "test_factors"),
    Mutant("tables: reverse ignored", "rotary/tables.py", "        if spec.reverse:\n            sin = -sin\n", "", "test_factors"),
    Mutant("tables: log-scale without exp", "rotary/tables.py", "log_scale.to(dtype).exp()", "log_scale.to(dtype)", "test_factors"),
    Mutant("tables: float64 angles in float32", "rotary/tables.py", 'dtype = torch.float32 if spec.angles == "float32" else torch.float64\n    frequencies', "dtype = torch.float32\n    frequencies", "test_models"),
    Mutant("tables: products not in float64", "rotary/tables.py", "return table.double() if", "return table if", "test_models"),
    Mutant("tables: real coordinates truncated", "rotary/tables.py", "positions if real else positions.to(torch.int64)", "positions.to(torch.int64)", "test_factors"),
    Mutant("tables: second like the first", "rotary/tables.py", "spec.replace(axes=spec.second, second=None)", "spec.replace(second=None)", "test_factors"),
    Mutant("rotation: adjoint of second keeps its sines", "rotary/planes.py", "sin, second = self.second[1], (self.second[0], -self.sin)", "second = (self.second[0], -self.second[1])", "test_factors"),
    Mutant("rotation: transpose writes what was written", "rotary/planes.py", "self.replace(sin=-sin, second=second, layout=self.layout.transposed())", "self.replace(sin=-sin, second=second)", "test_factors"),
    Mutant("rotation: inverse writes what was written", "rotary/planes.py", "magnitude=1 / self.magnitude, layout=self.layout.transposed())", "magnitude=1 / self.magnitude)", "test_factors"),
    Mutant("rotation: padding turns", "rotary/planes.py", "fill(cos, pad, value=1.0)", "fill(cos, pad)", "test_factors"),
    Mutant("rotation: padding behind", "rotary/planes.py", "(0, 0, before, after)", "(0, 0, after, before)", "test_factors"),
    Mutant("kernel: permuted ignored", "rotary/kernels/reference.py", "layout.written().join(", "layout.join(", "test_factors"),
    Mutant("kernel: promoted ignored", "rotary/kernels/reference.py", "y if promoted else y.to(x.dtype)", "y.to(x.dtype)", "test_models"),
    Mutant("eager: blocks as one", "rotary/kernels/eager.py", "cos, sin = layout.per_block(cos), layout.per_block(sin)", "pass", "test_kernels"),
    Mutant("eager: permuted ignored", "rotary/kernels/eager.py", "layout.written().views(y)", "layout.views(y)", "test_kernels"),
    Mutant("eager: backward reads the wrong layout", "rotary/kernels/eager.py", "ctx.layout.transposed()", "ctx.layout", "test_kernels"),
    Mutant("eager: whole rows for every layout", "rotary/kernels/eager.py", "if not rotation.layout.plain:", "if False:", "test_kernels"),
    Mutant("alternating: order ignored", "rotary/axes/alternating.py", "self.order[p % self.count] for p", "p % self.count for p", "test_factors"),
    Mutant("alternating: one ladder", "rotary/axes/alternating.py", "(p // self.count, pairs // self.count)", "(p, pairs)", "test_factors"),
    Mutant("listed: rungs ignored", "rotary/axes/listed.py", "super().rung_of_pair(pairs) if self.rung is None else self.rung", "super().rung_of_pair(pairs)", "test_factors"),
    Mutant("temperature: offset ignored", "rotary/temperature.py", "torch.div(positions + self.offset,", "torch.div(positions,", "test_models"),
    Mutant("temperature: not constant inside a length", "rotary/temperature.py", "steps = torch.div(positions + self.offset, self.length, rounding_mode=\"floor\")", "steps = (positions + self.offset) / self.length", "test_models"),
    Mutant("temperature: positions from zero", "rotary/temperature.py", "(positions + 1).to(torch.float32)", "(positions + 2).to(torch.float32)", "test_models"),
    # kernels
    Mutant("kernel: rotate by -theta", "rotary/kernels/reference.py", "join(a * cos - b * sin, a * sin_2 + b * cos_2", "join(a * cos + b * sin, b * cos_2 - a * sin_2", "test_apply"),
    Mutant("kernel: rotate by -theta everywhere", "rotary/phase.py", "(quarter & 2).bool()", "~(quarter & 2).bool()", LAWS),
    Mutant("kernel: one sign lost", "rotary/kernels/reference.py", "a * cos - b * sin", "a * cos + b * sin", LAWS),
    Mutant("kernel: computes in the dtype of x", "rotary/kernels/reference.py", "    a, b = layout.split(", "    cos, sin = cos.to(x.dtype), sin.to(x.dtype)\n    a, b = layout.split(", "test_precision"),
    Mutant("layout: passing channels zeroed", "rotary/layout.py", "rest = x[..., self.passing]", "rest = x[..., self.passing] * 0", "test_layout"),
    Mutant("layout: passing channels touched", "rotary/layout.py", "rest = x[..., self.passing]", "rest = x[..., self.passing] + 0", "test_layout"),
    Mutant("kernel: writes to x", "rotary/kernels/reference.py", "    cos_2, sin_2 = (cos, sin)", "    x.data.add_(1)\n    cos_2, sin_2 = (cos, sin)", "test_apply"),
    Mutant("eager: sign", "rotary/kernels/eager.py", "(a * cos).sub_(b * sin)", "(a * cos).add_(b * sin)", "test_kernels"),
    Mutant("eager: computes in the dtype of x", "rotary/kernels/eager.py", "    a, b = layout.views(", "    cos, sin = cos.to(x.dtype), sin.to(x.dtype)\n    a, b = layout.views(", "test_precision"),
    Mutant("eager: backward forgets the transpose", "rotary/kernels/eager.py", "(grad, cos, -sin,", "(grad, cos, sin,", "test_gradients"),
    Mutant("eager: wrong rest", "rotary/kernels/eager.py", "y[..., layout.passing] = x[..., layout.passing]", "y[..., layout.passing] = x[..., layout.turning][..., : y[..., layout.passing].shape[-1]]", "test_kernels"),
    Mutant("eager: writes to x", "rotary/kernels/eager.py", "y = torch.empty_like(x, dtype=dtype, memory_format=torch.contiguous_format)", "y = x", "test_kernels"),
    Mutant("eager: gradient lost", "rotary/kernels/eager.py", "learns, layout = _learns(x, None), rotation.layout", "learns, layout = False, rotation.layout", "test_kernels"),
    Mutant("eager: whole rows swap the sign", "rotary/planes.py", "torch.cat((-self.sin, self.sin), -1)", "torch.cat((self.sin, -self.sin), -1)", "test_kernels"),
    Mutant("apply: head width not compared", "rotary/apply/fit.py", "if shape[-1] != layout.head_dim:", "if shape[-1] < 0:", "test_errors_of_use"),
    Mutant("phase: caller's decimal context", "rotary/phase.py", "localcontext(Context(prec=PRECISION))", "localcontext(prec=PRECISION)", "test_precision"),
    # tables of others, outputs, choice, orders
    Mutant("forms: contradictions pass", "rotary/table_forms.py", "if readable(table) and not _equal(", "if False and not _equal(", "test_given_tables"),
    Mutant("forms: half tables may hold all twice", "rotary/table_forms.py", "        if not sure:\n", "        if False:\n", "test_given_tables"),
    Mutant("forms: repeated as doubled", "rotary/table_forms.py", 'split(table)\n    if readable', 'split(table)[::-1]\n    if readable', "test_given_tables"),
    Mutant("rotation: tables stay half", "rotary/rotation.py", "t.float() if t.dtype.itemsize == 2 else t", "t", "test_given_tables"),
    Mutant("rotation: positions forgotten", "rotary/rotation.py", "        if positions is not None:  # first", "        if False:  # first", "test_given_tables"),
    Mutant("rotation: sin broadcasts", "rotary/planes.py", "(table.shape, table.dtype, table.device) != (cos.shape, cos.dtype, cos.device)", "(table.dtype, table.device) != (cos.dtype, cos.device)", "test_given_tables"),
    Mutant("rotation: heads before batch in take", "rotary/tables.py", "found.transpose(0, 1) if per_head else found", "found", "test_rotation"),
    Mutant("rotation: rows not looked at", "rotary/tables.py", "if low < 0 or high >= rows:", "if high >= rows:", "test_given_tables"),
    Mutant("positions: uint64 wraps", "rotary/tables.py", "if positions.dtype == torch.uint64:", "if False:", "test_precision"),
    Mutant("packed: offsets subtracted", "positions/rows.py", "starts = starts - first", "starts = starts + first", "test_formats"),
    Mutant("outputs: x read after it was written", "rotary/kernels/eager.py", "    if new:  # written while", "    if True:  # written while", "test_outputs"),
    Mutant("outputs: overlaps pass", "rotary/apply/outputs.py", "        _check_overlaps(inputs, outputs)\n", "        pass\n", "test_outputs"),
    Mutant("outputs: gradients pass", "rotary/apply/outputs.py", "for t in (x, y, *tables)", "for t in (x, *tables)", "test_outputs"),
    Mutant("outputs: overlap by ranges", "rotary/apply/outputs.py", "if a.dtype != b.dtype or", "if True or", "test_outputs"),
    Mutant("choice: a named kernel is swapped", "rotary/kernels/__init__.py", '            if name != "auto":\n', "            if False:\n", "test_kernel_choice"),
    Mutant("choice: variable ignored", "rotary/kernels/__init__.py", 'name = CHOSEN if name == "auto" else name', "pass", "test_kernel_choice"),
    Mutant("choice: blocks on every device", "rotary/kernels/eager.py", "(x.numel() <= 2 * BLOCK or not x.is_cpu)", "x.numel() <= 2 * BLOCK", "test_launches"),
    Mutant("orders: batch before tokens in sbhd", "rotary/kernels/base.py", "return cos.transpose(-4, -3), sin.transpose(-4, -3)", "return cos, sin", "test_formats"),
    Mutant("orders: keys by the queries' tokens", "rotary/apply/calls.py", "_rotate(k, None, k_angles,", "_rotate(k, None, angles,", "test_formats"),
    Mutant("packed projection: values turn", "rotary/apply/packed.py", "turning, heads = 2 * qkv.shape[-2],", "turning, heads = 3 * qkv.shape[-2],", "test_formats"),
    # apply
    Mutant("apply: any batch fits", "rotary/apply/fit.py", "ours in (1, theirs)", "ours or theirs", "test_errors_of_use"),
    Mutant("apply: rotation longer than the batch", "rotary/apply/fit.py", "len(leading) <= len(batch) and all(", "all(", "test_errors_of_use"),
    Mutant("apply: outputs exchanged", "rotary/kernels/eager.py", "both.split((q.shape[order.heads], k.shape[order.heads])", "both.split((k.shape[order.heads], q.shape[order.heads])", "test_kernels"),
    Mutant("apply: heads not compared", "rotary/apply/fit.py", "if leading[-1] != heads:", "if False:", "test_errors_of_use"),
    Mutant("apply: functorch meets the eager kernel", "support/tracing.py", "torch._C._are_functorch_transforms_active() or ", "", "test_gradients"),
    Mutant("apply: forward mode meets the eager kernel", "support/tracing.py", " or forward_ad._current_level >= 0", "", "test_gradients"),
    Mutant("apply: per-head tables not transposed", "rotary/kernels/base.py", "cos.transpose(-3, -2), sin.transpose(-3, -2)", "cos, sin", "test_axes"),
    Mutant("apply: seq_len dropped by rotate", "rotary/apply/calls.py", "at = Phases(spec, positions, seq_len, dtype=q.dtype)\n    if", "at = Phases(spec, positions, 1, dtype=q.dtype)\n    if", "test_apply"),
    Mutant("apply: dtype dropped by rotate", "rotary/apply/calls.py", "at = Phases(spec, positions, seq_len, dtype=q.dtype)\n    if", "at = Phases(spec, positions, seq_len)\n    if", "test_apply"),
    # positions
    Mutant("positions: documents run on", "positions/rows.py", "device=bounds.device) - starts", "device=bounds.device)", "test_positions"),
    Mutant("positions: mask counts from one", "positions/rows.py", ".cumsum(-1) - 1)", ".cumsum(-1))", "test_positions"),
    Mutant("positions: mask of ids passes", "positions/rows.py", "((mask == 1) | ~real)", "(real | ~real)", "test_errors_of_use"),
    Mutant("positions: decode off by one", "positions/steps.py", "lengths.unsqueeze(-1) + torch.arange(new", "lengths.unsqueeze(-1) - 1 + torch.arange(new", "test_positions"),
    Mutant("positions: offset forgotten", "positions/steps.py", "text(ahead + offset, axes)", "text(ahead, axes)", "tests/positions/test_builders.py"),
    Mutant("positions: patches row by row", "positions/grids.py", "blocks.transpose(3, 4).flatten(1)", "blocks.flatten(1)", "tests/positions/test_grids.py"),
    Mutant("positions: corners for centres", "positions/grids.py", "torch.arange(0.5, size", "torch.arange(0.0, size", "tests/positions/test_grids.py"),
    Mutant("positions: resumes too early", "positions/mrope.py", "block[:, -1].max() + 1", "block[:, -1].max()", "test_positions"),
    Mutant("positions: resumes after time", "positions/mrope.py", "block[:, -1].max() + 1", "block[0, -1].max() + 1", "test_positions"),
    Mutant("positions: text after a video counts frames", "positions/mrope.py", "start + max(piece.height, piece.width)", "block[:, -1].max() + 1", "tests/positions/test_builders.py"),
    Mutant("positions: frames together", "positions/mrope.py", "if rule.per_frame else [segment]", "if False else [segment]", "tests/positions/test_builders.py"),
    Mutant("positions: offset of the last token", "positions/mrope.py", "(positions.amax() + 1", "(positions[:, -1].amax() + 1", "tests/positions/test_families.py"),
    Mutant("positions: seconds in another order", "positions/mrope.py", "frames * (rule.rate * video.seconds)", "frames * video.seconds * rule.rate", "tests/positions/test_families.py"),
    Mutant("positions: chunks jump", "positions/mrope.py", ".cummin(0).values + at", ".cummin(0).values * 0 + number", "tests/positions/test_builders.py"),
    Mutant("positions: marks count one by one", "positions/mrope.py", "[0, 0] if rule.shared_marks else [0, 1]", "[0, 1]", "tests/positions/test_builders.py"),
    Mutant("positions: canvas follows text", "models/families/minicpm.py", "start + longer + 1", "start + longer", "tests/positions/test_canvas.py"),
    # heads
    Mutant("heads: scaled too late", "encodings/heads/head.py", "q.to(wide) * self.head_dim**-0.5", "q.to(wide)", "tests/heads/test_scores.py"),
    Mutant("heads: sentences joined", "encodings/heads/cells.py", "cells = (start == end) & (start != 0)", "cells = (start != 0) & (end != 0)", "tests/heads/test_scores.py"),
    Mutant("heads: positives stay negatives", "encodings/heads/losses.py", "scores.masked_fill(taken, NO_CELL)", "scores", "tests/heads/test_losses.py"),
    Mutant("heads: blocks forget the positives", "encodings/heads/losses.py", "start[here] - first, end[here] - left] = float(\"-inf\")", "start[here] - first, end[here] - left] += 0.0", "tests/heads/test_head_loss.py"),
    Mutant("heads: sigmoid of s", "encodings/heads/decode.py", "math.tanh(score)", "math.tanh(score / 2)", "tests/heads/test_decode.py"),
    # ner
    Mutant("ner: code of a folder if the user nods", "apps/ner/pretrained.py", "AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)", "AutoConfig.from_pretrained(folder, local_files_only=True)", "tests/ner/test_foreign_code.py"),
    Mutant("ner: kernels of the hub", "apps/ner/pretrained.py", "if name not in TORCH_ATTENTION:", "if False:", "tests/ner/test_foreign_code.py"),
    Mutant("ner: parts of a config not looked at", "apps/ner/pretrained.py", "yield from _parts(part)", "pass", "tests/ner/test_foreign_code.py"),
    Mutant("ner: tokenizer that may come from the hub", "apps/ner/tokens.py", "local_files_only=True, trust_remote_code=False", "trust_remote_code=False", "tests/test_loading.py"),
    Mutant("ner: a checkpoint too many", "apps/ner/train.py", "checkpoint_every == 0 and training.step % training.per_epoch:", "checkpoint_every == 0:", "tests/ner/test_train.py -k written_when"),
    Mutant("ner: other files are not looked at", "apps/ner/model.py", "        _check_seals(folder, sealed)\n", "", "tests/ner/test_model.py -k no_weight_tells"),
    # runs
    Mutant("runs: a key may be missing", "apps/run_folder/files.py", "elif key == word:", "elif False:", "tests/runs/test_tensors.py -k exactly_the_keys"),
    Mutant("runs: a bit may change", "apps/run_folder/tensors.py", "if digest(tensors, sealed", "if 0 and digest(tensors, sealed", "tests/runs/test_tensors.py -k no_bit"),
    Mutant("runs: a name before the data is on the disk", "support/whole_files.py", "os.fsync(file.fileno())", "pass", "tests/runs/test_whole_files.py"),
    Mutant("runs: two processes share a file to be", "support/whole_files.py", "{path.name}.{os.getpid()}", "{path.name}.0", "tests/runs/test_whole_files.py"),
    Mutant("runs: Ctrl-C leaves half a file", "support/whole_files.py", "except BaseException as error:", "except Exception as error:", "tests/runs/test_whole_files.py"),
    Mutant("runs: a lock on what is deleted", "support/lock.py", "if not _is(file.fileno(), path):", "if False:", "tests/runs/test_lock.py"),
    Mutant("runs: no lock", "support/lock.py", "fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)", "pass", "tests/runs/test_lock.py"),
    # lab
    Mutant("lab: gradients of one process alone", "apps/lab/train.py", "group.total_gradients(self.model.parameters())", "pass", "tests/lab/test_train.py"),
    Mutant("processes: a traceback keeps the group", "support/processes.py", "traceback.clear_frames(error.__traceback__)", "pass", "tests/lab/test_train.py"),
    Mutant("lab: the end of the last file", "apps/lab/data.py", "int(len(part) * HELD_OUT) for part in parts]", "int(len(part) * HELD_OUT) * (part is parts[-1]) for part in parts]", "tests/lab/test_data.py"),
    Mutant("lab: seeds are fixed", "apps/lab/results.py", "chance.integers(0, seeds, (seeds, RESAMPLES))", "np.arange(seeds)[:, None].repeat(RESAMPLES, 1)", "tests/lab/test_paired.py"),
    Mutant("lab: unpaired", "apps/lab/results.py", "np.subtract(*pair)", "np.subtract(pair[0], pair[1][::-1])", "tests/lab/test_paired.py"),
    # matrix
    Mutant("matrix: transposed", "rotary/matrix.py", "second=(cos_2, sin_2)).mT", "second=(cos_2, sin_2))", LAWS),
    Mutant("matrix: generator's sign", "rotary/matrix.py", "= -speeds, speeds", "= speeds, -speeds", LAWS),
    Mutant("matrix: complex conjugate", "rotary/matrix.py", "torch.complex(rotation.cos, rotation.sin)", "torch.complex(rotation.cos, -rotation.sin)", LAWS),
    # bench
    Mutant("bench: always one order", "apps/bench/measure.py", "order.sample(list(calls), len(calls))", "calls", "tests/bench/test_race.py"),
    Mutant("bench: freeing is timed", "apps/bench/measure.py", "            spent = clock() - start\n            del kept\n", "            del kept\n            spent = clock() - start\n", "tests/bench/test_race.py"),
    Mutant("bench: warm-up counts", "apps/bench/measure.py", "if n >= 0:", "if True:", "tests/bench/test_race.py"),
    Mutant("bench: ratio of medians", "apps/bench/measure.py", "* 1e6, middle, (low", "* 1e6, median[measured] / median[unit], (low", "tests/bench/test_race.py"),
    Mutant("bench: wall time on one thread", "apps/bench/measure.py", "if threads == 1 else", "if threads == 0 else", "tests/bench/test_race.py"),
    Mutant("bench: no gradient in training", "apps/bench/measure.py", "set_grad_enabled(case.gradient):\n            times", "set_grad_enabled(False):\n            times", "tests/bench/test_race.py"),
    Mutant("bench: a goal of at least", "apps/bench/result.py", "return ratio >= self.bound", "return ratio <= self.bound", "tests/bench/test_race.py"),
    Mutant("bench: rotates after all", "apps/bench/llama.py", "unsqueeze_dim=1: (q, k)", "unsqueeze_dim=1: original(q, k, cos, sin)", "tests/bench/test_cases.py -k llama"),
    Mutant("bench: an interleaved peer", "apps/bench/libraries.py", "int(variant.interleaved)", "0", "tests/bench/test_cases.py -k onnxruntime"),
    Mutant("bench: reused memory is fresh", "apps/bench/machine.py", '"reused": {"MALLOC_MMAP_THRESHOLD_": "8000000000"', '"reused": {"MALLOC_MMAP_THRESHOLD_": "1000000"', "tests/bench/test_run.py -k pages"),
    # ONNX
    Mutant("onnx: another layout's flag", "rotary/kernels/onnx.py", "interleaved=layout.interleaved", "interleaved=False", "tests/exported/test_export.py -k every_order"),
    Mutant("onnx: all channels", "rotary/kernels/onnx.py", "layout.rotary_dim if layout.rotary_dim < layout.head_dim else 0", "0", "tests/exported/test_export.py -k every_order"),
    Mutant("onnx: trailing channels taken for the first", "rotary/kernels/onnx.py", "if layout.trailing and", "if False and", "tests/exported/test_export.py -k cannot_express"),
    Mutant("onnx: another opset kept", "tools/onnx/export.py", "if said := _fault(onnx, made, opset_version):", "if False:", "tests/exported/test_export.py -k not_write"),
    Mutant("onnx check: com.microsoft's inputs in ai.onnx's order", "tools/onnx/operators.py", "ids: Any, cos: Any, sin: Any, **marks", "cos: Any, sin: Any, ids: Any, **marks", "tests/exported/test_check.py"),
    Mutant("onnx check: missing rotations", "tools/onnx/report.py", "and len(self.sites) == self.expected", "", "tests/exported/test_check.py"),
    Mutant("onnx check: unread is right", "tools/onnx/report.py", 'site.verdict == "right" for', 'site.verdict != "wrong" for', "tests/exported/test_check.py"),
    Mutant("onnx check: stray cos and sin", "tools/onnx/report.py", "and not self.stray", "", "tests/exported/test_check.py"),
    Mutant("onnx check: the channels that pass", "tools/onnx/find.py", "before, after = _with_the_rest(graph, before, after)", "pass", "tests/exported/test_check.py"),
    Mutant("onnx check: other folders", "tools/onnx/read.py", "or not file.is_relative_to(folder)", "", "tests/exported/test_check.py"),
    Mutant("onnx check: half precision as strict", "tools/onnx/judge.py", "    if half:\n", "    if False:\n", "tests/exported/test_check.py"),
    Mutant("onnx check: half precision everywhere", "tools/onnx/judge.py", "self.graph.kinds.get(place.before, 1), 0.0)", "10, 0.0)", "tests/exported/test_check.py"),
    # batches, and rankings by text
    Mutant("batch: padding counts", "positions/checking/batch.py", "counted = self.real.long().cumsum(-1) - self.real.long()", "counted = torch.arange(self.real.shape[1]).expand_as(self.real)", BATCHES),
    Mutant("batch: documents go on", "positions/checking/batch.py", "return values - torch.where(self.starts(), values, values.new_zeros(())).cummax(-1).values", "return values", BATCHES),
    Mutant("batch: a cache holds nothing", "positions/checking/batch.py", "columns + given.shape[1] - length", "columns", BATCHES),
    Mutant("batch: bounds of real tokens are refused", "positions/checking/batch.py", "if total not in (size, count):", "if total != size:", BATCHES),
    Mutant("batch: a document ends with its row", "positions/checking/batch.py", "documents[row, 0] == documents[before, -1]", "False", BATCHES),
    Mutant("batch: no document without a word", "positions/checking/expected.py", "if batch.stated or batch.decoding or batch.sharded:", "if True:", BATCHES),
    Mutant("batch: zeros are documents", "positions/checking/expected.py", "(starts != batch.real).any(-1, keepdim=True)", "True", BATCHES),
    Mutant("batch: images count on over documents", "positions/checking/expected.py", "rows = [((batch.documents == d) & batch.real).nonzero() for d in documents]", "rows = [(((batch.documents == d) | (d >= 0)) & batch.real).nonzero() for d in documents[:1]]", BATCHES),
    Mutant("batch: padding is looked at", "positions/checking/causes.py", "(got != wanted).any(0) & real", "(got != wanted).any(0)", BATCHES),
    Mutant("batch: shards look like jumps", "positions/checking/causes.py", "if batch.sharded and (", "if False and (", BATCHES),
    Mutant("batch: padding alone is a row like others", "positions/checking/causes.py", "if other == row or not bool(batch.real[other].any()):", "if other == row:", BATCHES),
    Mutant("batch: documents end at rows of padding", "positions/checking/batch.py", "for before, row in pairwise(filled):", "for before, row in pairwise(range(rows)):", BATCHES),
    Mutant("batch: one length for the first row", "positions/checking/batch.py", "else [cached] * rows", "else [cached] + [0] * (rows - 1)", BATCHES),
    Mutant("folder: contradictions one by one", "tools/doctor/folder/contradictions.py", "tried = list(product(*((found.inner, found.outer) for found in told)))", "tried = [tuple(f.inner for f in told), tuple(f.outer for f in told)]", "tests/doctor/test_folder.py"),
    Mutant("folder: any combination that fits", "tools/doctor/folder/contradictions.py", "own[0] if all(side == own[0] for side in own) else None", "own[0]", "tests/doctor/test_folder.py"),
    Mutant("folder: none fits and one is taken", "tools/doctor/folder/contradictions.py", "if not max(fits):", "if False:", "tests/doctor/test_folder.py"),
    Mutant("folder: sizes after frequencies", "tools/doctor/folder/examine.py", "settle_sizes(config, shapes) if shapes else (config, [])", "(config, [Finding(\"\", \"\", NOT_UNDERSTOOD)]) if shapes else (config, [])", "tests/doctor/test_folder.py"),
    Mutant("folder: links to folders are left out", "tools/doctor/folder/writing.py", "followlinks=True", "followlinks=False", "tests/doctor/test_folder.py"),
    Mutant("folder: links around the source", "tools/doctor/folder/writing.py", "*Path(at).resolve().parents, *source", "*source", "tests/doctor/test_folder.py"),
    Mutant("folder: inner folders are not synced", "tools/doctor/folder/writing.py", "for folder, _, _ in os.walk(scratch):", "for folder, _, _ in [(scratch, [], [])]:", "tests/doctor/test_folder.py"),
    Mutant("folder: modules without bounds", "tools/doctor/folder/bounds.py", "if COUNTS.search(key):", "if False:", "tests/doctor/test_bad_configs.py"),
    Mutant("folder: stacked experts do not count", "tools/doctor/folder/bounds.py", "if len(shape) > 2)", "if len(shape) > 9)", "tests/doctor/test_bad_configs.py"),
    Mutant("folder: tables take no memory", "tools/doctor/memory.py", "own = _bytes(model.parameters()) + _bytes(model.buffers())", "own = _bytes(model.parameters())", "tests/doctor/test_bad_configs.py"),
    Mutant("text: no margin", "tools/doctor/text/ranking.py", "return self.at_least > MARGIN", "return self.behind > MARGIN", BY_TEXT),
    Mutant("text: any best wins", "tools/doctor/text/ranking.py", "if self.stated not in self.tied:", "if self.stated != self.best:", BY_TEXT),
    Mutant("text: the layout stays", "tools/doctor/text/weights.py", "self._laid[reading.layout] = relaid(self.found, self.state, reading.layout)", "self._laid[reading.layout] = self.state", BY_TEXT),
    # bench on a GPU
    Mutant("bench gpu: every token at the first row", "apps/bench/gpu/libraries.py", "offsets = 0 if work.from_first else", "offsets = 0 if True else", "tests/bench/test_gpu.py -k documented"),
    Mutant("bench gpu: FlashInfer's layout", "apps/bench/gpu/libraries.py", "not work.spec.interleaved\n", "work.spec.interleaved\n", "tests/bench/test_gpu.py -k documented"),
    Mutant("bench gpu: no wait ahead", "apps/bench/measure.py", "            before()\n", "", "tests/bench/test_gpu.py"),
    Mutant("bench gpu: the time of a whole graph", "apps/bench/measure.py", "t / case.in_graph for t", "t for t", "tests/bench/test_gpu.py"),
    # floors
    Mutant("floors: a lower one imports the root", "rotary/layout.py", "from torch import Tensor\n", "from torch import Tensor\nimport phasor\n", FLOORS),
    Mutant("floors: a scaling imports the rotation", "rotary/scaling/linear.py", "from torch import Tensor\n", "from torch import Tensor\nfrom .. import rotation\n", FLOORS),
]
# fmt: on


def arguments(tests: str) -> list[str]:
    if tests.startswith("tests/"):
        return tests.split()
    return [f"tests/core/{name}.py" for name in tests.split()]


def copy_project(folder: Path) -> None:
    for name in ("src", "tests"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)


def run_tests(folder: Path, tests: Sequence[str]) -> tuple[int, str]:
    """pytest's exit code in the copy, and the line that says why."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(folder / "src"),
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--no-header", "--tb=no", *tests]
    try:
        done = limited.run(command, cwd=folder, env=environment)
    except limited.TooLong:
        return 1, f"no end after {limited.LIMIT:g} s"
    lines = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return done.returncode, (lines or (done.stdout + done.stderr).splitlines()[-3:] or [""])[-1]


def run_unbroken(tests: str, folders: SimpleQueue) -> tuple[int, str]:
    folder: Path = folders.get()
    try:
        return run_tests(folder, arguments(tests))
    finally:
        folders.put(folder)


def try_mutant(mutant: Mutant, folders: SimpleQueue) -> bool:
    """Whether the tests notice."""
    folder: Path = folders.get()
    target = folder / "src" / "phasor" / mutant.file
    original = target.read_text(encoding="utf-8")
    try:
        target.write_text(original.replace(mutant.old, mutant.new, 1), encoding="utf-8")
        code, why = run_tests(folder, arguments(mutant.tests))
    finally:
        target.write_text(original, encoding="utf-8")
        folders.put(folder)
    if code not in (0, 1, 2):  # 0 all passed, 1 some failed, 2 not even collected
        raise RuntimeError(f"pytest ended with {code} for {mutant.name}: {why}")
    print(f"{'KILLED' if code else 'ALIVE '} {mutant.name:44} {why.removeprefix('FAILED ')[:110]}", flush=True)
    return bool(code)


def all_mutants() -> list[Mutant]:
    return [*MUTANTS, *(Mutant(*edit) for edit in EDITS)]


def check_edits(mutants: Sequence[Mutant]) -> None:
    for mutant in mutants:
        text = (ROOT / "src" / "phasor" / mutant.file).read_text(encoding="utf-8")
        if text.count(mutant.old) != 1:
            raise SystemExit(f"{mutant.name}: {mutant.file} must have this text once, to be replaced: {mutant.old!r}")


def main(words: Sequence[str]) -> int:
    mutants = [m for m in all_mutants() if not words or any(word in m.name for word in words)]
    check_edits(mutants)
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        folders: SimpleQueue = SimpleQueue()
        for worker in range(WORKERS):
            folder = Path(scratch) / str(worker)
            copy_project(folder)
            folders.put(folder)
        with ThreadPoolExecutor(WORKERS) as pool:
            for code, why in pool.map(lambda tests: run_unbroken(tests, folders), sorted({m.tests for m in mutants})):
                if code:
                    raise SystemExit(f"the tests fail before anything is broken: {why}")
            print(f"unbroken: all pass ({time.monotonic() - start:.0f} s)", flush=True)
            killed = list(pool.map(lambda m: try_mutant(m, folders), mutants))
    print(f"{sum(killed)} of {len(killed)} killed in {time.monotonic() - start:.0f} s")
    return 0 if killed and all(killed) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
