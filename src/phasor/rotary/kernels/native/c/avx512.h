/* Sixteen values at a time: x86-64 with AVX-512 F, BW, DQ and VL. */
enum { NAME(W) = 16 };
#define F __m512

INLINE F NAME(load)(const float *p) { return _mm512_loadu_ps(p); }
INLINE void NAME(store)(float *p, F v, int nt) {
  if (nt)
    _mm512_stream_ps(p, v);
  else
    _mm512_storeu_ps(p, v);
}
INLINE F NAME(swap)(F v) { return _mm512_permute_ps(v, 0xb1); }
INLINE void NAME(unzip)(F u, F v, F *even, F *odd) {
  const __m512i at = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  *even = _mm512_permutex2var_ps(u, at, v);
  *odd = _mm512_permutex2var_ps(u, _mm512_add_epi32(at, _mm512_set1_epi32(1)), v);
}
INLINE void NAME(write)(void *p, __m512i v, int nt) {
  if (nt)
    _mm512_stream_si512(p, v);
  else
    _mm512_storeu_si512(p, v);
}

INLINE void NAME(load_bf16)(const uint16_t *p, F *even, F *odd) {
  const __m512i w = _mm512_loadu_si512(p);
  *even = _mm512_castsi512_ps(_mm512_slli_epi32(w, 16));
  *odd = _mm512_castsi512_ps(_mm512_and_si512(w, _mm512_set1_epi32((int)0xffff0000)));
}
INLINE __m512i NAME(biased)(F v) { /* its upper half is v rounded to nearest even */
  const __m512i u = _mm512_castps_si512(v), last = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
  return _mm512_add_epi32(u, _mm512_add_epi32(last, _mm512_set1_epi32(0x7fff)));
}
/* Both at once in 16-bit lanes: what stays, what goes, and one more where more than half goes, or half from an odd one.
 */
INLINE void NAME(store_bf16)(uint16_t *p, F even, F odd, int nt) {
  const __m512i u = _mm512_castps_si512(even), v = _mm512_castps_si512(odd), upper = _mm512_set1_epi32((int)0xffff0000);
  const __m512i stays = _mm512_ternarylogic_epi32(upper, v, _mm512_srli_epi32(u, 16), 0xca);
  const __m512i goes = _mm512_ternarylogic_epi32(upper, _mm512_slli_epi32(v, 16), u, 0xca);
  const __m512i or_odd = _mm512_ternarylogic_epi32(goes, stays, _mm512_set1_epi16(1), 0xf8); /* goes | (stays & 1) */
  const __mmask32 more = _mm512_cmpgt_epu16_mask(or_odd, _mm512_set1_epi16((short)0x8000));
  NAME(write)(p, _mm512_mask_add_epi16(stays, more, stays, _mm512_set1_epi16(1)), nt);
}
INLINE void NAME(load_bf16_in_order)(const uint16_t *p, F *low, F *high) {
  *low = _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)p)), 16));
  *high = _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)(p + 16))), 16));
}
INLINE void NAME(store_bf16_in_order)(uint16_t *p, F low, F high) {
  const __m256i u = _mm512_cvtepi32_epi16(_mm512_srli_epi32(NAME(biased)(low), 16)),
                v = _mm512_cvtepi32_epi16(_mm512_srli_epi32(NAME(biased)(high), 16));
  NAME(write)(p, _mm512_inserti64x4(_mm512_castsi256_si512(u), v, 1), 0);
}
INLINE F NAME(round_bf16)(F v) {
  return _mm512_castsi512_ps(_mm512_and_si512(NAME(biased)(v), _mm512_set1_epi32((int)0xffff0000)));
}

INLINE void NAME(load_f16)(const uint16_t *p, F *low, F *high) {
  *low = _mm512_cvtph_ps(_mm256_loadu_si256((const void *)p));
  *high = _mm512_cvtph_ps(_mm256_loadu_si256((const void *)(p + 16)));
}
INLINE void NAME(store_f16)(uint16_t *p, F low, F high, int nt) {
  NAME(write)(p, _mm512_inserti64x4(_mm512_castsi256_si512(_mm512_cvtps_ph(low, 0)), _mm512_cvtps_ph(high, 0), 1), nt);
}
INLINE F NAME(round_f16)(F v) { return _mm512_cvtph_ps(_mm512_cvtps_ph(v, 0)); }
INLINE void NAME(fence)(int nt) {
  if (nt) _mm_sfence();
}
/* Sixteen phases: their upper halves, and four times each as a signed float. */
INLINE void NAME(split)(const uint64_t *phase, F *upper, F *rest) {
  const __m512i u = _mm512_loadu_si512(phase), v = _mm512_loadu_si512(phase + 8);
  F lower;
  NAME(unzip)(_mm512_castsi512_ps(u), _mm512_castsi512_ps(v), &lower, upper);
  *rest = _mm512_insertf32x8(_mm512_castps256_ps512(_mm512_cvtepi64_ps(_mm512_slli_epi64(u, 2))),
                             _mm512_cvtepi64_ps(_mm512_slli_epi64(v, 2)), 1);
}
