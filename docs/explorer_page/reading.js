// A config.json that is dropped on the page. Only types whose code does what the keys say are read (RULES.types, made
// from phasor's own rows), and every key that could concern positions is used or refused, so nothing is read by half.

const LARGEST_FILE = 8 * 2 ** 20;
const COMMAND = "phasor inspect config.json";
const ORIGINAL = "original_max_position_embeddings";
const EXACT_WHOLE = Number.MAX_SAFE_INTEGER;

const UNPRINTABLE = /[\p{C}\p{Zl}\p{Zp}]|(?! )\p{Zs}/u;

class NotRead extends Error {}

function hasOwn(data, name) {
  return Object.prototype.hasOwnProperty.call(data, name);
}

function refuse(reason) {
  throw new NotRead(reason + "; phasor reads it in full: " + COMMAND);
}

// A short word of a value for a message.
function shown(value) {
  const text = JSON.stringify(value);
  return text && text.length > 60 ? text.slice(0, 60) + "…" : String(text);
}

// The keys of one level, each used at most once or refused at the end.
class Keys {
  constructor(data, path) {
    this.data = data;
    this.path = path;
    this.used = new Set();
    const odd = Object.keys(data).find((name) => UNPRINTABLE.test(name));
    if (odd !== undefined) refuse(`a key must be a plain word, got ${shown(odd)}`);
  }
  has(name) {
    return hasOwn(this.data, name);
  }
  get(name) {
    this.used.add(name);
    const value = this.has(name) ? this.data[name] : null;
    return value === undefined ? null : value;
  }
  number(name, least, open) {
    const value = this.get(name);
    if (value === null) return null;
    const fits = typeof value === "number" && Number.isFinite(value) && (open ? value > least : value >= least);
    if (!fits || (Number.isInteger(value) && Math.abs(value) > EXACT_WHOLE))
      refuse(`${this.path}${name} must be a number ${open ? "above" : "of at least"} ${least}, got ${shown(value)}`);
    return value;
  }
  whole(name, most = EXACT_WHOLE) {
    const value = this.number(name, 1);
    if (value !== null && (!Number.isInteger(value) || value > most))
      refuse(`${this.path}${name} must be a whole number of at most ${most}, got ${shown(value)}`);
    return value;
  }
}

// text -> an entry as phasor makes it for this page, with one rotation; throws NotRead with one line.
function readConfigText(text, name, rules) {
  if (text.length > LARGEST_FILE) refuse(`the file has ${text.length} characters, and a config has a few thousand`);
  let data;
  try {
    data = JSON.parse(text.replace(/^\uFEFF/, ""));
  } catch (error) {
    throw new NotRead(`this is no config.json: ${String(error.message).split("\n")[0]}`);
  }
  if (data === null || typeof data !== "object" || Array.isArray(data))
    throw new NotRead("this is no config.json: it must hold an object of keys");
  const twice = keyThatStandsTwice(text);
  if (twice !== null) refuse(`the key ${shown(twice)} stands twice in one object`);
  return readConfig(data, name, rules);
}

// JSON.parse keeps the last of two equal keys without a word.
function keyThatStandsTwice(text) {
  const open = [];
  let last = null;
  for (const [token] of text.matchAll(/"(?:[^"\\]|\\.)*"|[{}[\],:]/g)) {
    if (token === "{" || token === "[") open.push(token === "{" ? new Set() : null);
    else if (token === "}" || token === "]") open.pop();
    else if (token === ":" && last !== null) {
      const keys = open[open.length - 1];
      const key = JSON.parse(last);
      if (keys && keys.has(key)) return key;
      if (keys) keys.add(key);
    }
    last = token.startsWith('"') ? token : null;
  }
  return null;
}

function readConfig(data, name, rules) {
  const type = data.model_type;
  if (typeof type !== "string" || !type) refuse("this config has no model_type, which says how its pairs lie");
  if (!hasOwn(rules.types, type)) refuse(`the page does not read configs of the type ${shown(type)}`);
  const row = rules.types[type];
  const keys = new Keys(data, "");
  ["model_type", ...row.unread].forEach((key) => keys.used.add(key));
  const sizes = readSizes(row, keys, rules);
  const rope = ropeOf(keys);
  const spec = readSpec(row, keys, rope, sizes, rules);
  readLayers(keys, sizes.layers);
  refuseRest(keys, rules);
  const notes = [...row.notes];
  if (!keys.has("rope_theta") && !rope.has("rope_theta")) notes.push(`no rope_theta: base ${spec.base} is ${row.config}'s`);
  return {
    name,
    type,
    part: "",
    declared: sizes.length,
    trained: trainedElsewhere(type, sizes, spec, rules),
    trained_source: "",
    heads: sizes.heads,
    kv_heads: sizes.kvHeads,
    layers: sizes.layers,
    own_angles: "float32",
    softmax_factor: 1,
    notes,
    rotations: [
      { layers: sizes.layers, where: "all layers", kinds: ["attention"], window: null, spec, regimes: [] },
    ],
    memory: [{ engines: ["every engine"], stores: [plainStore(sizes)] }],
    settings: [],
    why: "settings are proven by phasor itself: phasor plan config.json --length N",
  };
}

