// Numbers about one rotation: wavelengths, turns, decay, the error of float32 angles, memory, and its words for a config.

const STRETCHES = 160; // of distances in the figure of decay
const IN_EACH = 48; // distances looked at in one stretch

// What the figures need. `own`: float32 frequencies as the model's code forms them; without them each is rounded once.
function measured(spec, length, own) {
  const found = frequencies(spec, length);
  const exact = found.map(plain);
  return {
    spec,
    length,
    steps: stepsOf(spec, length, found),
    frequencies: exact.map((f) => f * spec.position_scale),
    own: own || exact.map(Math.fround),
    factor: attentionFactor(spec.scaling, length),
  };
}

// What phasor wrote down of a rotation at this length: steps, and float32 frequencies as the model's own code forms them.
function writtenRegime(rotation, length) {
  const s = rotation.spec.scaling;
  const inside = !dependsOnLength(s) || length <= s.original_max_position;
  const holds = (regime) => (inside || regime.length === null ? inside && regime.length === null : s.name === "longrope" || regime.length === length);
  return rotation.regimes.find(holds) || null;
}

function wavelengths(freqs) {
  return freqs.map((f) => (f ? (2 * Math.PI) / Math.abs(f) : Infinity));
}

// The frequencies of the model as it was trained, before a scaling that starts from a trained length.
function beforeScaling(spec) {
  return frequencies({ ...spec, scaling: null }, 0).map((f) => plain(f) * spec.position_scale);
}

function trainedLength(entry, spec) {
  return (spec.scaling && spec.scaling.original_max_position) || entry.trained || entry.declared || null;
}

// Whether that length is the scaling's or a published one, and not just the declared one.
function trainedIsStated(entry, spec) {
  return Boolean((spec.scaling && spec.scaling.original_max_position) || entry.trained);
}

// Turns that every pair completed inside the trained length, before any scaling that starts from one.
function trainedTurns(entry, rotation, spec) {
  const trained = trainedLength(entry, spec);
  if (!trained) return [];
  const seen = Math.min(trained, rotation.window || trained);
  const starts = spec.scaling && spec.scaling.original_max_position;
  const freqs = starts ? beforeScaling(spec) : frequencies(spec, 0).map((f) => plain(f) * spec.position_scale);
  return wavelengths(freqs).map((wave) => seen / wave);
}

// By how much a scaling slows its slowest pairs; null where no single number says it.
function fullFactor(s, length) {
  if (!s || s.name === "longrope") return null;
  if (s.name === "stepped_ntk") return steppedFactor(s, length || 0);
  if (s.name !== "dynamic") return s.factor;
  return (s.factor * Math.max(length || 0, s.original_max_position)) / s.original_max_position - (s.factor - 1);
}

// What the scaling does to each pair: kept, blended, slowed or stopped.
function regimes(m) {
  if (m.spec.frequencies) return m.frequencies.map((f) => (f ? "kept" : "stopped"));
  const before = beforeScaling(m.spec);
  const full = fullFactor(m.spec.scaling, m.length);
  return m.frequencies.map((f, i) => {
    if (f === 0) return "stopped";
    const ratio = f / before[i];
    if (Math.abs(ratio - 1) < 1e-6) return "kept";
    return full !== null && Math.abs(ratio * full - 1) < 1e-6 ? "slowed" : "blended";
  });
}

// The share of a pair's frequency in its angle where all coordinates move together.
function shares(spec) {
  const pairs = spec.rotary_dim / 2;
  return Array.from({ length: pairs }, (_, p) => (spec.weights ? spec.weights.reduce((sum, row) => sum + row[p], 0) : 1));
}

// Mean cosine of the pairs at a distance: the expected score of equal vectors, as a share of that at distance 0.
function decayAt(speeds, distance) {
  let sum = 0;
  for (const speed of speeds) sum += Math.cos(distance * speed);
  return sum / speeds.length;
}

// [start, lowest, highest] of the decay in stretches of distances that are even on a log scale, from 1 to the farthest.
function decayEnvelope(m, farthest) {
  const weights = shares(m.spec);
  const speeds = m.frequencies.map((f, p) => f * weights[p]);
  const edges = [];
  for (let i = 0; i <= STRETCHES; i += 1) {
    const edge = Math.round(Math.max(2, farthest) ** (i / STRETCHES));
    if (edge !== edges[edges.length - 1]) edges.push(edge);
  }
  return edges.slice(0, -1).map((start, i) => {
    const end = Math.max(start + 1, edges[i + 1]);
    const every = Math.max(1, Math.floor((end - start) / IN_EACH));
    let [low, high] = [Infinity, -Infinity];
    for (let d = start; d < end; d += every) {
      const value = decayAt(speeds, d);
      if (value < low) low = value;
      if (value > high) high = value;
    }
    return [start, low, high];
  });
}

