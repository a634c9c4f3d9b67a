// The page: what is chosen, what follows from it, and where it is shown. `DATA` stands in the page (html.py).

const DATA = JSON.parse(document.getElementById("data").textContent);
const LENGTHS = [16, 2 ** 31];
const CHOICES = ["none", "linear", "ntk", "ntk_fixed", "dynamic", "stepped_ntk", "yarn", "yarn_paper", "llama3", "longrope", "proportional"];
const state = { models: DATA.models, model: 0, rotation: 0, length: 4096, spec: null, changed: false, drawing: 0 };

function at(id) {
  return document.getElementById(id);
}

function entry() {
  return state.models[state.model];
}

function rotation() {
  return entry().rotations[state.rotation];
}

function tell(words, isError = false) {
  at("status").textContent = words;
  at("status").className = isError ? "error" : "";
}

function options(select, words, chosen) {
  select.replaceChildren(...words.map((word, i) => new Option(word, String(i), false, i === chosen)));
}

function chooseModel(index) {
  state.model = index;
  at("model").value = String(index);
  state.rotation = 0;
  state.length = entry().declared || 4096;
  const words = entry().rotations.map((r) => `${r.where} (${r.kinds.join(", ")})`);
  options(at("rotation"), words, 0);
  at("rotation-row").hidden = words.length < 2;
  options(at("keeper"), entry().memory.map((group) => group.engines.join(", ")), 0);
  at("keeper-row").hidden = entry().memory.length < 2;
  const engines = [...new Set(entry().settings.map((s) => s.engine))];
  at("engine").replaceChildren(...engines.map((name) => new Option(name)));
  reset();
}

function reset() {
  state.spec = structuredClone(rotation().spec);
  state.changed = false;
  showControls();
  update();
}

// The controls as the state has them; a control that is being typed in is left alone.
function showControls() {
  const s = state.spec.scaling;
  const write = (id, value) => {
    if (document.activeElement !== at(id)) at(id).value = value;
  };
  write("length", state.length);
  write("length-slide", Math.log2(state.length));
  write("base", state.spec.base);
  write("base-slide", Math.log10(state.spec.base));
  at("base").disabled = at("base-slide").disabled = Boolean(state.spec.frequencies);
  const words = CHOICES.filter((name) => name !== "longrope" || (rotation().spec.scaling || {}).name === "longrope");
  if (s && !words.includes(s.name)) words.push(s.name);
  at("scaling").replaceChildren(...words.map((name) => new Option(name, name, false, (s ? s.name : "none") === name)));
  at("scaling").disabled = Boolean(state.spec.frequencies);
  const factor = s && "factor" in s ? s.factor : null;
  at("factor-row").hidden = factor === null;
  if (factor !== null) {
    write("factor", factor);
    write("factor-slide", Math.log2(factor));
  }
  at("original-row").hidden = !(s && "original_max_position" in s);
  if (s && "original_max_position" in s) write("original", s.original_max_position);
  at("changed").textContent = state.changed ? "changed from what the config says" : "as the config says";
  at("reset").disabled = !state.changed;
}

// A scaling that the model does not have, with usual parameters and a factor that reaches the length.
function newScaling(name) {
  const own = rotation().spec.scaling;
  if (name === "none") return null;
  if (own && own.name === name) return structuredClone(own);
  const original = trainedLength(entry(), rotation().spec) || 4096;
  const factor = Math.max(1, state.length / original);
  const more = {
    yarn: { beta_fast: 32, beta_slow: 1, truncate: true, mscale: null, mscale_all_dim: null, attention: null },
    yarn_paper: { alpha: 1, beta: 32 },
    llama3: { low_freq_factor: 1, high_freq_factor: 4 },
    proportional: { fraction: 0.5 },
  }[name];
  const grows = ["dynamic", "stepped_ntk", "yarn", "yarn_paper", "llama3"].includes(name);
  return { name, ...(name === "stepped_ntk" ? {} : { factor }), ...(grows ? { original_max_position: original } : {}), ...more };
}