function plainStore(sizes) {
  const perToken = 2 * sizes.kvHeads * sizes.headDim;
  return { kind: "attention", layers: sizes.layers, per_token: perToken, window: null, state: 0, beside: [] };
}

// Lengths of training that were published and are not the declared ones.
function trainedElsewhere(type, sizes, spec, rules) {
  const one = rules.published.find(
    (p) => p.types.includes(type) && p.declared === sizes.length && p.base === spec.base && spec.scaling === null,
  );
  return one ? one.tokens : null;
}

function readSizes(row, keys, rules) {
  const most = rules.largest;
  const size = (name, fallback, what, largest) => {
    const value = keys.whole(name, largest);
    if (value !== null) return value;
    const other = rules.synonyms[what].find((synonym) => synonym !== name && (keys.data[synonym] ?? null) !== null);
    if (other && what !== "kv_heads") refuse(`${other} is not how ${row.config} calls ${name}, which is missing`);
    if (fallback === null) refuse(`${name} is missing`);
    return fallback;
  };
  const heads = size("num_attention_heads", row.heads, "heads", most.heads);
  const layers = size("num_hidden_layers", row.layers, "layers", most.layers);
  let kvHeads = keys.whole("num_key_value_heads", most.heads);
  if (kvHeads !== null && heads % kvHeads) refuse(`num_key_value_heads must divide ${heads} query heads, got ${kvHeads}`);
  if (kvHeads === null) kvHeads = keys.has("num_key_value_heads") || row.kv_heads === null ? heads : row.kv_heads;
  let headDim = keys.whole("head_dim", most.head);
  const nearly = Object.keys(keys.data).find((name) => !/_(dim|head)$/.test(name) && likeness("head_dim", name.slice(0, 100)) >= 0.75);
  if (headDim === null && nearly) refuse(`${nearly} is there, and head_dim is missing`);
  if (headDim === null && row.head_dim !== null && !keys.has("head_dim")) headDim = row.head_dim;
  if (headDim === null) headDim = size("hidden_size", row.hidden, "hidden", most.hidden) / heads;
  if (!Number.isInteger(headDim)) refuse("head_dim is missing, and hidden_size is not a multiple of num_attention_heads");
  if (headDim > most.head) refuse(`hidden_size / num_attention_heads must be at most ${most.head}, got ${headDim}`);
  keys.whole("hidden_size");
  const stated = keys.whole("max_position_embeddings");
  const length = stated === null && row.length === null ? null : size("max_position_embeddings", row.length, "length");
  return { heads, layers, kvHeads, headDim, length };
}

// The dictionary of rope parameters, which two names may have.
function ropeOf(keys) {
  const found = ["rope_scaling", "rope_parameters"].map((name) => [name, keys.get(name)]).filter(([, v]) => v !== null);
  for (const [name, value] of found)
    if (typeof value !== "object" || Array.isArray(value)) refuse(`${name} must be an object of keys, got ${shown(value)}`);
  if (found.length > 1) refuse("rope_scaling and rope_parameters are both there");
  return found.length ? new Keys(found[0][1], `${found[0][0]}.`) : new Keys({}, "");
}

function readSpec(row, keys, rope, sizes, rules) {
  const bases = [rope, keys].map((level) => level.number("rope_theta", 1, true)).filter((value) => value !== null);
  if (bases.length > 1 && bases[0] !== bases[1]) refuse(`rope_theta is ${bases[0]} in one place and ${bases[1]} in another`);
  if (!bases.length && row.base === null) refuse("rope_theta is missing");
  const width = readWidth(row, keys, rope, sizes.headDim);
  const scaling = readScaling(row, keys, rope, sizes, width / 2);
  rope.get("finetuned");
  for (const name of Object.keys(rope.data))
    if (!rope.used.has(name) && (rope.data[name] !== null || isSlip(name, rules, rope.used)))
      refuse(`${rope.path}${name} is not understood here`);
  return {
    head_dim: sizes.headDim, rotary_dim: width, trailing: false, interleaved: row.interleaved, blocks: 1,
    permuted: false, reverse: false, base: bases.length ? bases[0] : row.base, exponent_dim: null, frequencies: null,
    learned: false, scaling, coordinates: "integer", position_scale: 1, rungs: null, weights: null,
  };
}

