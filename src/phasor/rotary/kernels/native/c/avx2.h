/* Eight values at a time: x86-64 with AVX2 and F16C. */
enum { NAME(W) = 8 };
#define F __m256

INLINE F NAME(load)(const float *p) { return _mm256_loadu_ps(p); }
INLINE void NAME(store)(float *p, F v, int nt) {
  if (nt)
    _mm256_stream_ps(p, v);
  else
    _mm256_storeu_ps(p, v);
}
INLINE F NAME(swap)(F v) { return _mm256_permute_ps(v, 0xb1); } /* 1 0 3 2 */
/* Shuffles stay inside halves of 128 bits: they take 0 2 (1 3) of u, then of v. 0xd8 exchanges the middle two pairs. */
INLINE void NAME(unzip)(F u, F v, F *even, F *odd) {
  *even = _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(_mm256_shuffle_ps(u, v, 0x88)), 0xd8));
  *odd = _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(_mm256_shuffle_ps(u, v, 0xdd)), 0xd8));
}
/* Both lower halves of what is unpacked half by half, then both upper ones. */
INLINE void NAME(zip)(F even, F odd, F *u, F *v) {
  const F low = _mm256_unpacklo_ps(even, odd), high = _mm256_unpackhi_ps(even, odd);
  *u = _mm256_permute2f128_ps(low, high, 0x20);
  *v = _mm256_permute2f128_ps(low, high, 0x31);
}
INLINE void NAME(write)(void *p, __m256i v, int nt) {
  if (nt)
    _mm256_stream_si256(p, v);
  else
    _mm256_storeu_si256(p, v);
}

INLINE void NAME(load_bf16)(const uint16_t *p, F *even, F *odd) {
  const __m256i w = _mm256_loadu_si256((const void *)p);
  *even = _mm256_castsi256_ps(_mm256_slli_epi32(w, 16));
  *odd = _mm256_castsi256_ps(_mm256_and_si256(w, _mm256_set1_epi32((int)0xffff0000)));
}
INLINE __m256i NAME(biased)(F v) { /* its upper half is v rounded to nearest even */
  const __m256i u = _mm256_castps_si256(v), last = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
  return _mm256_add_epi32(u, _mm256_add_epi32(last, _mm256_set1_epi32(0x7fff)));
}
/* Both at once in 16-bit lanes: what stays, what goes, and one more where more than half goes, or half from an odd one.
 */
INLINE void NAME(store_bf16)(uint16_t *p, F even, F odd, int nt) {
  const __m256i u = _mm256_castps_si256(even), v = _mm256_castps_si256(odd);
  const __m256i stays = _mm256_blend_epi16(_mm256_srli_epi32(u, 16), v, 0xaa);
  const __m256i goes = _mm256_blend_epi16(u, _mm256_slli_epi32(v, 16), 0xaa);
  const __m256i or_odd = _mm256_or_si256(goes, _mm256_and_si256(stays, _mm256_set1_epi16(1)));
  const __m256i less = _mm256_xor_si256(or_odd, _mm256_set1_epi16((short)0x8000)); /* for signed comparison */
  NAME(write)(p, _mm256_sub_epi16(stays, _mm256_cmpgt_epi16(less, _mm256_setzero_si256())), nt);
}
INLINE F NAME(round_bf16)(F v) {
  return _mm256_castsi256_ps(_mm256_and_si256(NAME(biased)(v), _mm256_set1_epi32((int)0xffff0000)));
}
INLINE void NAME(round_two_bf16)(F *u, F *v) { *u = NAME(round_bf16)(*u), *v = NAME(round_bf16)(*v); }

INLINE void NAME(load_f16)(const uint16_t *p, F *low, F *high) {
  *low = _mm256_cvtph_ps(_mm_loadu_si128((const void *)p));
  *high = _mm256_cvtph_ps(_mm_loadu_si128((const void *)(p + 8)));
}
INLINE void NAME(store_f16)(uint16_t *p, F low, F high, int nt) {
  NAME(write)(p, _mm256_set_m128i(_mm256_cvtps_ph(high, 0), _mm256_cvtps_ph(low, 0)), nt);
}
INLINE F NAME(round_f16)(F v) { return _mm256_cvtph_ps(_mm256_cvtps_ph(v, 0)); }
INLINE void NAME(load_eight)(const uint16_t *p, F *v, int dtype) {
  const __m128i w = _mm_loadu_si128((const void *)p);
  *v = dtype == BF16 ? _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(w), 16)) : _mm256_cvtph_ps(w);
}
INLINE void NAME(store_eight)(uint16_t *p, const F *v, int dtype) {
  __m128i w;
  if (dtype == BF16) {
    const __m256i u = _mm256_srli_epi32(NAME(biased)(*v), 16);
    w = _mm_packus_epi32(_mm256_castsi256_si128(u), _mm256_extracti128_si256(u, 1));
  } else
    w = _mm256_cvtps_ph(*v, 0);
  _mm_storeu_si128((void *)p, w);
}
INLINE void NAME(fence)(int nt) {
  if (nt) _mm_sfence();
}
/* Four signed integers to the nearest floats, by way of doubles. Large ones have more bits than a double: their lowest
   eleven are joined to one, which no float shows but where it lies beyond half. */
INLINE __m128 NAME(nearest)(__m256i x) {
  const __m256i low = _mm256_set1_epi64x(0x7ff), size = _mm256_xor_si256(x, _mm256_srai_epi32(x, 31));
  const __m256i joined = _mm256_andnot_si256(low, _mm256_or_si256(x, _mm256_add_epi64(_mm256_and_si256(x, low), low)));
  const __m256i large = _mm256_shuffle_epi32(_mm256_cmpgt_epi32(size, _mm256_set1_epi32(1 << 16)), 0xf5);
  const __m256i y = _mm256_blendv_epi8(x, joined, large);
  /* 2**52 and the lower half, 2**84 + 2**63 and the upper one: their bits are those of doubles */
  const __m256i lower = _mm256_blend_epi16(y, _mm256_set1_epi64x(0x4330000000000000), 0xcc);
  const __m256i upper = _mm256_xor_si256(_mm256_srli_epi64(y, 32), _mm256_set1_epi64x(0x4530000080000000));
  const __m256d both = _mm256_castsi256_pd(_mm256_set1_epi64x(0x4530000080100000)); /* 2**84 + 2**63 + 2**52 */
  return _mm256_cvtpd_ps(
      _mm256_add_pd(_mm256_sub_pd(_mm256_castsi256_pd(upper), both), _mm256_castsi256_pd(lower)));
}
/* Eight phases: their upper halves, and four times each as a signed float. */
INLINE void NAME(split)(const uint64_t *phase, F *upper, F *rest) {
  const __m256i u = _mm256_loadu_si256((const void *)phase), v = _mm256_loadu_si256((const void *)(phase + 4));
  F lower;
  NAME(unzip)(_mm256_castsi256_ps(u), _mm256_castsi256_ps(v), &lower, upper);
  *rest = _mm256_set_m128(NAME(nearest)(_mm256_slli_epi64(v, 2)), NAME(nearest)(_mm256_slli_epi64(u, 2)));
}
