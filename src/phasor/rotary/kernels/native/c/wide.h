/* Pairs that are read in one order and written in the other, whole vectors at a time: x86-64 with AVX-512. Part of
   rows.h, beside eights.h. */

INLINE int NAME(vectors)(int dtype) { return dtype == F32 ? 1 : 2; }

/* W or 2 W interleaved pairs, taken apart. */
INLINE void NAME(get_pairs)(const char *x, F *a, F *b, int dtype) {
  const uint16_t *half = (const uint16_t *)x;
  if (dtype == F32) {
    NAME(unzip)(NAME(load)((const float *)x), NAME(load)((const float *)x + NAME(W)), a, b);
  } else if (dtype == BF16) {
    NAME(load_bf16)(half, a, b);
    NAME(load_bf16)(half + 2 * NAME(W), a + 1, b + 1);
  } else {
    const __m512i u = _mm512_loadu_si512(half), v = _mm512_loadu_si512(half + 2 * NAME(W));
    const __m512i first = NAME(seconds)(u, v, 0), second = NAME(seconds)(u, v, 1);
    NAME(widen_f16)(first, a, a + 1);
    NAME(widen_f16)(second, b, b + 1);
  }
}
/* The same put together. */
INLINE void NAME(put_pairs)(char *y, const F *a, const F *b, int dtype) {
  uint16_t *half = (uint16_t *)y;
  if (dtype == F32) {
    F u, v;
    NAME(zip)(*a, *b, &u, &v);
    NAME(store)((float *)y, u, 0);
    NAME(store)((float *)y + NAME(W), v, 0);
  } else if (dtype == BF16) {
    NAME(store_bf16)(half, a[0], b[0], 0);
    NAME(store_bf16)(half + 2 * NAME(W), a[1], b[1], 0);
  } else {
    const __m512i first = NAME(f16)(a[0], a[1]), second = NAME(f16)(b[0], b[1]);
    NAME(write)(half, NAME(in_turns)(first, second, 0), 0);
    NAME(write)(half + 2 * NAME(W), NAME(in_turns)(first, second, 16), 0);
  }
}
/* W or 2 W values in their order. */
INLINE void NAME(get_values)(const char *x, F *v, int dtype) {
  if (dtype == F32)
    *v = NAME(load)((const float *)x);
  else if (dtype == BF16)
    NAME(load_bf16_in_order)((const uint16_t *)x, v, v + 1);
  else
    NAME(load_f16)((const uint16_t *)x, v, v + 1);
}
INLINE void NAME(put_values)(char *y, const F *v, int dtype) {
  if (dtype == F32)
    NAME(store)((float *)y, *v, 0);
  else if (dtype == BF16)
    NAME(store_bf16_in_order)((uint16_t *)y, v[0], v[1]);
  else
    NAME(store_f16)((uint16_t *)y, v[0], v[1], 0);
}
#include "members.h"
