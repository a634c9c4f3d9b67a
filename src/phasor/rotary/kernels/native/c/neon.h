/* Four values at a time: 64-bit ARM. */
enum { NAME(W) = 4 };
#define F float32x4_t

INLINE F NAME(load)(const float *p) { return vld1q_f32(p); }
INLINE void NAME(store)(float *p, F v, int nt) {
  (void)nt;
  vst1q_f32(p, v);
}
INLINE F NAME(swap)(F v) { return vrev64q_f32(v); }
INLINE void NAME(unzip)(F u, F v, F *even, F *odd) {
  *even = vuzp1q_f32(u, v);
  *odd = vuzp2q_f32(u, v);
}
INLINE void NAME(zip)(F even, F odd, F *u, F *v) {
  *u = vzip1q_f32(even, odd);
  *v = vzip2q_f32(even, odd);
}

INLINE void NAME(load_bf16)(const uint16_t *p, F *even, F *odd) {
  const uint32x4_t w = vreinterpretq_u32_u16(vld1q_u16(p));
  *even = vreinterpretq_f32_u32(vshlq_n_u32(w, 16));
  *odd = vreinterpretq_f32_u32(vandq_u32(w, vdupq_n_u32(0xffff0000)));
}
INLINE uint32x4_t NAME(biased)(F v) { /* its upper half is v rounded to nearest even */
  const uint32x4_t u = vreinterpretq_u32_f32(v), last = vandq_u32(vshrq_n_u32(u, 16), vdupq_n_u32(1));
  return vaddq_u32(u, vaddq_u32(last, vdupq_n_u32(0x7fff)));
}
INLINE void NAME(store_bf16)(uint16_t *p, F even, F odd, int nt) {
  (void)nt;
  const uint32x4_t low = vshrq_n_u32(NAME(biased)(even), 16), high = NAME(biased)(odd);
  vst1q_u16(p, vreinterpretq_u16_u32(vbslq_u32(vdupq_n_u32(0xffff0000), high, low)));
}
INLINE void NAME(load_bf16_in_order)(const uint16_t *p, F *low, F *high) {
  const uint16x8_t w = vld1q_u16(p);
  *low = vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(w), 16));
  *high = vreinterpretq_f32_u32(vshll_n_u16(vget_high_u16(w), 16));
}
INLINE void NAME(store_bf16_in_order)(uint16_t *p, F low, F high) {
  vst1q_u16(p, vcombine_u16(vshrn_n_u32(NAME(biased)(low), 16), vshrn_n_u32(NAME(biased)(high), 16)));
}
INLINE F NAME(round_bf16)(F v) { return vreinterpretq_f32_u32(vandq_u32(NAME(biased)(v), vdupq_n_u32(0xffff0000))); }
INLINE void NAME(round_two_bf16)(F *u, F *v) { *u = NAME(round_bf16)(*u), *v = NAME(round_bf16)(*v); }

INLINE void NAME(load_f16)(const uint16_t *p, F *low, F *high) {
  const float16x8_t h = vreinterpretq_f16_u16(vld1q_u16(p));
  *low = vcvt_f32_f16(vget_low_f16(h));
  *high = vcvt_f32_f16(vget_high_f16(h));
}
INLINE void NAME(store_f16)(uint16_t *p, F low, F high, int nt) {
  (void)nt;
  vst1q_u16(p, vreinterpretq_u16_f16(vcombine_f16(vcvt_f16_f32(low), vcvt_f16_f32(high))));
}
INLINE F NAME(round_f16)(F v) { return vcvt_f32_f16(vcvt_f16_f32(v)); }
INLINE void NAME(load_eight)(const uint16_t *p, F *v, int dtype) {
  if (dtype == BF16)
    NAME(load_bf16_in_order)(p, v, v + 1);
  else
    NAME(load_f16)(p, v, v + 1);
}
INLINE void NAME(store_eight)(uint16_t *p, const F *v, int dtype) {
  if (dtype == BF16)
    NAME(store_bf16_in_order)(p, v[0], v[1]);
  else
    NAME(store_f16)(p, v[0], v[1], 0);
}
INLINE void NAME(fence)(int nt) { (void)nt; }
INLINE void NAME(split)(const uint64_t *phase, F *upper, F *rest) {
  float u[4], r[4];
  split_each(phase, u, r, 4);
  *upper = NAME(load)(u);
  *rest = NAME(load)(r);
}
