/* Eight pairs at a time, for what fills no whole vectors, and for pairs that are read in one order and written in the
   other. For sets with vectors of at most eight floats. Part of rows.h. */
enum { NAME(N) = 8 / NAME(W) };
INLINE int NAME(vectors)(int dtype) {
  (void)dtype;
  return NAME(N);
}

/* Eight values in their order. */
INLINE F NAME(angles)(Part of, int i) { return NAME(load)((const float *)of.at + i * NAME(W)); }
INLINE void NAME(get_values)(Part x, F *v, int dtype) {
  if (dtype == F32)
    for (int i = 0; i < NAME(N); i++) v[i] = NAME(angles)(x, i);
  else
    NAME(load_eight)((const uint16_t *)x.at, v, dtype);
}
INLINE void NAME(put_values)(Part y, const F *v, int dtype) {
  if (dtype == F32)
    for (int i = 0; i < NAME(N); i++) NAME(store)((float *)y.to + i * NAME(W), v[i], 0);
  else
    NAME(store_eight)((uint16_t *)y.to, v, dtype);
}

/* Eight interleaved pairs, taken apart and put together. */
INLINE void NAME(get_pairs)(Part of, F *a, F *b, int dtype) {
  const int64_t step = 2 * NAME(W) * (dtype == F32 ? 4 : 2);
  const char *x = of.at;
  for (int i = 0; i < NAME(N); i++, x += step) {
    if (dtype == F32) {
      a[i] = NAME(load)((const float *)x);
      b[i] = NAME(load)((const float *)x + NAME(W));
    } else
      NAME(widen)(x, a + i, b + i, dtype);
    if (dtype != BF16) NAME(unzip)(a[i], b[i], a + i, b + i);
  }
}
INLINE void NAME(put_pairs)(Part of, const F *a, const F *b, int dtype) {
  const int64_t step = 2 * NAME(W) * (dtype == F32 ? 4 : 2);
  char *y = of.to;
  for (int i = 0; i < NAME(N); i++, y += step) {
    F u = a[i], v = b[i];
    if (dtype != BF16) NAME(zip)(u, v, &u, &v);
    if (dtype == F32) {
      NAME(store)((float *)y, u, 0);
      NAME(store)((float *)y + NAME(W), v, 0);
    } else
      NAME(narrow)(y, u, v, dtype, 0);
  }
}
#include "members.h"
