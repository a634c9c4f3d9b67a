/* Eight pairs at a time, for what fills no whole vectors, and for pairs that are read in one order and written in the
   other. For sets with vectors of at most eight floats. Part of rows.h. */
enum { NAME(N) = 8 / NAME(W) };

/* Eight values in their order. */
INLINE void NAME(get_eight)(const char *x, F *v, int dtype) {
  if (dtype == F32)
    for (int i = 0; i < NAME(N); i++) v[i] = NAME(load)((const float *)x + i * NAME(W));
  else
    NAME(load_eight)((const uint16_t *)x, v, dtype);
}
INLINE void NAME(put_eight)(char *y, const F *v, int dtype) {
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

/* Eight pairs: of halves at xa and xb, or interleaved at xa; to ya and yb, or to ya. cos and sin lie in their order. */
INLINE void NAME(eight)(char *ya, char *yb, const char *xa, const char *xb, const float *c, const float *s, int dtype,
                        int form, int rounded) {
  F a[NAME(N)] = {{0}}, b[NAME(N)] = {{0}}, u[NAME(N)], v[NAME(N)];
  if (form != TO_HALVES) {
    NAME(get_eight)(xa, a, dtype);
    NAME(get_eight)(xb, b, dtype);
  } else
    NAME(get_pairs)(xa, a, b, dtype);
  for (int i = 0; i < NAME(N); i++) {
    const F cos = NAME(load)(c + i * NAME(W)), sin = NAME(load)(s + i * NAME(W));
    u[i] = NAME(product)(a[i], cos, dtype, rounded) - NAME(product)(b[i], sin, dtype, rounded);
    v[i] = NAME(product)(a[i], sin, dtype, rounded) + NAME(product)(b[i], cos, dtype, rounded);
  }
  if (form != TO_NEIGHBOURS) {
    NAME(put_eight)(ya, u, dtype);
    NAME(put_eight)(yb, v, dtype);
  } else
    NAME(put_pairs)(ya, u, v, dtype);
}
