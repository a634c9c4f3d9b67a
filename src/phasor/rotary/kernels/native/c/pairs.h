/* Pairs, whole vectors at a time, for one set of instructions. Part of rows.h. */

#include "quick.h"

/* 16-bit activations are widened two vectors at a time. bfloat16 falls into even and odd channels, which needs no
   shuffle, float16 into low and high ones; cos and sin are staged in the order in which a row wants them. */
INLINE void NAME(widen)(const char *x, F *u, F *v, int dtype) {
  if (is_bf16(dtype))
    NAME(load_bf16)((const uint16_t *)x, u, v);
  else
    NAME(load_f16)((const uint16_t *)x, u, v);
}
INLINE void NAME(narrow)(char *y, F u, F v, int dtype, int nt) {
  if (dtype == QUICK_BF16)
    NAME(quick_store)(y, u, v, nt);
  else if (dtype == BF16)
    NAME(store_bf16)((uint16_t *)y, u, v, nt);
  else
    NAME(store_f16)((uint16_t *)y, u, v, nt);
}
/* Two products less or plus each other, each of them rounded before where that is asked for. */
INLINE F NAME(joined)(F p, F q, int plus, int dtype, int rounded) {
  if (rounded && dtype == QUICK_BF16) return NAME(quick_sum)(p, q, plus);
  if (rounded && dtype == BF16) NAME(round_two_bf16)(&p, &q);
  if (rounded && dtype == F16) p = NAME(round_f16)(p), q = NAME(round_f16)(q);
  return plus ? p + q : p - q;
}
#define LESS(p, q) NAME(joined)(p, q, 0, dtype, rounded)
#define PLUS(p, q) NAME(joined)(p, q, 1, dtype, rounded)

/* In half precision, of some rows `parts` vectors of each half, or of interleaved channels, for which float16 has cos
   staged twice, and sin with the sign of each member. All are read before the first is written: a read waits for what
   goes to an address that ends in the same twelve bits. 0 if a quick way does not suit: then nothing is written. */
enum { NAME(READ) = NAME(W) == 16 ? 4 : 2 };
INLINE int NAME(turned)(Rows of, int rows, int parts, int64_t half, int dtype, int form, int nt, int rounded) {
  const int n = rows * parts, count = form == HALVES ? 2 * n : n;
  const int angles = form == NEIGHBOURS && is_bf16(dtype) ? NAME(W) : 2 * NAME(W);
#define PLACE(next) i % n / parts * (next) + i % n % parts * 4 * NAME(W) + i / n * half
  F u[2 * ABREAST], v[2 * ABREAST];
  for (int i = 0; i < count; i++) NAME(widen)(of.x + PLACE(of.next_x), u + i, v + i, dtype);
  if (dtype == QUICK_BF16) {
    NAME(Fit) all = NAME(FIT);
    for (int i = 0; i < count; i++) all = NAME(words_fit)(all, of.x + PLACE(of.next_x));
    if (!NAME(do_fit)(all)) return 0;
  }
  for (int i = 0; i < n; i++) {
    const float *c = of.c + i / parts * of.next_table + i % parts * angles, *s = c + (of.s - of.c);
    const F c0 = NAME(load)(c), s0 = NAME(load)(s), a = u[i], b = v[i];
    if (form == NEIGHBOURS && is_bf16(dtype)) {
      u[i] = LESS(a * c0, b * s0);
      v[i] = PLUS(a * s0, b * c0);
      continue;
    }
    const F c1 = NAME(load)(c + NAME(W)), s1 = NAME(load)(s + NAME(W));
    if (form == NEIGHBOURS) {
      u[i] = PLUS(a * c0, NAME(swap)(a) * s0);
      v[i] = PLUS(b * c1, NAME(swap)(b) * s1);
      continue;
    }
    const F d = u[i + n], e = v[i + n];
    u[i] = LESS(a * c0, d * s0);
    v[i] = LESS(b * c1, e * s1);
    u[i + n] = PLUS(a * s0, d * c0);
    v[i + n] = PLUS(b * s1, e * c1);
  }
  for (int i = 0; i < count; i++) NAME(narrow)(of.y + PLACE(of.next_y), u[i], v[i], dtype, nt);
#undef PLACE
  return 1;
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

/* Whole vectors of rows: the first `end` channels of each half, or of all if they are interleaved. */
INLINE void NAME(whole)(Rows of, int rows, int64_t end, int64_t half, int dtype, int form, int nt, int rounded) {
  for (int64_t i = 0; nt && i < rows; i++)
    for (int64_t z = 0; z < 2 * half; z += 64) __builtin_prefetch(of.x + i * of.next_x + AHEAD + z, 0, 3);
  if (dtype == F32) return NAME(floats)(of, rows, end, half, form, nt);
  const int most = (form == HALVES ? NAME(READ) / 2 : NAME(READ)) / rows;
  for (int64_t j = 0, n = 0; j < end; j += 2 * NAME(W) * n) {
    n = j + 2 * NAME(W) * most <= end ? most : 1;
    const Rows now = beside(of, 2 * j, 2 * j, form == NEIGHBOURS && is_bf16(dtype) ? j / 2 : j);
#define TURNED(n, dtype) NAME(turned)(now, rows, n, half, dtype, form, nt, rounded)
    if (!(n == 1 ? TURNED(1, dtype) : TURNED(most, dtype)))
      n == 1 ? TURNED(1, plain(dtype)) : TURNED(most, plain(dtype));
#undef TURNED
  }
}
