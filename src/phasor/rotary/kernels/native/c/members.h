/* Pairs whose members lie in vectors of their own, in the order of cos and sin: as many as get_values reads. Part of
   eights.h and of wide.h. */

/* Of halves at xa and xb, or interleaved at xa; to ya and yb, or to ya. */
INLINE void NAME(members)(char *ya, char *yb, const char *xa, const char *xb, const float *c, const float *s, int dtype,
                          int form, int rounded) {
  F a[2] = {{0}}, b[2] = {{0}}, u[2], v[2];
  if (form != TO_HALVES) {
    NAME(get_values)(xa, a, dtype);
    NAME(get_values)(xb, b, dtype);
  } else
    NAME(get_pairs)(xa, a, b, dtype);
  for (int i = 0; i < NAME(vectors)(dtype); i++) {
    const F cos = NAME(load)(c + i * NAME(W)), sin = NAME(load)(s + i * NAME(W));
    u[i] = NAME(product)(a[i], cos, dtype, rounded) - NAME(product)(b[i], sin, dtype, rounded);
    v[i] = NAME(product)(a[i], sin, dtype, rounded) + NAME(product)(b[i], cos, dtype, rounded);
  }
  if (form != TO_NEIGHBOURS) {
    NAME(put_values)(ya, u, dtype);
    NAME(put_values)(yb, v, dtype);
  } else
    NAME(put_pairs)(ya, u, v, dtype);
}