function change(edit) {
  edit(state.spec);
  state.changed = JSON.stringify(state.spec) !== JSON.stringify(rotation().spec);
  showControls();
  update();
}

// A number out of a control, or null where it is none that makes sense.
function numberIn(id, low, high, whole = false) {
  const value = Number(at(id).value);
  const good = at(id).value !== "" && Number.isFinite(value) && value >= low && value <= high && (!whole || Number.isInteger(value));
  at(id).setAttribute("aria-invalid", String(!good));
  if (!good) tell(`${at(id).dataset.name} must be ${whole ? "a whole number" : "a number"} from ${said(low)} to ${said(high)}, got ${at(id).value || "nothing"}`, true);
  return good ? value : null;
}

function update() {
  cancelAnimationFrame(state.drawing);
  state.drawing = requestAnimationFrame(() => {
    try {
      draw();
    } catch (error) {
      tell(`this rotation cannot be made: ${error.message}`, true);
    }
  });
}

function draw() {
  const length = state.length;
  const written = state.changed ? null : writtenRegime(rotation(), length);
  const m = measured(state.spec, length, written && float32FromHex(written.float32));
  const trained = trainedLength(entry(), state.spec);
  const farthest = Math.max(2, Math.min(length, rotation().window || length) - 1);
  showFacts(m, written, trained);
  const turned = trainedTurns(entry(), rotation(), state.spec);
  const before = state.spec.scaling ? beforeScaling(state.spec) : m.frequencies;
  const stated = trainedIsStated(entry(), state.spec);
  const lengthWord = stated ? "trained" : "declared";
  at("legend").innerHTML = drawWavelengths(at("wavelengths"), m, before, regimes(m), trained, lengthWord, length);
  at("turns").textContent = turned.length
    ? `${turned.filter((t) => t >= 32).length} pairs turned 32 times or more ${stated ? "in training" : "within the declared length"}, ${turned.filter((t) => t >= 1 && t < 32).length} once or more, ${turned.filter((t) => t > 0 && t < 1).length} never.`
    : "The trained length is not known.";
  drawDecay(at("decay"), decayEnvelope(m, farthest), trained, lengthWord, farthest);
  drawErrors(at("errors"), errorCurve(m, Math.max(2 ** 20, length)), length);
  drawPhases(at("phases"), m, Math.min(length, 2 ** 31) - 1);
  at("phases-end").textContent = `position ${said(length - 1)}`;
  drawLayout(at("layout"), state.spec);
  at("layout-words").textContent = layoutWords(state.spec);
  state.measured = m;
  showPhaseTable();
  showMemory();
  showSettings();
}

function showFacts(m, written, trained) {
  const waves = wavelengths(m.frequencies).filter(Number.isFinite);
  const equal = written && written.steps.every((text, axis) => stepsFromHex(text).every((step, p) => step === m.steps[axis][p]));
  const steps = `${m.steps.length * m.steps[0].length} steps of 64 bits`;
  const last = Math.min(state.length, 2 ** 31) - 1;
  const facts = [
    ["layers", `${rotation().layers} of ${entry().layers} rotate so`],
    ["heads", `${entry().heads} of queries, ${entry().kv_heads} of keys`],
    ["trained length", trained ? `${said(trained)}${trainedIsStated(entry(), state.spec) ? "" : ", as declared"}` : "not known"],
    ["declared length", entry().declared ? said(entry().declared) : "none"],
    ["window", rotation().window ? said(rotation().window) : "none"],
    ["wavelengths", waves.length ? `${said(Math.min(...waves))} to ${said(Math.max(...waves))} tokens` : "none rotates"],
    ["factor on cos and sin", said(m.factor, 6)],
    ["float32 angles are off by", `${said(float32Error(m, Math.max(0, last - 63), last), 2)} at position ${said(last)}`],
    ["steps", written ? `${steps}, ${equal ? "equal to phasor's" : "NOT equal to phasor's: please report this"}` : `${steps}, formed here`],
  ];
  at("facts").replaceChildren(
    ...facts.map(([name, value]) => {
      const box = document.createElement("div");
      const [dt, dd] = [document.createElement("dt"), document.createElement("dd")];
      [dt.textContent, dd.textContent] = [name, value];
      box.append(dt, dd);
      return box;
    }),
  );
  at("notes").replaceChildren(
    ...entry().notes.map((note) => Object.assign(document.createElement("li"), { textContent: note })),
  );
}

