/* Pairs, whole vectors at a time, for one set of instructions. Part of rows.h. */

/* 16-bit activations are widened two vectors at a time. bfloat16 falls into even and odd channels, which needs no
   shuffle, float16 into low and high ones; cos and sin are staged in the order in which a row wants them. */
INLINE void NAME(widen)(const char *x, F *u, F *v, int dtype) {
  if (dtype == BF16)
    NAME(load_bf16)((const uint16_t *)x, u, v);
  else
    NAME(load_f16)((const uint16_t *)x, u, v);
}
INLINE void NAME(narrow)(char *y, F u, F v, int dtype, int nt) {
  if (dtype == BF16)
    NAME(store_bf16)((uint16_t *)y, u, v, nt);
  else
    NAME(store_f16)((uint16_t *)y, u, v, nt);
}
/* Two products less or plus each other, each of them rounded before where that is asked for. */
INLINE F NAME(joined)(F p, F q, int plus, int dtype, int rounded) {
  if (rounded && dtype == BF16) NAME(round_two_bf16)(&p, &q);
  if (rounded && dtype == F16) p = NAME(round_f16)(p), q = NAME(round_f16)(q);
  return plus ? p + q : p - q;
}
#define LESS(p, q) NAME(joined)(p, q, 0, dtype, rounded)
#define PLUS(p, q) NAME(joined)(p, q, 1, dtype, rounded)

/* 2 W pairs of halves in half precision. */
INLINE void NAME(halves)(char *ya, char *yb, const char *xa, const char *xb, const float *c, const float *s, int dtype,
                         int nt, int rounded) {
  const F c0 = NAME(load)(c), s0 = NAME(load)(s), c1 = NAME(load)(c + NAME(W)), s1 = NAME(load)(s + NAME(W));
  F a0, a1, b0, b1;
  NAME(widen)(xa, &a0, &a1, dtype);
  NAME(widen)(xb, &b0, &b1, dtype);
  NAME(narrow)(ya, LESS(a0 * c0, b0 * s0), LESS(a1 * c1, b1 * s1), dtype, nt);
  NAME(narrow)(yb, PLUS(a0 * s0, b0 * c0), PLUS(a1 * s1, b1 * c1), dtype, nt);
}

/* W interleaved pairs in half precision; for float16 cos is staged twice, and sin with the sign of each member. */
INLINE void NAME(neighbours)(char *y, const char *x, const float *c, const float *s, int dtype, int nt, int rounded) {
  const F c0 = NAME(load)(c), s0 = NAME(load)(s);
  F a, b;
  NAME(widen)(x, &a, &b, dtype);
  if (dtype == BF16) {
    NAME(narrow)(y, LESS(a * c0, b * s0), PLUS(a * s0, b * c0), dtype, nt);
    return;
  }
  const F c1 = NAME(load)(c + NAME(W)), s1 = NAME(load)(s + NAME(W));
  NAME(narrow)(y, PLUS(a * c0, NAME(swap)(a) * s0), PLUS(b * c1, NAME(swap)(b) * s1), dtype, nt);
}

/* Whole vectors of `count` rows of float32 with the same cos and sin, staged as for float16, which stay in registers: a
   copy of what lies in the second cache leaves no time to read them for each row. */
INLINE void NAME(floats)(Rows of, int count, int64_t end, int64_t half, int form, int nt) {
  const char *x[ABREAST];
  char *y[ABREAST];
  for (int i = 0; i < count; i++) x[i] = of.x + i * of.next_x, y[i] = of.y + i * of.next_y;
  for (int64_t j = 0; j < 4 * end; j += 4 * NAME(W)) {
    const F c = NAME(load)(of.c + j / 4), s = NAME(load)(of.s + j / 4);
    for (int i = 0; i < count; i++) {
      const F a = NAME(load)((const float *)(x[i] + j));
      if (form == NEIGHBOURS) {
        NAME(store)((float *)(y[i] + j), a * c + NAME(swap)(a) * s, nt);
        continue;
      }
      const F b = NAME(load)((const float *)(x[i] + half + j));
      NAME(store)((float *)(y[i] + j), a * c - b * s, nt);
      NAME(store)((float *)(y[i] + half + j), a * s + b * c, nt);
    }
  }
}

/* Whole vectors of rows, of half precision of one: the first `end` channels of each half, or of all if they are
   interleaved. */
INLINE void NAME(whole)(Rows of, int count, int64_t end, int64_t half, int dtype, int form, int nt, int rounded) {
  for (int64_t i = 0; nt && i < count; i++)
    for (int64_t z = 0; z < 2 * half; z += 64) __builtin_prefetch(of.x + i * of.next_x + AHEAD + z, 0, 3);
  if (dtype == F32) NAME(floats)(of, count, end, half, form, nt);
  for (int64_t j = 0; dtype != F32 && j < end; j += 2 * NAME(W)) {
    const Rows now = beside(of, 2 * j, 2 * j, form == NEIGHBOURS && dtype == BF16 ? j / 2 : j);
    if (form == NEIGHBOURS)
      NAME(neighbours)(now.y, now.x, now.c, now.s, dtype, nt, rounded);
    else
      NAME(halves)(now.y, now.y + half, now.x, now.x + half, now.c, now.s, dtype, nt, rounded);
  }
}
