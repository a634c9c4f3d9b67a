// Exact numbers. A real number is a BigInt in fixed point with FRACTION bits behind the point, so that a step is rounded
// once, as phasor's 50 decimal digits round it. A phase is position * step modulo 2**64, where 2**64 units are one turn.

const FRACTION = 320n;
const ONE = 1n << FRACTION;
const TURN = 1n << 64n;

// The same number, exactly: mantissa times a power of two.
function fixed(number) {
  if (!Number.isFinite(number)) throw new Error("a number must be finite, got " + number);
  const bits = new DataView(new ArrayBuffer(8));
  bits.setFloat64(0, number);
  const word = bits.getBigUint64(0);
  const exponent = (word >> 52n) & 0x7ffn;
  const fraction = word & 0xfffffffffffffn;
  const mantissa = exponent === 0n ? fraction : fraction | (1n << 52n);
  const size = shifted(mantissa, (exponent === 0n ? 1n : exponent) - 1075n + FRACTION);
  return word >> 63n ? -size : size;
}

function shifted(value, by) {
  return by >= 0n ? value << by : value >> -by;
}

// For people and for figures, never for a phase.
function plain(value) {
  const size = value < 0n ? -value : value;
  const spare = BigInt(Math.max(0, size.toString(2).length - 64)); // of 64 bits a number keeps 53
  const number = Number(size >> spare) * 2 ** (Number(spare) - Number(FRACTION));
  return value < 0n ? -number : number;
}

function times(a, b) {
  return (a * b) >> FRACTION;
}

function over(a, b) {
  return (a << FRACTION) / b;
}

// 2 (t + t**3 / 3 + t**5 / 5 + ...), which is ln((1 + t) / (1 - t)).
function twiceArtanh(t) {
  const square = times(t, t);
  let power = t;
  let sum = 0n;
  for (let n = 1n; power !== 0n && power !== -1n; n += 2n) {
    sum += power / n;
    power = times(power, square);
  }
  return 2n * sum;
}

const LN2 = twiceArtanh(ONE / 3n);

function ln(x) {
  if (x <= 0n) throw new Error("a logarithm is of a number above 0");
  const octaves = BigInt(x.toString(2).length) - 1n - FRACTION;
  const rest = shifted(x, -octaves); // from 1 to 2
  return octaves * LN2 + twiceArtanh(over(rest - ONE, rest + ONE));
}

function exp(x) {
  const octaves = floorOver(x, LN2);
  const small = (x - octaves * LN2) >> 8n;
  let sum = ONE;
  let term = ONE;
  for (let n = 1n; term !== 0n; n += 1n) {
    term = times(term, small) / n;
    sum += term;
  }
  for (let i = 0; i < 8; i += 1) sum = times(sum, sum);
  return shifted(sum, octaves);
}

function floorOver(a, b) {
  const quotient = a / b;
  return quotient * b > a ? quotient - 1n : quotient;
}

// Machin: pi / 4 = 4 arctan(1 / 5) - arctan(1 / 239).
function arctanOfOneOver(n) {
  let power = ONE / n;
  let sum = 0n;
  for (let k = 1n, sign = 1n; power !== 0n; k += 2n, sign = -sign) {
    sum += (sign * power) / k;
    power /= n * n;
  }
  return sum;
}

const PI = 4n * (4n * arctanOfOneOver(5n) - arctanOfOneOver(239n));

// round(frequency / 2 pi * 2**64), wrapped into the signed 64-bit range; frequency in radians per position.
function stepOf(frequency) {
  const units = over(frequency * TURN, 2n * PI);
  return BigInt.asIntN(64, (units + (ONE >> 1n)) >> FRACTION);
}

// position * step, exact modulo one turn: as signed 64-bit integers multiply.
function phaseOf(position, step) {
  return BigInt.asIntN(64, BigInt(position) * step);
}

function turnsOf(phase) {
  return Number(phase) / 2 ** 64;
}

// Cosine and sine: the nearest quarter turn swaps and negates, and the rest is at most an eighth of a turn.
function cosSin(phase) {
  const quarter = Number(((phase + (1n << 61n)) >> 62n) & 3n);
  const rest = Number(BigInt.asIntN(64, phase << 2n)) * ((2 * Math.PI) / 2 ** 66);
  const [c, s] = [Math.cos(rest), Math.sin(rest)];
  return [[c, s], [-s, c], [-c, -s], [s, -c]][quarter];
}

// Steps as they are written down: 16 hexadecimal digits each, unsigned.
function stepsFromHex(text) {
  const found = [];
  for (let i = 0; i < text.length; i += 16) found.push(BigInt.asIntN(64, BigInt("0x" + text.slice(i, i + 16))));
  return found;
}

function float32FromHex(text) {
  const bits = new DataView(new ArrayBuffer(4));
  const found = [];
  for (let i = 0; i < text.length; i += 8) {
    bits.setUint32(0, parseInt(text.slice(i, i + 8), 16));
    found.push(bits.getFloat32(0));
  }
  return found;
}
