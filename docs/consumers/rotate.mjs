// Rotary encoding in JavaScript, tested against the golden pack:  node rotate.mjs ../golden/phasor_golden.json [MODEL]
// Replace `tables`, `turn` and `back` by code of your own; exit code 0: right, 1: wrong. Public domain (CC0-1.0).
import { readFileSync } from "node:fs";

const [file, only] = process.argv.slice(2);
const pack = JSON.parse(readFileSync(file, "utf8"));

/** cos and sin of every pair at the position of one token: the angle is a sum over axes. */
function tables(rotation, positions, rates, token) {
  const angles = rates[0].map((_, i) => rates.reduce((sum, row, axis) => sum + positions[axis][token] * row[i], 0));
  return [angles.map((a) => rotation.factor * Math.cos(a)), angles.map((a) => rotation.factor * Math.sin(a))];
}

/** One head: channels first[i] and second[i] are a pair; all others pass. */
function turn(x, { first, second, first_written, second_written }, [cos, sin], [cos2, sin2]) {
  const out = [...x];
  first.forEach((channel, i) => {
    const [a, b] = [x[channel], x[second[i]]];
    out[first_written[i]] = a * cos[i] - b * sin[i];
    out[second_written[i]] = a * sin2[i] + b * cos2[i];
  });
  return out;
}

/** The gradient of a head, from that of its result: what `turn` does, transposed. */
function back(g, { first, second, first_written, second_written }, [cos, sin], [cos2, sin2]) {
  const out = [...g];
  first.forEach((channel, i) => {
    const [a, b] = [g[first_written[i]], g[second_written[i]]];
    out[channel] = a * cos[i] + b * sin2[i];
    out[second[i]] = b * cos2[i] - a * sin[i];
  });
  return out;
}

/** The first value that is off, in words; undefined where all are right. */
function compare(what, rotation, got, expected, tolerance) {
  const at = expected.findIndex((value, i) => !(Math.abs(got[i] - value) <= tolerance * rotation.factor));
  return at < 0 ? undefined : `${rotation.describe}: ${what}[${at}] must be ${expected[at]}, got ${got[at]}`;
}

function check(rotation) {
  const arrays = Object.fromEntries(Object.entries(rotation.arrays).map(([k, name]) => [k, pack.arrays[name]]));
  const { positions, rates, rates_second = rates, cos, sin, out, grad } = arrays;
  const { cos_sin, out: of_out } = pack.tolerance;
  for (let token = 0; token < pack.tokens; token++) {
    const [c, s] = tables(rotation, positions, rates, token);
    const fault = compare("cos", rotation, c, cos[token], cos_sin) ?? compare("sin", rotation, s, sin[token], cos_sin);
    if (fault) return fault;
  }
  const [one, two] = [rates, rates_second].map((r) => tables(rotation, positions, r, pack.turned));
  const head = pack.arrays.in.slice(0, rotation.head_dim);
  return compare("out", rotation, turn(head, arrays, one, two), out, of_out)
    ?? compare("grad", rotation, back(head, arrays, one, two), grad, of_out);
}

const rows = pack.models.filter(([model]) => !only || model === only);
const faults = rows.map(([, , , at]) => check(pack.rotations[at])).filter(Boolean);
faults.forEach((fault) => console.log(fault));
console.log(`${rows.length} rotations of models, ${faults.length} wrong`);
process.exitCode = rows.length && !faults.length ? 0 : 1;