// Step, phase, cosine and sine of every pair at one position.
function showPhaseTable() {
  const m = state.measured;
  const position = numberIn("position", 0, 2 ** 31, true);
  if (!m || position === null) return;
  const rows = m.steps[0].map((_, p) => {
    const phase = BigInt.asIntN(64, m.steps.reduce((sum, row) => sum + phaseOf(position, row[p]), 0n));
    const [cos, sin] = cosSin(phase);
    const steps = m.steps.map((row) => String(row[p])).join(" + ");
    const cells = [p, steps, String(phase), turnsOf(phase).toFixed(6), (m.factor * cos).toFixed(7), (m.factor * sin).toFixed(7)];
    return `<tr>${cells.map((cell, i) => (i ? `<td>${cell}</td>` : `<th scope="row">${cell}</th>`)).join("")}</tr>`;
  });
  at("phase-rows").innerHTML = rows.join("");
}

function showMemory() {
  const group = entry().memory[Number(at("keeper").value) || 0];
  at("memory-rows").replaceChildren();
  if (!group) {
    at("fits").textContent = `Nothing is known of this cache: ${entry().why}`;
    return;
  }
  const width = BYTES[at("dtype").value];
  const batch = numberIn("batch", 1, 2 ** 20, true);
  const memory = numberIn("memory", 0.001, 2 ** 20);
  if (batch === null || memory === null) return;
  const most = longestThatFits(group.stores, memory * 2 ** 30, width, batch);
  const total = cacheBytes(group.stores, state.length, width, batch);
  const next = cacheBytes(group.stores, state.length + 1, width, batch) - total;
  const of = batch > 1 ? `${said(batch)} sequences of ` : "";
  const fits = most === Infinity ? "any length" : `${of}${said(most)} tokens`;
  at("fits").textContent = `At ${said(state.length)} tokens: ${sizeText(total)}, and the next token costs ${said(next)} bytes. Into ${said(memory)} GiB goes ${most ? fits : "nothing"}.`;
  at("memory-rows").innerHTML = group.stores
    .map((s) => {
      const kept = s.window ? `last ${said(s.window)}` : s.per_token ? "all" : "a state";
      const values = s.per_token || s.state;
      const size = sizeText(batch * storeBytes(s, state.length, width));
      return `<tr><th scope="row">${s.layers} × ${escaped(s.kind)}</th><td>${said(values)}</td><td>${kept}</td><td>${size}</td></tr>`;
    })
    .join("");
}

function sizeText(bytes) {
  const units = ["bytes", "KiB", "MiB", "GiB", "TiB", "PiB"];
  const power = Math.min(units.length - 1, Math.max(0, Math.floor(Math.log2(Math.max(1, bytes)) / 10)));
  return `${said(bytes / 1024 ** power, 3)} ${units[power]}`;
}

function showSettings() {
  const all = entry().settings;
  at("settings-known").hidden = !all.length;
  at("settings-why").textContent = all.length ? "" : entry().why;
  const rope = ropeParameters(state.spec);
  at("rope").textContent = rope ? JSON.stringify({ rope_parameters: rope }, null, 2) : "No key of a config says this rotation.";
  at("copy-rope").disabled = !rope;
  if (!all.length) return;
  const mine = all.filter((s) => s.engine === at("engine").value);
  const kept = at("at-length").value;
  at("at-length").replaceChildren(...mine.map((s) => new Option(said(s.length), String(s.length), false, String(s.length) === kept)));
  const one = mine.find((s) => String(s.length) === at("at-length").value) || mine[0];
  at("settings").textContent = one.lines.length ? one.lines.join("\n") : one.refused;
  at("copy-settings").disabled = !one.lines.length;
  const proof = { right: "read back: every layer rotates as planned", wrong: "not possible", "not shown": "not proven" }[one.verdict];
  at("proof").textContent = `${one.engine} ${one.version}, ${said(one.length)} positions: ${proof}. ${one.why.join("; ")}`;
}

