/* One head as floats, and back; and sums of its products. Part of rows.h.

   Products are added in the order of torch's kernels on x86-64, with every set of instructions: the bits of the plain
   expression there. Half precision is widened first. */

/* Some blocks of 32 products, in 32 running sums. */
INLINE void NAME(columns)(float *sum, const float *a, const float *b, int64_t blocks) {
  enum { W = NAME(W), PARTS = 32 / W };
  F part[PARTS];
  for (int v = 0; v < PARTS; v++) part[v] = NAME(load)(a + v * W) * NAME(load)(b + v * W);
  for (int64_t i = 1; i < blocks; i++)
    for (int v = 0; v < PARTS; v++) part[v] += NAME(load)(a + 32 * i + v * W) * NAME(load)(b + 32 * i + v * W);
  for (int v = 0; v < PARTS; v++) NAME(store)(sum + v * W, part[v], 0);
}
/* Many of them: sums of 16 blocks are summed, and sums of 16 such sums. */
static NOINLINE void NAME(many_columns)(float *sum, const float *a, const float *b, int64_t blocks) {
  enum { LEVELS = 4, EACH = 16 };
  float of[LEVELS][32] = {{0}};
  for (int64_t i = 0; i < blocks;) {
    const int64_t now = blocks - i < EACH ? blocks - i : EACH;
    NAME(columns)(of[0], a + 32 * i, b + 32 * i, now);
    i += now;
    for (int level = 1; now == EACH && level < LEVELS; level++) {
      for (int c = 0; c < 32; c++) {
        of[level][c] += of[level - 1][c];
        of[level - 1][c] = 0;
      }
      if (i >> 4 * level & 15) break;
    }
  }
  for (int c = 0; c < 32; c++) sum[c] = of[0][c] + of[1][c] + of[2][c] + of[3][c];
}
/* The sum of a[i] b[i]: what fills no block goes to the first eight sums, what fills no eight comes first in the end.
 */
static NOINLINE float NAME(dot)(const float *a, const float *b, int64_t n) {
  float sum[32] __attribute__((aligned(64))) = {0}, total = 0;
  const int64_t blocks = n / 32;
  if (blocks && blocks < 16)
    NAME(columns)(sum, a, b, blocks);
  else if (blocks)
    NAME(many_columns)(sum, a, b, blocks);
  int64_t j = 32 * blocks;
  for (; j + 8 <= n; j += 8)
    for (int c = 0; c < 8; c++) sum[c] += a[j + c] * b[j + c];
  for (; j < n; j++) total += a[j] * b[j];
  for (int c = 0; c < 8; c++) sum[c] = sum[c] + sum[8 + c] + sum[16 + c] + sum[24 + c];
  for (int c = 0; c < 8; c++) total += sum[c];
  return total;
}

/* One head as floats, and back, rounded to its dtype. */
INLINE void NAME(get)(float *restrict to, const char *from, int64_t step, int64_t n, int dtype) {
  const int64_t size = dtype == F32 ? 4 : 2, wide = NAME(vectors)(dtype) * NAME(W);
  const uint16_t *x = (const uint16_t *)from;
  int64_t i = 0;
  for (; step == 1 && i + wide <= n; i += wide) {
    F v[2] = {{0}};
    NAME(get_values)((Part){.at = from + i * size, .each = (int)wide}, v, dtype);
    for (int k = 0; k < NAME(vectors)(dtype); k++) NAME(store)(to + i + k * NAME(W), v[k], 0);
  }
  for (; i < n && dtype == F32; i++) to[i] = ((const float *)from)[i * step];
  for (; i < n; i++) to[i] = dtype == BF16 ? from_bf16(x[i * step]) : from_f16(x[i * step]);
}
INLINE void NAME(put)(char *to, int64_t step, const float *restrict from, int64_t n, int dtype) {
  const int64_t size = dtype == F32 ? 4 : 2, wide = NAME(vectors)(dtype) * NAME(W);
  uint16_t *y = (uint16_t *)to;
  int64_t i = 0;
  for (; step == 1 && i + wide <= n; i += wide) {
    F v[2] = {{0}};
    for (int k = 0; k < NAME(vectors)(dtype); k++) v[k] = NAME(load)(from + i + k * NAME(W));
    NAME(put_values)((Part){.to = to + i * size, .each = (int)wide}, v, dtype);
  }
  for (; i < n && dtype == F32; i++) ((float *)to)[i * step] = from[i];
  for (; i < n; i++) y[i * step] = dtype == BF16 ? to_bf16(from[i]) : to_f16(from[i]);
}