function readWidth(row, keys, rope, headDim) {
  const levels = row.partial === null ? [rope] : [rope, keys];
  const widths = [];
  for (const level of levels) {
    const share = level.number("partial_rotary_factor", 0, true);
    if (share === null && level.has("partial_rotary_factor")) refuse("partial_rotary_factor is null");
    if (share !== null && share > 1) refuse(`partial_rotary_factor must be at most 1, got ${share}`);
    if (share !== null) widths.push(Math.trunc(headDim * share));
  }
  if (widths.length > 1 && widths[0] !== widths[1]) refuse("partial_rotary_factor has two values");
  const width = widths.length ? widths[0] : Math.trunc(headDim * (row.partial === null ? 1 : row.partial));
  if (row.partial === null && width !== headDim) refuse(`${row.config} rotates all channels, and partial_rotary_factor says less`);
  if (width < 2 || width % 2) refuse(`the rotated channels must be an even number, got ${width}`);
  return width;
}

// rope type -> its scaling, with all fields of phasor's class of that name
const SCHEMES = {
  default: (k) => {
    if (![null, 1].includes(k.factor())) refuse("factor is stated without a scaling");
    return null;
  },
  linear: (k) => ({ name: "linear", factor: k.needed("factor") }),
  dynamic: (k) => {
    const stated = k.original();
    if (k.declared === null) refuse("dynamic scaling needs max_position_embeddings");
    if (stated !== null && stated !== k.declared) refuse(`${ORIGINAL} is not max_position_embeddings, which dynamic uses`);
    const factor = k.needed("factor");
    if (factor < 1) refuse(`factor must be at least 1 for dynamic scaling, got ${factor}`);
    return { name: "dynamic", factor, original_max_position: k.declared };
  },
  yarn: (k) => {
    const s = {
      name: "yarn", ...k.stretch(), beta_fast: k.above("beta_fast") ?? 32, beta_slow: k.above("beta_slow") ?? 1,
      truncate: k.flag("truncate") ?? true, mscale: k.least("mscale"), mscale_all_dim: k.least("mscale_all_dim"),
      attention: k.above("attention_factor"),
    };
    if (s.beta_fast < s.beta_slow) refuse("beta_fast must be at least beta_slow");
    if (![null, 0, 1].includes(s.mscale) && !s.mscale_all_dim && s.attention === null)
      refuse("mscale without mscale_all_dim is read in two ways");
    return s;
  },
  llama3: (k) => {
    const s = {
      name: "llama3", factor: k.needed("factor"), low_freq_factor: k.needed("low_freq_factor"),
      high_freq_factor: k.needed("high_freq_factor"), original_max_position: k.neededOriginal(),
    };
    if (s.high_freq_factor < s.low_freq_factor) refuse("high_freq_factor must be at least low_freq_factor");
    return s;
  },
  longrope: (k) => {
    const s = {
      name: "longrope", ...k.stretch(), short_factor: k.list("short_factor"), long_factor: k.list("long_factor"),
      attention: k.above("attention_factor"), attention_short: null,
    };
    const [long, short] = [k.above("long_mscale"), k.above("short_mscale")];
    if ((long === null) !== (short === null) || (long !== null && s.attention !== null))
      refuse("long_mscale and short_mscale go together, without attention_factor");
    if (s.original_max_position < 2) refuse(`${ORIGINAL} must be at least 2`);
    return long === null ? s : { ...s, attention: long, attention_short: short };
  },
};

function readScaling(row, keys, rope, sizes, pairs) {
  const words = ["rope_type", "type"].map((name) => rope.get(name)).filter((word) => word !== null);
  const word = words.length ? words[0] : "default";
  if (words.length > 1 && words[1] !== word) refuse(`rope_type and type are ${shown(words[0])} and ${shown(words[1])}`);
  if (typeof word !== "string" || !hasOwn(SCHEMES, word) || row.own_schemes.includes(word))
    refuse(`the page does not read rope_type ${shown(word)} of this model type`);
  const original = () => {
    const found = [rope.whole(ORIGINAL), keys.whole(ORIGINAL)].filter((value) => value !== null);
    if (found.length > 1 && found[0] !== found[1]) refuse(`${ORIGINAL} has two values`);
    return found.length ? found[0] : null;
  };
  const above = (name) => rope.number(name, 0, true);
  const neededOriginal = () => original() ?? refuse(`${ORIGINAL} is missing`);
  return SCHEMES[word]({
    declared: sizes.length,
    original,
    neededOriginal,
    above,
    factor: () => rope.number("factor", -Infinity, false),
    least: (name) => rope.number(name, 0),
    needed: (name) => above(name) ?? refuse(`${rope.path}${name} is missing`),
    flag: (name) => {
      const value = rope.get(name);
      if (rope.has(name) && typeof value !== "boolean") refuse(`${name} must be true or false, got ${shown(value)}`);
      return value;
    },
    stretch: () => {
      const length = neededOriginal();
      const factor = above("factor") ?? (sizes.length === null ? refuse("factor is missing") : sizes.length / length);
      return { factor, original_max_position: length };
    },
    list: (name) => {
      const values = rope.get(name);
      const good = (value) => typeof value === "number" && Number.isFinite(value) && value > 0;
      if (!Array.isArray(values) || values.length !== pairs || !values.every(good))
        refuse(`${rope.path}${name} must be a list of one divisor per pair, ${pairs} here`);
      return values;
    },
  });
}

