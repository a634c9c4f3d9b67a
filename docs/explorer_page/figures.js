// Figures as SVG, drawn at the width they have on the screen, so that their letters keep their size.

const REGIMES = { kept: "circle", blended: "triangle", slowed: "square", stopped: "cross" };
const SIGNS = { circle: "●", triangle: "▲", square: "■", cross: "×" };
const MARGIN = { left: 56, right: 12, top: 12, bottom: 36 };

function escaped(text) {
  return String(text).replace(/[&<>"']/g, (c) => `&#${c.charCodeAt(0)};`);
}

// Numbers for people: 131,072; 0.0012; 3.2e-8.
function said(value, digits = 4) {
  if (!Number.isFinite(value)) return "∞";
  if (Number.isInteger(value) && Math.abs(value) < 1e15) return value.toLocaleString("en-US");
  const size = Math.abs(value);
  if (size >= 1e-3 && size < 1e7) return Number(value.toPrecision(digits)).toLocaleString("en-US", { maximumFractionDigits: 8 });
  return value.toExponential(digits > 2 ? 2 : 1);
}

// A scale from values to pixels, and where its marks stand.
function scale(low, high, from, to, isLog) {
  const f = isLog ? Math.log10 : (v) => v;
  const [a, b] = [f(low), f(high) === f(low) ? f(low) + 1 : f(high)];
  const at = (v) => from + ((f(v) - a) / (b - a)) * (to - from);
  const count = Math.max(2, Math.floor(Math.abs(to - from) / (to < from ? 36 : 60)));
  const marks = [];
  if (isLog) {
    const every = Math.max(1, Math.ceil((b - a) / count));
    for (let power = Math.ceil(a); power <= b + 1e-9; power += every) marks.push(10 ** power);
  } else {
    const rough = (b - a) / count;
    const unit = 10 ** Math.floor(Math.log10(rough));
    const every = unit * [1, 2, 5, 10].find((n) => n * unit >= rough);
    for (let v = Math.ceil(a / every) * every; v <= b + 1e-9; v += every) marks.push(Math.abs(v) < 1e-12 ? 0 : v);
  }
  return { at, marks, isLog };
}

function mark(value, isLog) {
  if (!isLog) return said(value, 3);
  const power = Math.round(Math.log10(value));
  return power >= 0 && power < 4 ? String(10 ** power) : `1e${power}`;
}

class Chart {
  constructor(place, title, height, x, y) {
    this.place = place;
    this.title = title;
    this.width = Math.max(280, place.clientWidth || 640);
    this.height = height;
    this.x = scale(x.low, x.high, MARGIN.left, this.width - MARGIN.right, x.log);
    this.y = scale(y.low, y.high, height - MARGIN.bottom, MARGIN.top, y.log);
    this.parts = [];
    const bottom = height - MARGIN.bottom;
    for (const v of this.y.marks) {
      const at = this.y.at(v).toFixed(1);
      this.parts.push(`<line class="grid" x1="${MARGIN.left}" x2="${this.width - MARGIN.right}" y1="${at}" y2="${at}"/>`);
      this.text(MARGIN.left - 6, Number(at) + 4, mark(v, y.log), "end");
    }
    for (const v of this.x.marks) this.text(this.x.at(v), bottom + 16, mark(v, x.log), "middle");
    this.text(this.width - MARGIN.right, height - 4, x.name, "end");
  }
  text(x, y, words, anchor, kind = "") {
    this.parts.push(`<text class="${kind}" x="${x.toFixed(1)}" y="${y.toFixed(1)}" text-anchor="${anchor}">${escaped(words)}</text>`);
  }
  line(points, kind) {
    const path = points.map(([x, y], i) => `${i ? "L" : "M"}${this.x.at(x).toFixed(1)} ${this.y.at(y).toFixed(1)}`).join("");
    this.parts.push(`<path class="${kind}" d="${path}"/>`);
  }
  band(points, kind) {
    const there = points.map(([x, , high]) => `${this.x.at(x).toFixed(1)} ${this.y.at(high).toFixed(1)}`);
    const back = points.map(([x, low]) => `${this.x.at(x).toFixed(1)} ${this.y.at(low).toFixed(1)}`).reverse();
    this.parts.push(`<path class="${kind}" d="M${[...there, ...back].join("L")}Z"/>`);
  }
  upright(x, words) {
    const at = this.x.at(x);
    if (!(at >= MARGIN.left && at <= this.width - MARGIN.right)) return;
    this.parts.push(`<line class="limit" x1="${at}" x2="${at}" y1="${MARGIN.top}" y2="${this.height - MARGIN.bottom}"/>`);
    const left = at > this.width / 2;
    this.text(at + (left ? -4 : 4), MARGIN.top + 10, words, left ? "end" : "start");
  }
  level(y, words, side = "start") {
    const at = this.y.at(y);
    if (!(at >= MARGIN.top && at <= this.height - MARGIN.bottom)) return;
    this.parts.push(`<line class="limit" x1="${MARGIN.left}" x2="${this.width - MARGIN.right}" y1="${at}" y2="${at}"/>`);
    this.text(side === "start" ? MARGIN.left + 4 : this.width - MARGIN.right - 4, at + (side === "start" ? -4 : 13), words, side);
  }
  sign(x, y, shape, kind) {
    const [px, py] = [this.x.at(x), this.y.at(y)];
    const forms = {
      circle: `<circle class="${kind}" cx="${px.toFixed(1)}" cy="${py.toFixed(1)}" r="3"/>`,
      triangle: `<path class="${kind}" d="M${px.toFixed(1)} ${(py - 4).toFixed(1)}l4 7h-8Z"/>`,
      square: `<rect class="${kind}" x="${(px - 3).toFixed(1)}" y="${(py - 3).toFixed(1)}" width="6" height="6"/>`,
      cross: `<path class="${kind} stroke" d="M${(px - 3).toFixed(1)} ${(py - 3).toFixed(1)}l6 6m0 -6l-6 6"/>`,
    };
    this.parts.push(forms[shape]);
  }
  show() {
    this.place.innerHTML =
      `<svg width="${this.width}" height="${this.height}" viewBox="0 0 ${this.width} ${this.height}" role="img" ` +
      `aria-label="${escaped(this.title)}">${this.parts.join("")}</svg>`;
  }
}

// ``lengthWord``: what the trained length is called, "trained" or "declared". Returns the legend of what was drawn.
function drawWavelengths(place, m, before, found, trained, lengthWord, length) {
  const waves = wavelengths(m.frequencies);
  const old = wavelengths(before);
  const finite = [...waves, ...old, trained || 1].filter(Number.isFinite);
  const [low, high] = [Math.min(...finite), Math.max(...finite, length)];
  const chart = new Chart(place, `wavelengths of ${waves.length} pairs, ${said(Math.min(...finite))} to ${said(Math.max(...finite))}`, 260,
    { low: 0, high: Math.max(1, waves.length - 1), log: false, name: "pair" }, { low: low / 1.5, high: high * 1.5, log: true });
  if (trained) chart.level(trained, `${lengthWord}: ${said(trained)}`);
  if (length !== trained) chart.level(length, `length: ${said(length)}`, "end");
  const moved = [...old.keys()].filter((i) => Number.isFinite(old[i]) && Math.abs(old[i] / waves[i] - 1) > 1e-6);
  moved.forEach((i) => chart.sign(i, old[i], "circle", "before"));
  waves.forEach((wave, i) => chart.sign(i, Number.isFinite(wave) ? wave : high, REGIMES[found[i]], found[i]));
  chart.show();
  return legend(found, moved.length > 0);
}

// The signs that stand in the figure, each with its word.
function legend(found, moved) {
  const drawn = Object.keys(REGIMES).filter((name) => found.includes(name));
  const signs = drawn.map((name) => `<b class="${name}">${SIGNS[REGIMES[name]]}</b> ${name}`);
  return [...signs, ...(moved ? ['<b class="before">●</b> before scaling'] : [])].join(" ");
}

function drawDecay(place, points, trained, lengthWord, farthest) {
  const low = Math.min(-0.1, ...points.map((point) => point[1]));
  const chart = new Chart(place, "mean cosine of the pairs by distance", 220,
    { low: 1, high: Math.max(2, farthest), log: true, name: "distance in tokens" }, { low, high: 1, log: false });
  if (trained && trained < farthest) chart.upright(trained, lengthWord);
  chart.band(points, "band");
  chart.line(points.map(([x, lowest, highest]) => [x, (lowest + highest) / 2]), "curve");
  chart.show();
}

function drawErrors(place, points, length) {
  const worst = Math.max(1e-6, ...points.map((point) => point[1]));
  const chart = new Chart(place, "error of float32 angles by position", 220,
    { low: points[0][0], high: points[points.length - 1][0], log: true, name: "position" }, { low: 1e-8, high: worst * 2, log: true });
  chart.line(points.map(([x, y]) => [x, Math.max(1e-8, y)]), "curve bad");
  chart.line([[points[0][0], 1.13e-7], [points[points.length - 1][0], 1.13e-7]], "curve good");
  chart.text(MARGIN.left + 6, chart.y.at(1.13e-7) - 6, "integer phases, float32 result", "start", "good");
  chart.upright(length, "length");
  chart.show();
}

// Every pair at every position in a strip of pixels: its hue is its phase.
function drawPhases(canvas, m, last) {
  const [width, rows] = [Math.max(200, Math.min(720, canvas.parentElement.clientWidth || 640)), m.steps[0].length];
  const tall = Math.max(2, Math.min(8, Math.floor(256 / rows)));
  canvas.width = width;
  canvas.height = rows * tall;
  const context = canvas.getContext("2d");
  const image = context.createImageData(width, rows * tall);
  for (let p = 0; p < rows; p += 1)
    for (let x = 0; x < width; x += 1) {
      const position = Math.round((x * last) / (width - 1));
      const phase = m.steps.reduce((sum, row) => sum + phaseOf(position, row[p]), 0n);
      const rgb = colourOf(Number(BigInt.asUintN(64, phase) >> 56n) / 256);
      for (let y = 0; y < tall; y += 1) image.data.set([...rgb, 255], 4 * ((p * tall + y) * width + x));
    }
  context.putImageData(image, 0, 0);
}

// A wheel of hues whose lightness rises towards phase 0, so that it can be read without colours.
function colourOf(turn) {
  const light = 0.5 + 0.3 * Math.cos(2 * Math.PI * turn);
  return [0, 1 / 3, 2 / 3].map((shift) => Math.round(255 * Math.max(0, Math.min(1, light + 0.22 * Math.cos(2 * Math.PI * (turn - shift))))));
}

// The channels of a head as cells; the first pairs carry a letter, channels that pass none.
function drawLayout(place, spec) {
  const channels = channelsOf(spec);
  const letters = "ABCDEFGH";
  const owner = new Map(channels.flatMap(([a, b], p) => [[a, p], [b, p]]));
  const cells = Array.from({ length: spec.head_dim }, (_, c) => {
    const p = owner.get(c);
    if (p === undefined) return `<i class="pass" title="channel ${c} passes unrotated"></i>`;
    const letter = p < letters.length ? letters[p] : "";
    return `<i class="pair p${p % 4}${letter ? " named" : ""}" title="channel ${c}: pair ${p}">${letter}</i>`;
  });
  place.innerHTML = cells.join("");
}

function layoutWords(spec) {
  const [first, second] = channelsOf(spec);
  const blocks = spec.blocks > 1 ? ` in ${spec.blocks} blocks` : "";
  const kind = spec.interleaved ? "Interleaved" : `Halves${blocks}`;
  const width = spec.rotary_dim === spec.head_dim ? "all" : `${spec.trailing ? "the last" : "the first"} ${spec.rotary_dim} of`;
  const more = second ? `, ${second[0]} with ${second[1]}` : "";
  const written = spec.permuted ? " The results are written back as halves." : "";
  return `${kind}: channel ${first[0]} pairs with ${first[1]}${more}, …; ${width} ${spec.head_dim} channels rotate.${written}`;
}
