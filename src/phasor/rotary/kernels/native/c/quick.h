/* bfloat16 by the machine's own instructions, in sets that define QUICK. To them numbers below 2**-126 are zero. None
   is so small, neither products nor sums, where all that is read is 2**-63 at least, and cos and sin are 2**-30, or
   zero: all else goes the plain way. Part of pairs.h. */

#ifdef QUICK
static const uint16_t NAME(MIXED)[32] = {0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
                                         8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
INLINE __m512i NAME(quick_in_order)(F low, F high) { return (__m512i)_mm512_cvtne2ps_pbh(high, low); }
INLINE __m512i NAME(quick)(F even, F odd) {
  return _mm512_permutexvar_epi16(_mm512_loadu_si512(NAME(MIXED)), NAME(quick_in_order)(even, odd));
}
INLINE void NAME(quick_store)(char *y, F even, F odd, int nt) { NAME(write)(y, NAME(quick)(even, odd), nt); }
INLINE F NAME(quick_sum)(F p, F q, int plus) { /* of rounded products: -0, and 1 or -1 times q, and p */
  const __m512i signs = _mm512_set1_epi32(plus ? 0x3f803f80 : (int)0xbf803f80);
  return _mm512_dpbf16_ps(_mm512_set1_ps(-0.0f), (__m512bh)NAME(quick)(p, q), (__m512bh)signs);
}

/* Whether numbers are large enough: 64 bytes of them as they are read, and two times two vectors. */
typedef __mmask32 NAME(Fit);
static const NAME(Fit) NAME(FIT) = 0xffffffff;
INLINE NAME(Fit) NAME(words_fit)(NAME(Fit) before, const char *x) {
  return _mm512_mask_test_epi16_mask(before, _mm512_loadu_si512(x), _mm512_set1_epi16(0x6000));
}
INLINE int NAME(do_fit)(NAME(Fit) all) { return _kortestc_mask32_u8(all, all); }
INLINE int NAME(floats_fit)(const F *u, const F *v) {
  const __m512i large = _mm512_set1_epi32(0x60000000);
  __mmask16 all = _mm512_test_epi32_mask(_mm512_castps_si512(u[0]), large);
  all = _mm512_mask_test_epi32_mask(all, _mm512_castps_si512(u[1]), large);
  all = _mm512_mask_test_epi32_mask(all, _mm512_castps_si512(v[0]), large);
  all = _mm512_mask_test_epi32_mask(all, _mm512_castps_si512(v[1]), large);
  return _kortestc_mask16_u8(all, all);
}
/* Whether a staged table fits: zero less one is larger than all. */
INLINE int NAME(table_fits)(const float *table, int64_t count) {
  __mmask16 small = 0;
  for (int64_t i = 0; i < count; i += NAME(W)) {
    const __m512i size = _mm512_and_si512(_mm512_loadu_si512(table + i), _mm512_set1_epi32(0x7fffffff));
    small |= _mm512_cmplt_epu32_mask(_mm512_sub_epi32(size, _mm512_set1_epi32(1)), _mm512_set1_epi32(0x30800000 - 1));
  }
  return !small;
}
#else
typedef int NAME(Fit);
enum { NAME(FIT) };
INLINE NAME(Fit) NAME(words_fit)(NAME(Fit) all, const char *x) { return x ? all : 0; }
INLINE int NAME(do_fit)(NAME(Fit) all) { return all; }
INLINE int NAME(floats_fit)(const F *u, const F *v) { return u == v; }
INLINE F NAME(quick_sum)(F p, F q, int plus) { return plus ? p : q; }
INLINE void NAME(quick_store)(char *y, F u, F v, int nt) { NAME(store_bf16)((uint16_t *)y, u, v, nt); }
#endif
