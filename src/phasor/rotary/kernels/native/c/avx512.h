/* Sixteen values at a time: x86-64 with AVX-512 F, BW, DQ and VL. */
enum { NAME(W) = 16 };
#define F __m512
#ifdef __AVX512BF16__
#define QUICK
#endif

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
INLINE void NAME(zip)(F even, F odd, F *u, F *v) {
  const __m512i at = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
  *u = _mm512_permutex2var_ps(even, at, odd);
  *v = _mm512_permutex2var_ps(even, _mm512_add_epi32(at, _mm512_set1_epi32(8)), odd);
}
INLINE void NAME(write)(void *p, __m512i v, int nt) {
  if (nt)
    _mm512_stream_si512(p, v);
  else
    _mm512_storeu_si512(p, v);
}

INLINE void NAME(widen_bf16)(__m512i w, F *even, F *odd) {
  *even = _mm512_castsi512_ps(_mm512_slli_epi32(w, 16));
  *odd = _mm512_castsi512_ps(_mm512_and_si512(w, _mm512_set1_epi32((int)0xffff0000)));
}
INLINE void NAME(load_bf16)(const uint16_t *p, F *even, F *odd) { NAME(widen_bf16)(_mm512_loadu_si512(p), even, odd); }
INLINE __m512i NAME(biased)(F v) { /* its upper half is v rounded to nearest even */
  const __m512i u = _mm512_castps_si512(v), last = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
  return _mm512_add_epi32(u, _mm512_add_epi32(last, _mm512_set1_epi32(0x7fff)));
}
/* In 16-bit lanes: what stays of 32 numbers, and one more where more than half of it goes, or half from an odd one. */
INLINE __m512i NAME(nearest_bf16)(__m512i stays, __m512i goes) {
  const __m512i or_odd = _mm512_ternarylogic_epi32(goes, stays, _mm512_set1_epi16(1), 0xf8); /* goes | (stays & 1) */
  const __mmask32 more = _mm512_cmpgt_epu16_mask(or_odd, _mm512_set1_epi16((short)0x8000));
  return _mm512_mask_add_epi16(stays, more, stays, _mm512_set1_epi16(1));
}
INLINE __m512i NAME(bf16)(F even, F odd) {
  const __m512i u = _mm512_castps_si512(even), v = _mm512_castps_si512(odd);
  const __m512i swap = _mm512_set4_epi32(0x0d0c0f0e, 0x09080b0a, 0x05040706, 0x01000302); /* the halves of 32 bits */
  const __m512i stays = _mm512_mask_shuffle_epi8(v, 0x3333333333333333, u, swap);
  const __m512i goes = _mm512_mask_shuffle_epi8(u, 0xcccccccccccccccc, v, swap);
  return NAME(nearest_bf16)(stays, goes);
}
INLINE void NAME(store_bf16)(uint16_t *p, F even, F odd, int nt) { NAME(write)(p, NAME(bf16)(even, odd), nt); }
INLINE F NAME(from_bf16)(__m256i w) { return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(w), 16)); }
/* 64 16-bit numbers: every second one, from the first or the next one on; and two times 32 of them, dealt in turns. */
static const uint16_t NAME(EVEN)[32] = {0,  2,  4,  6,  8,  10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30,
                                        32, 34, 36, 38, 40, 42, 44, 46, 48, 50, 52, 54, 56, 58, 60, 62};
static const uint16_t NAME(TURNS)[32] = {0, 32, 1, 33, 2,  34, 3,  35, 4,  36, 5,  37, 6,  38, 7,  39,
                                         8, 40, 9, 41, 10, 42, 11, 43, 12, 44, 13, 45, 14, 46, 15, 47};
INLINE __m512i NAME(seconds)(__m512i u, __m512i v, int from) {
  const __m512i at = _mm512_add_epi16(_mm512_loadu_si512(NAME(EVEN)), _mm512_set1_epi16((short)from));
  return _mm512_permutex2var_epi16(u, at, v);
}
INLINE __m512i NAME(in_turns)(__m512i u, __m512i v, int from) {
  const __m512i at = _mm512_add_epi16(_mm512_loadu_si512(NAME(TURNS)), _mm512_set1_epi16((short)from));
  return _mm512_permutex2var_epi16(u, at, v);
}
INLINE __m512i NAME(bf16_in_order)(F low, F high) {
  const __m512i u = _mm512_castps_si512(low), v = _mm512_castps_si512(high);
  return NAME(nearest_bf16)(NAME(seconds)(u, v, 1), NAME(seconds)(u, v, 0));
}
INLINE F NAME(round_bf16)(F v) {
  return _mm512_castsi512_ps(_mm512_and_si512(NAME(biased)(v), _mm512_set1_epi32((int)0xffff0000)));
}
INLINE void NAME(round_two_bf16)(F *u, F *v) { NAME(widen_bf16)(NAME(bf16)(*u, *v), u, v); }

INLINE void NAME(widen_f16)(__m512i v, F *low, F *high) {
  *low = _mm512_cvtph_ps(_mm512_castsi512_si256(v));
  *high = _mm512_cvtph_ps(_mm512_extracti64x4_epi64(v, 1));
}
INLINE void NAME(load_f16)(const uint16_t *p, F *low, F *high) {
  *low = _mm512_cvtph_ps(_mm256_loadu_si256((const void *)p));
  *high = _mm512_cvtph_ps(_mm256_loadu_si256((const void *)(p + 16)));
}
INLINE __m512i NAME(f16)(F low, F high) {
  return _mm512_inserti64x4(_mm512_castsi256_si512(_mm512_cvtps_ph(low, 0)), _mm512_cvtps_ph(high, 0), 1);
}
INLINE void NAME(store_f16)(uint16_t *p, F low, F high, int nt) {
  if (nt) {
    NAME(write)(p, NAME(f16)(low, high), nt);
    return;
  }
  _mm256_storeu_si256((void *)p, _mm512_cvtps_ph(low, 0));
  _mm256_storeu_si256((void *)(p + 16), _mm512_cvtps_ph(high, 0));
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