async function copy(id) {
  try {
    await navigator.clipboard.writeText(at(id).textContent);
    tell("copied");
  } catch {
    getSelection().selectAllChildren(at(id));
    tell("selected: copy it with the keyboard; this browser gives a file no clipboard");
  }
}

async function readFile(file) {
  if (!file) return;
  try {
    if (file.size > LARGEST_FILE) refuse(`${file.name} has ${said(file.size)} bytes, and a config has a few thousand`);
    const found = readConfigText(await file.text(), file.name, DATA.rules);
    measured(found.rotations[0].spec, found.declared || 4096); // an error here is one line, not half a page
    state.models = [...DATA.models, found];
    listModels(state.models.length - 1);
    chooseModel(state.models.length - 1);
    tell(`read ${file.name}: ${found.type}`);
  } catch (error) {
    tell(`${file.name}: ${error.message}`, true);
  }
}

function listModels(chosen) {
  options(at("model"), state.models.map((model) => model.name), chosen);
}

function listen() {
  const on = (id, event, act) => at(id).addEventListener(event, act);
  on("model", "change", () => (tell(""), chooseModel(Number(at("model").value))));
  on("rotation", "change", () => {
    state.rotation = Number(at("rotation").value);
    reset();
  });
  on("file", "change", () => readFile(at("file").files[0]));
  on("reset", "click", () => {
    state.length = entry().declared || 4096;
    reset();
  });
  const number = (id, low, high, whole, act) => {
    on(id, "input", () => {
      const value = numberIn(id, low, high, whole);
      if (value !== null) (tell(""), change((spec) => act(spec, value)));
    });
    on(id, "blur", showControls);
  };
  const slide = (id, power, whole, act) =>
    on(id, "input", () => {
      const value = power ** Number(at(id).value);
      tell("");
      change((spec) => act(spec, whole ? Math.round(value) : Number(value.toPrecision(4))));
    });
  const setLength = (spec, value) => (state.length = value);
  const setBase = (spec, value) => (spec.base = Math.max(1.01, value));
  const setFactor = (spec, value) => (spec.scaling.factor = value);
  number("length", ...LENGTHS, true, setLength);
  slide("length-slide", 2, true, setLength);
  number("base", 1.01, 1e12, false, setBase);
  slide("base-slide", 10, false, setBase);
  number("factor", 1, 4096, false, setFactor);
  slide("factor-slide", 2, false, setFactor);
  number("original", 2, 2 ** 31, true, (spec, value) => (spec.scaling.original_max_position = value));
  on("scaling", "change", () => change((spec) => (spec.scaling = newScaling(at("scaling").value))));
  on("position", "input", () => (tell(""), showPhaseTable()));
  ["keeper", "dtype", "batch", "memory"].forEach((id) => on(id, "input", () => (tell(""), showMemory())));
  ["engine", "at-length"].forEach((id) => on(id, "change", showSettings));
  on("copy-settings", "click", () => copy("settings"));
  on("copy-rope", "click", () => copy("rope"));
  addEventListener("dragover", (event) => event.preventDefault());
  addEventListener("drop", (event) => {
    event.preventDefault();
    readFile(event.dataTransfer.files[0]);
  });
  addEventListener("resize", update);
}

function start() {
  listen();
  at("explorer").hidden = !state.models.length;
  listModels(0);
  if (state.models.length) chooseModel(0);
  else tell("Open a config.json to begin.");
}

if (typeof document !== "undefined") start();
