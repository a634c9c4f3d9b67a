/* Cos and sin from integer phases, whole vectors at a time. Part of rows.h. */

typedef uint32_t NAME(Bits) __attribute__((vector_size(4 * NAME(W))));

/* The phases of one token: the sum over the axes of position and step. */
INLINE void NAME(phases)(uint64_t *restrict phase, const Phases *of, int64_t pairs, int64_t batch, int64_t token) {
  for (int a = 0; a < of->axes; a++) {
    const uint64_t at = position_of(of, a, batch, token);
    const int64_t *restrict steps = of->steps + a * pairs;
    if (!a)
      for (int64_t j = 0; j < pairs; j++) phase[j] = at * (uint64_t)steps[j];
    else
      for (int64_t j = 0; j < pairs; j++) phase[j] += at * (uint64_t)steps[j];
  }
}

INLINE F NAME(chosen)(NAME(Bits) mask, F a, F b) {
  return (F)((mask & (NAME(Bits))a) | (~mask & (NAME(Bits))b));
}

/* Integer phases to cos and sin of one token: nearest quarter turn, and a polynomial for the rest of at most an eighth.
   The same operations in the same order as phasor.phase.cos_sin. */
static NOINLINE void NAME(from_phases)(float *restrict cosine, float *restrict sine, const Phases *of, int64_t pairs,
                                       int64_t batch, int64_t token) {
  enum { W = NAME(W) };
  uint64_t phase[MAX_PAIRS] __attribute__((aligned(64)));
  NAME(phases)(phase, of, pairs, batch, token);
  for (int64_t j = pairs; j % W; j++) phase[j] = 0;
  for (int64_t j = 0; j < pairs; j += W) {
    NAME(Bits) upper; /* the upper halves of the phases */
    F rest;           /* four times what is left of them after a quarter turn, each rounded once */
    NAME(split)(phase + j, (F *)&upper, &rest);
    /* The nearest quarter turn, 0 to 3: an eighth is added before the rest is cut off. odd: all bits or none. */
    const NAME(Bits) quarter = (upper + (1u << 29)) >> 30, odd = -(quarter & 1);
    const F x = rest * (RADIANS / 4), z = x * x;
    const F sn = x + x * (z * (SIN_3 + z * (SIN_5 + z * SIN_7)));
    const F cs = 1.0f - z * (0.5f - z * (COS_4 + z * (COS_6 + z * COS_8)));
    /* Bit 1 becomes bit 31, the sign. Quarter turns 1 and 2 lie left of the vertical axis, 2 and 3 below the other. */
    const NAME(Bits) u = (NAME(Bits))NAME(chosen)(odd, sn, cs) ^ (((quarter + 1) & 2) << 30);
    const NAME(Bits) v = (NAME(Bits))NAME(chosen)(odd, cs, sn) ^ ((quarter & 2) << 30);
    NAME(store)(cosine + j, ((F)u + 0.0f) * of->factor, 0); /* + 0: a zero has no sign */
    NAME(store)(sine + j, ((F)v + 0.0f) * of->factor, 0);
  }
}
