/* Pairs whose members lie in vectors of their own, in the order of cos and sin: x86-64 with AVX-512. What is too short
   for a vector shares it with the same part of the next rows. Part of rows.h, beside eights.h. */

INLINE int NAME(vectors)(int dtype) { return dtype == F32 ? 1 : 2; }

/* The i-th 64 or 32 bytes of what lies in pieces of at least half as many, one piece in each row. */
INLINE __m512i NAME(line)(Part of, int piece, int i) {
  const char *p = of.at + 64 * i / piece * of.next + 64 * i % piece;
  if (piece >= 64) return _mm512_loadu_si512(p);
  return _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_loadu_si256((const void *)p)),
                            _mm256_loadu_si256((const void *)(p + of.next)), 1);
}
INLINE __m256i NAME(half_line)(Part of, int piece, int i) {
  const char *p = of.at + 32 * i / piece * of.next + 32 * i % piece;
  return piece >= 32 ? _mm256_loadu_si256((const void *)p)
                     : _mm256_set_m128i(_mm_loadu_si128((const void *)(p + of.next)), _mm_loadu_si128((const void *)p));
}
INLINE void NAME(put_half_line)(Part of, int piece, int i, __m256i v) {
  char *p = of.to + 32 * i / piece * of.next + 32 * i % piece;
  if (piece >= 32) {
    _mm256_storeu_si256((void *)p, v);
    return;
  }
  _mm_storeu_si128((void *)p, _mm256_castsi256_si128(v));
  _mm_storeu_si128((void *)(p + of.next), _mm256_extracti128_si256(v, 1));
}
INLINE void NAME(put_line)(Part of, int piece, int i, __m512i v) {
  if (piece >= 64) {
    _mm512_storeu_si512(of.to + 64 * i / piece * of.next + 64 * i % piece, v);
    return;
  }
  NAME(put_half_line)(of, piece, 2 * i, _mm512_castsi512_si256(v));
  NAME(put_half_line)(of, piece, 2 * i + 1, _mm512_extracti64x4_epi64(v, 1));
}

INLINE F NAME(angles)(Part of, int i) { return _mm512_castsi512_ps(NAME(line)(of, 4 * of.each, i)); }
/* W or 2 W interleaved pairs, taken apart. */
INLINE void NAME(get_pairs)(Part x, F *a, F *b, int dtype) {
  const int piece = 2 * x.each * (dtype == F32 ? 4 : 2);
  const __m512i u = NAME(line)(x, piece, 0), v = NAME(line)(x, piece, 1);
  if (dtype == F32) {
    NAME(unzip)(_mm512_castsi512_ps(u), _mm512_castsi512_ps(v), a, b);
  } else if (is_bf16(dtype)) {
    NAME(widen_bf16)(u, a, b);
    NAME(widen_bf16)(v, a + 1, b + 1);
  } else {
    NAME(widen_f16)(NAME(seconds)(u, v, 0), a, a + 1);
    NAME(widen_f16)(NAME(seconds)(u, v, 1), b, b + 1);
  }
}
/* The same put together. */
INLINE void NAME(put_pairs)(Part y, const F *a, const F *b, int dtype) {
  const int piece = 2 * y.each * (dtype == F32 ? 4 : 2);
  __m512i u, v;
  if (dtype == F32) {
    F low, high;
    NAME(zip)(*a, *b, &low, &high);
    u = _mm512_castps_si512(low);
    v = _mm512_castps_si512(high);
#ifdef QUICK
  } else if (dtype == QUICK_BF16) {
    u = NAME(quick)(a[0], b[0]);
    v = NAME(quick)(a[1], b[1]);
#endif
  } else if (dtype == BF16) {
    u = NAME(bf16)(a[0], b[0]);
    v = NAME(bf16)(a[1], b[1]);
  } else {
    const __m512i first = NAME(f16)(a[0], a[1]), second = NAME(f16)(b[0], b[1]);
    u = NAME(in_turns)(first, second, 0);
    v = NAME(in_turns)(first, second, 16);
  }
  NAME(put_line)(y, piece, 0, u);
  NAME(put_line)(y, piece, 1, v);
}
/* W or 2 W values in their order. */
INLINE void NAME(get_values)(Part x, F *v, int dtype) {
  for (int i = 0; i < NAME(vectors)(dtype); i++)
    if (dtype == F32)
      v[i] = _mm512_castsi512_ps(NAME(line)(x, 4 * x.each, i));
    else {
      const __m256i w = NAME(half_line)(x, 2 * x.each, i);
      v[i] = is_bf16(dtype) ? NAME(from_bf16)(w) : _mm512_cvtph_ps(w);
    }
}
INLINE void NAME(put_values)(Part y, const F *v, int dtype) {
  if (dtype == F32)
    NAME(put_line)(y, 4 * y.each, 0, _mm512_castps_si512(*v));
#ifdef QUICK
  else if (dtype == QUICK_BF16)
    NAME(put_line)(y, 2 * y.each, 0, NAME(quick_in_order)(v[0], v[1]));
#endif
  else if (dtype == BF16)
    NAME(put_line)(y, 2 * y.each, 0, NAME(bf16_in_order)(v[0], v[1]));
  else
    for (int i = 0; i < 2; i++) NAME(put_half_line)(y, 2 * y.each, i, _mm512_cvtps_ph(v[i], 0));
}
#include "members.h"