// Largest error of cos or sin, times their factor, at positions first to last, if angles are formed in float32.
function float32Error(m, first, last) {
  const weights = shares(m.spec);
  const steps = m.steps[0].map((_, p) => m.steps.reduce((sum, row) => sum + row[p], 0n));
  let worst = 0;
  for (let position = first; position <= last; position += 1) {
    const scaled = Math.fround(position * m.spec.position_scale);
    for (let p = 0; p < steps.length; p += 1) {
      const angle = Math.fround(Math.fround(scaled * Math.fround(weights[p])) * m.own[p]);
      const [cos, sin] = cosSin(phaseOf(position, steps[p]));
      worst = Math.max(worst, Math.abs(Math.cos(angle) - cos), Math.abs(Math.sin(angle) - sin));
    }
  }
  return worst * m.factor;
}

// [position, error] at positions even on a log scale.
function errorCurve(m, farthest, count = 48, window = 6) {
  const points = [];
  for (let i = 0; i <= count; i += 1) {
    const last = Math.round(16 * (farthest / 16) ** (i / count));
    points.push([last, float32Error(m, Math.max(0, last - window), last)]);
  }
  return points;
}

// [first, second] channel of every pair.
function channelsOf(spec) {
  const pairs = spec.rotary_dim / 2;
  const start = spec.trailing ? spec.head_dim - spec.rotary_dim : 0;
  const inBlock = pairs / spec.blocks;
  return Array.from({ length: pairs }, (_, p) => {
    if (spec.interleaved) return [start + 2 * p, start + 2 * p + 1];
    const first = start + Math.floor(p / inBlock) * 2 * inBlock + (p % inBlock);
    return [first, first + inBlock];
  });
}

const BYTES = { float32: 4, bfloat16: 2, float16: 2, fp8: 1, int8: 1 };

// Bytes of keys and values of one sequence on one device, as phasor's planner counts them.
function storeBytes(store, length, width) {
  const kept = store.window ? Math.min(length, store.window) : length;
  const own = width * (store.per_token * kept + store.state);
  const more = store.beside.reduce((sum, b) => sum + Math.floor(length / b.every) * (b.size || width * b.values), 0);
  return store.layers * (own + more);
}

function cacheBytes(stores, length, width, batch) {
  return batch * stores.reduce((sum, store) => sum + storeBytes(store, length, width), 0);
}

// The longest sequences that fit; Infinity where the cache stops growing.
function longestThatFits(stores, bytes, width, batch) {
  const fits = (length) => cacheBytes(stores, length, width, batch) <= bytes;
  if (!fits(1)) return 0;
  let [low, high] = [1, 2];
  while (fits(high)) {
    if (high > 2 ** 45) return Infinity;
    [low, high] = [high, 2 * high];
  }
  while (high - low > 1) {
    const middle = Math.floor((low + high) / 2);
    if (fits(middle)) low = middle;
    else high = middle;
  }
  return low;
}

// What a dictionary of rope parameters must say for this rotation; null where none can.
function ropeParameters(spec) {
  const s = spec.scaling;
  const plainPairs = !spec.frequencies && !spec.weights && spec.exponent_dim === null && !spec.rungs && !spec.learned;
  if (!plainPairs || (s && !CONFIG_KEYS[s.name])) return null;
  const rope = { rope_type: s ? s.name : "default", rope_theta: spec.base };
  for (const [key, field, usual] of s ? CONFIG_KEYS[s.name] : []) if (s[field] !== usual) rope[key] = s[field];
  if (s && s.name === "longrope" && s.attention_short !== null) {
    rope.long_mscale = rope.attention_factor;
    rope.short_mscale = s.attention_short;
    delete rope.attention_factor;
  }
  if (spec.rotary_dim !== spec.head_dim && !spec.trailing) rope.partial_rotary_factor = spec.rotary_dim / spec.head_dim;
  return rope;
}

// scaling -> [key of a config, field, its value where the config leaves it out]
const CONFIG_KEYS = {
  linear: [["factor", "factor"]],
  dynamic: [["factor", "factor"], [ORIGINAL, "original_max_position"]],
  yarn: [
    ["factor", "factor"], [ORIGINAL, "original_max_position"], ["beta_fast", "beta_fast", 32], ["beta_slow", "beta_slow", 1],
    ["mscale", "mscale", null], ["mscale_all_dim", "mscale_all_dim", null], ["attention_factor", "attention", null],
    ["truncate", "truncate", true],
  ],
  llama3: [
    ["factor", "factor"], ["low_freq_factor", "low_freq_factor"], ["high_freq_factor", "high_freq_factor"],
    [ORIGINAL, "original_max_position"],
  ],
  longrope: [
    ["factor", "factor"], [ORIGINAL, "original_max_position"], ["short_factor", "short_factor"],
    ["long_factor", "long_factor"], ["attention_factor", "attention", null],
  ],
};
