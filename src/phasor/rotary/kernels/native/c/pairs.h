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

/* W or 2 W pairs of halves. */
INLINE void NAME(halves)(char *ya, char *yb, const char *xa, const char *xb, const float *c, const float *s, int dtype,
                         int nt, int rounded) {
  const F c0 = NAME(load)(c), s0 = NAME(load)(s);
  if (dtype == F32) {
    const F a = NAME(load)((const float *)xa), b = NAME(load)((const float *)xb);
    NAME(store)((float *)ya, LESS(a * c0, b * s0), nt);
    NAME(store)((float *)yb, PLUS(a * s0, b * c0), nt);
    return;
  }
  const F c1 = NAME(load)(c + NAME(W)), s1 = NAME(load)(s + NAME(W));
  F a0, a1, b0, b1;
  NAME(widen)(xa, &a0, &a1, dtype);
  NAME(widen)(xb, &b0, &b1, dtype);
  NAME(narrow)(ya, LESS(a0 * c0, b0 * s0), LESS(a1 * c1, b1 * s1), dtype, nt);
  NAME(narrow)(yb, PLUS(a0 * s0, b0 * c0), PLUS(a1 * s1, b1 * c1), dtype, nt);
}

/* W / 2 or W interleaved pairs; for float32 and float16 cos is staged twice, and sin with the sign of each member. */
INLINE void NAME(neighbours)(char *y, const char *x, const float *c, const float *s, int dtype, int nt, int rounded) {
  const F c0 = NAME(load)(c), s0 = NAME(load)(s);
  if (dtype == F32) {
    const F a = NAME(load)((const float *)x);
    NAME(store)((float *)y, PLUS(a * c0, NAME(swap)(a) * s0), nt);
    return;
  }
  F a, b;
  NAME(widen)(x, &a, &b, dtype);
  if (dtype == BF16) {
    NAME(narrow)(y, LESS(a * c0, b * s0), PLUS(a * s0, b * c0), dtype, nt);
    return;
  }
  const F c1 = NAME(load)(c + NAME(W)), s1 = NAME(load)(s + NAME(W));
  NAME(narrow)(y, PLUS(a * c0, NAME(swap)(a) * s0), PLUS(b * c1, NAME(swap)(b) * s1), dtype, nt);
}

/* Whole vectors of one head or block: the first `end` channels of each half, or of all if they are interleaved. */
INLINE void NAME(whole)(char *y, const char *x, const float *c, const float *s, int64_t end, int64_t half, int dtype,
                        int form, int nt, int rounded) {
  const int64_t size = dtype == F32 ? 4 : 2, vector = dtype == F32 ? NAME(W) : 2 * NAME(W);
  int64_t j = 0;
  do {
    const int64_t at = form == NEIGHBOURS && dtype == BF16 ? j / 2 : j;
    if (form == NEIGHBOURS)
      NAME(neighbours)(y + j * size, x + j * size, c + at, s + at, dtype, nt, rounded);
    else
      NAME(halves)(y + j * size, y + half + j * size, x + j * size, x + half + j * size, c + at, s + at, dtype, nt,
                   rounded);
    j += vector;
  } while (j < end);
}