// Which layers there are: all alike, all with full attention.
function readLayers(keys, layers) {
  const words = keys.get("layer_types");
  if (words !== null) {
    const full = Array.isArray(words) && words.every((word) => word === "full_attention" || word === "attention");
    if (!full || words.length !== layers) refuse("layer_types names more than full attention");
  }
  const window = ["sliding_window", "sliding_window_size", "attention_window_size", "attention_chunk_size"];
  const off = keys.get("use_sliding_window") === false;
  for (const name of window) {
    const value = keys.get(name);
    if (value !== null && !(off && typeof value === "number")) refuse(`${name} is ${shown(value)}, and the page does not read windows`);
  }
  keys.get("max_window_layers");
  keys.whole(ORIGINAL);
}

// Every other key must speak of something else than positions, or ask for nothing.
function refuseRest(keys, rules) {
  const words = new RegExp(rules.positions, "i");
  for (const [name, value] of Object.entries(keys.data)) {
    if (keys.used.has(name) || value === null || rules.other_positions.includes(name)) {
      if (value !== null || keys.used.has(name) || !isSlip(name, rules, keys.used)) continue;
      refuse(`${name} is nearly another key`);
    }
    if (value && rules.memory.includes(name)) refuse(`${name} changes what a cache keeps`);
    if (value && typeof value === "object" && !rules.settings.includes(name)) refuseInside(name, value, words);
    const slip = isSlip(name, rules, keys.used);
    const about = slip || words.test(name) || rules.layer_names.includes(name);
    const asksNothing = ["", "default"].includes(value) || ([false, 1].includes(value) && !name.includes("theta"));
    const neutral = asksNothing && !rules.claims.includes(name);
    if (about && (slip || !neutral)) refuse(`${name} is ${shown(value)}, which is not understood here`);
  }
}

// Models inside a model, and keys about positions further inside.
function refuseInside(path, value, words) {
  if (path.endsWith("_config") && Object.keys(value).length) refuse(`${path} is a model or a part of its own`);
  if (Array.isArray(value)) return;
  for (const [name, inner] of Object.entries(value)) {
    if (inner && words.test(name)) refuse(`${path}.${name} is not understood here`);
    if (inner && typeof inner === "object") refuseInside(`${path}.${name}`, inner, words);
  }
}

// Whether a key is nearly a known name, by phasor's own measures.
function isSlip(name, rules, used) {
  if (rules.common.includes(name)) return false;
  const word = name.toLowerCase();
  if (rules.rope_names.some((other) => likeness(other, word.slice(0, 100)) >= 0.87)) return true;
  const known = rules.other_names.includes(name) ? rules.common : [...rules.common, ...used];
  return known.some((other) => other !== name && other.length > 3 && oneLetterApart(bare(name), bare(other)));
}

function bare(name) {
  return name.toLowerCase().replaceAll("-", "_").replace(/^[_ ]+|[_ ]+$/g, "");
}

// Twice the letters that both have in the same order, over the letters of both, as Python's difflib counts them.
function likeness(a, b) {
  return (2 * lettersInOrder(a, b)) / (a.length + b.length);
}

// The longest piece that both have, and what lies before and after it.
function lettersInOrder(a, b) {
  let [size, atA, atB] = [0, 0, 0];
  for (let i = 0; i < a.length; i += 1)
    for (let j = 0; j < b.length; j += 1) {
      let n = 0;
      while (i + n < a.length && j + n < b.length && a[i + n] === b[j + n]) n += 1;
      if (n > size) [size, atA, atB] = [n, i, j];
    }
  if (!size) return 0;
  const before = lettersInOrder(a.slice(0, atA), b.slice(0, atB));
  return before + size + lettersInOrder(a.slice(atA + size), b.slice(atB + size));
}

// Equal, or one letter left out, added or exchanged, or two neighbours swapped.
function oneLetterApart(a, b) {
  let start = 0;
  while (start < a.length && start < b.length && a[start] === b[start]) start += 1;
  const [x, y] = [a.slice(start), b.slice(start)];
  const swapped = x.length > 1 && y.length > 1 && x[0] === y[1] && x[1] === y[0] && x.slice(2) === y.slice(2);
  return x.slice(1) === y.slice(1) || x.slice(1) === y || x === y.slice(1) || swapped;
}
