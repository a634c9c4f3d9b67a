/* Eight pairs at a time, for what fills no whole vectors, and for pairs that are read in one order and written in the
   other. For sets with vectors of at most eight floats. Part of rows.h. */
enum { NAME(N) = 8 / NAME(W) };
INLINE int NAME(vectors)(int dtype) {
  (void)dtype;
  return NAME(N);
}

/* Eight values in their order. */
INLINE void NAME(get_values)(const char *x, F *v, int dtype) {
  if (dtype == F32)
    for (int i = 0; i < NAME(N); i++) v[i] = NAME(load)((const float *)x + i * NAME(W));
  else
    NAME(load_eight)((const uint16_t *)x, v, dtype);
}
INLINE void NAME(put_values)(char *y, const F *v, int dtype) {
  if (dtype == F32)
    for (int i = 0; i < NAME(N); i++) NAME(store)((float *)y + i * NAME(W), v[i], 0);
  else
    NAME(store_eight)((uint16_t *)y, v, dtype);
}

/* Eight interleaved pairs, taken apart and put together. */
INLINE void NAME(get_pairs)(const char *x, F *a, F *b, int dtype) {
  const int64_t step = 2 * NAME(W) * (dtype == F32 ? 4 : 2);
  for (int i = 0; i < NAME(N); i++, x += step) {
    F u, v;
    if (dtype == BF16) {
      NAME(load_bf16)((const uint16_t *)x, a + i, b + i);
      continue;
    }
    if (dtype == F32) {
      u = NAME(load)((const float *)x);
      v = NAME(load)((const float *)x + NAME(W));
    } else
      NAME(load_f16)((const uint16_t *)x, &u, &v);
    NAME(unzip)(u, v, a + i, b + i);
  }
}
INLINE void NAME(put_pairs)(char *y, const F *a, const F *b, int dtype) {
  const int64_t step = 2 * NAME(W) * (dtype == F32 ? 4 : 2);
  for (int i = 0; i < NAME(N); i++, y += step) {
    F u, v;
    if (dtype == BF16) {
      NAME(store_bf16)((uint16_t *)y, a[i], b[i], 0);
      continue;
    }
    NAME(zip)(a[i], b[i], &u, &v);
    if (dtype == F32) {
      NAME(store)((float *)y, u, 0);
      NAME(store)((float *)y + NAME(W), v, 0);
    } else
      NAME(store_f16)((uint16_t *)y, u, v, 0);
  }
}
#include "members.h"
