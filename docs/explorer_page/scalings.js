// Frequencies of a rotation, in fixed point (exact.js), and the steps that come of them. Every scaling is one function
// of its parameters; their formulas and sources stand in phasor's folder rotary/scaling. A test compares every step.

// theta_i = base ** (-2 i / dim); dim may be odd.
function plainLadder(lnBase, dim) {
  return Array.from({ length: (dim + 1) >> 1 }, (_, i) => exp((-2n * BigInt(i) * lnBase) / BigInt(dim)));
}

// ln(base * factor ** (dim / (dim - 2)))
function lnStretched(lnBase, factor, dim) {
  if (dim <= 2) throw new Error("NTK scaling needs more than 2 rotated channels, got " + dim);
  return lnBase + (ln(factor) * BigInt(dim)) / BigInt(dim - 2);
}

function clip(x, low, high) {
  return x < low ? low : x > high ? high : x;
}

function yarnRamp(s, lnBase, dim) {
  const pairWithTurns = (turns) =>
    over(BigInt(dim) * ln(over(fixed(s.original_max_position), 2n * times(PI, fixed(turns)))), 2n * lnBase);
  let low = pairWithTurns(s.beta_fast);
  let high = pairWithTurns(s.beta_slow);
  if (s.truncate) {
    low = floorOver(low, ONE) * ONE;
    high = -floorOver(-high, ONE) * ONE;
  }
  low = low < 0n ? 0n : low;
  const last = BigInt(dim - 1) * ONE;
  high = high > last ? last : high;
  return [low, low === high ? high + ONE / 1000n : high];
}

function longropeSide(s, length) {
  return length > s.original_max_position ? s.long_factor : s.short_factor;
}

function steppedFactor(s, length) {
  let octaves = 0;
  while (s.original_max_position * 2 ** octaves < length) octaves += 1;
  return 2 ** (octaves + 1) - 1;
}

// scaling -> (scaling, ln(base), dim, length of the sequence) -> frequencies of a ladder
const LADDERS = {
  linear: (s, lnBase, dim) => plainLadder(lnBase, dim).map((f) => over(f, fixed(s.factor))),
  ntk: (s, lnBase, dim) => plainLadder(lnStretched(lnBase, fixed(s.factor), dim), dim),
  ntk_fixed: (s, lnBase, dim) => {
    const lnFactor = ln(fixed(s.factor));
    const slower = exp((2n * lnFactor) / BigInt(dim));
    return plainLadder(lnBase + lnFactor, dim).map((f) => over(f, slower));
  },
  dynamic: (s, lnBase, dim, length) => {
    const factor = fixed(s.factor);
    const longer = BigInt(Math.max(length, s.original_max_position));
    return plainLadder(lnStretched(lnBase, (factor * longer) / BigInt(s.original_max_position) - (factor - ONE), dim), dim);
  },
  stepped_ntk: (s, lnBase, dim, length) => plainLadder(lnStretched(lnBase, fixed(steppedFactor(s, length)), dim), dim),
  yarn: (s, lnBase, dim) => {
    const [low, high] = yarnRamp(s, lnBase, dim);
    return plainLadder(lnBase, dim).map((f, i) => {
      const ramp = clip(over(BigInt(i) * ONE - low, high - low), 0n, ONE);
      return times(f, ONE - ramp) + times(over(f, fixed(s.factor)), ramp);
    });
  },
  yarn_paper: (s, lnBase, dim) =>
    plainLadder(lnBase, dim).map((f) => {
      const turns = over(BigInt(s.original_max_position) * f, 2n * PI);
      const keep = clip(over(turns - fixed(s.alpha), fixed(s.beta) - fixed(s.alpha)), 0n, ONE);
      return times(f, keep) + times(over(f, fixed(s.factor)), ONE - keep);
    }),
  llama3: (s, lnBase, dim) => {
    const [low, high, factor] = [s.low_freq_factor, s.high_freq_factor, s.factor].map(fixed);
    return plainLadder(lnBase, dim).map((f) => {
      const turns = over(BigInt(s.original_max_position) * f, 2n * PI);
      if (turns < low) return over(f, factor);
      if (turns > high || low === high) return f;
      const keep = over(turns - low, high - low);
      return times(f, keep + over(ONE - keep, factor));
    });
  },
  longrope: (s, lnBase, dim, length) => {
    const divisors = longropeSide(s, length);
    const ladder = plainLadder(lnBase, dim);
    if (divisors.length !== ladder.length)
      throw new Error("longrope needs one divisor per pair, " + ladder.length + ", got " + divisors.length);
    return ladder.map((f, i) => over(f, fixed(divisors[i])));
  },
  proportional: (s, lnBase, dim) => {
    const kept = Math.floor((s.fraction * dim) / 2);
    const ladder = plainLadder(lnBase, dim).slice(0, dim >> 1);
    return ladder.map((f, i) => (i < kept ? over(f, fixed(s.factor)) : 0n));
  },
};

// Frequencies of all pairs in radians per position. Every rung (i, n) is frequency i of a ladder of n.
function frequencies(spec, length) {
  if (spec.frequencies) return spec.frequencies.map(fixed);
  const lnBase = ln(fixed(spec.base));
  const pairs = spec.rotary_dim / 2;
  const rungs = spec.rungs || Array.from({ length: pairs }, (_, i) => [i, pairs]);
  const made = new Map();
  return rungs.map(([i, n]) => {
    if (!made.has(n)) {
      const dim = spec.exponent_dim === null ? 2 * n : spec.exponent_dim;
      const s = spec.scaling;
      made.set(n, s ? LADDERS[s.name](s, lnBase, dim, length || 0) : plainLadder(lnBase, dim));
    }
    return made.get(n)[i];
  });
}

// [axes][pairs] turns per position, 64-bit integers.
function stepsOf(spec, length, found = frequencies(spec, length)) {
  const scale = fixed(spec.position_scale);
  const scaled = found.map((f) => times(f, scale));
  if (!spec.weights) return [scaled.map(stepOf)];
  return spec.weights.map((row) => scaled.map((f, p) => stepOf(times(f, fixed(row[p])))));
}

// 0.1 mscale ln(factor) + 1
function magnitude(factor, mscale = 1) {
  return factor <= 1 ? 1 : 0.1 * mscale * Math.log(factor) + 1;
}

// The factor on cos and sin.
function attentionFactor(s, length) {
  if (!s) return 1;
  if (s.name === "yarn") {
    if (s.attention !== null) return s.attention;
    if (s.mscale && s.mscale_all_dim) return magnitude(s.factor, s.mscale) / magnitude(s.factor, s.mscale_all_dim);
    return magnitude(s.factor);
  }
  if (s.name === "yarn_paper") return magnitude(s.factor);
  if (s.name !== "longrope") return 1;
  if (s.attention_short !== null && !((length || 0) > s.original_max_position)) return s.attention_short;
  if (s.attention !== null) return s.attention;
  return s.factor <= 1 ? 1 : Math.sqrt(1 + Math.log(s.factor) / Math.log(s.original_max_position));
}

function dependsOnLength(s) {
  return Boolean(s) && ["dynamic", "stepped_ntk", "longrope"].includes(s.name);
}
