/* Pairs whose members lie in vectors of their own, in the order of cos and sin: `each` of every row, of as many rows as
   fill the vectors. Part of eights.h and of wide.h. */

/* Of halves that are `half` bytes apart, or interleaved; written as one or the other. 0 where the quick way does not
   suit: then nothing is written. */
INLINE int NAME(members)(Rows of, int64_t half, int each, int dtype, int form, int rounded) {
  const Part x = {of.x, NULL, each, of.next_x}, y = {NULL, of.y, each, of.next_y};
  const int doubled = are_doubled(form, dtype), angles = doubled ? 2 * each : each;
  const Part c = {(const char *)of.c, NULL, angles, 4 * of.next_table}, s = {(const char *)of.s, NULL, angles, c.next};
  F a[2] = {{0}}, b[2] = {{0}}, u[2], v[2];
  if (form & READ_PAIRS)
    NAME(get_pairs)(x, a, b, dtype);
  else {
    NAME(get_values)(x, a, dtype);
    NAME(get_values)((Part){of.x + half, NULL, each, of.next_x}, b, dtype);
  }
  if (dtype == QUICK_BF16 && !NAME(floats_fit)(a, b)) return 0;
  for (int i = 0; i < NAME(vectors)(dtype); i++) {
    F cos = NAME(angles)(c, i), sin = NAME(angles)(s, i), same;
    if (doubled) { /* of the sines, the second of two has the sign of the rotation */
      NAME(unzip)(NAME(angles)(c, 2 * i), NAME(angles)(c, 2 * i + 1), &cos, &same);
      NAME(unzip)(NAME(angles)(s, 2 * i), NAME(angles)(s, 2 * i + 1), &same, &sin);
    }
    u[i] = LESS(a[i] * cos, b[i] * sin);
    v[i] = PLUS(a[i] * sin, b[i] * cos);
  }
  if (form & WRITE_PAIRS)
    NAME(put_pairs)(y, u, v, dtype);
  else {
    NAME(put_values)(y, u, dtype);
    NAME(put_values)((Part){NULL, of.y + half, each, of.next_y}, v, dtype);
  }
  return 1;
}
