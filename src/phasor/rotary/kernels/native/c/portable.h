/* Four values at a time, in C that every compiler turns into what its machine has. No streaming stores. */
enum { NAME(W) = 4 };
typedef float NAME(F) __attribute__((vector_size(16)));
#define F NAME(F)

INLINE F NAME(load)(const float *p) {
  F v;
  memcpy(&v, p, sizeof v);
  return v;
}
INLINE void NAME(store)(float *p, F v, int nt) {
  (void)nt;
  memcpy(p, &v, sizeof v);
}
INLINE F NAME(swap)(F v) { return (F){v[1], v[0], v[3], v[2]}; }
INLINE void NAME(unzip)(F u, F v, F *even, F *odd) {
  *even = (F){u[0], u[2], v[0], v[2]};
  *odd = (F){u[1], u[3], v[1], v[3]};
}
INLINE void NAME(zip)(F even, F odd, F *u, F *v) {
  *u = (F){even[0], odd[0], even[1], odd[1]};
  *v = (F){even[2], odd[2], even[3], odd[3]};
}

INLINE void NAME(load_bf16)(const uint16_t *p, F *even, F *odd) {
  *even = (F){from_bf16(p[0]), from_bf16(p[2]), from_bf16(p[4]), from_bf16(p[6])};
  *odd = (F){from_bf16(p[1]), from_bf16(p[3]), from_bf16(p[5]), from_bf16(p[7])};
}
INLINE void NAME(store_bf16)(uint16_t *p, F even, F odd, int nt) {
  (void)nt;
  for (int i = 0; i < 4; i++) {
    p[2 * i] = to_bf16(even[i]);
    p[2 * i + 1] = to_bf16(odd[i]);
  }
}
INLINE F NAME(round_bf16)(F v) {
  return (F){from_bf16(to_bf16(v[0])), from_bf16(to_bf16(v[1])), from_bf16(to_bf16(v[2])), from_bf16(to_bf16(v[3]))};
}
INLINE void NAME(round_two_bf16)(F *u, F *v) { *u = NAME(round_bf16)(*u), *v = NAME(round_bf16)(*v); }

typedef uint32_t NAME(U) __attribute__((vector_size(16)));
typedef uint16_t NAME(H) __attribute__((vector_size(8)));
#define U NAME(U)
INLINE U NAME(either)(U mask, U a, U b) { return (mask & a) | (~mask & b); }

/* float16 by arithmetic of float32, as in half.h but without a branch: the hardware rounds, and subnormal ones are what
   is left after a half. */
INLINE F NAME(from_f16)(U h) {
  const U size = h << 17, sign = (h & 0x8000) << 16;
  const F normal = (F)((size >> 4) + (0xe0u << 23)) * 0x1p-112f, small = (F)(size >> 17 | 126u << 23) - 0.5f;
  return (F)(NAME(either)((U)(size < 1u << 27), (U)small, (U)normal) | sign);
}
INLINE U NAME(to_f16)(F v) {
  const U size = (U)v << 1, exponent = size & 0xff000000;
  const U least = NAME(either)((U)(exponent < 0x71000000), (U){0} + 0x71000000, exponent);
  const U sum = (U)((F)((least >> 1) + 0x07800000) + (F)((U)v & 0x7fffffff) * 0x1p112f * 0x1p-110f);
  return NAME(either)((U)(size > 0xff000000), (U){0} + 0x7e00, (sum >> 13 & 0x7c00) + (sum & 0xfff)) |
         ((U)v >> 16 & 0x8000);
}
INLINE F NAME(load_four)(const uint16_t *p) {
  NAME(H) h;
  memcpy(&h, p, sizeof h);
  return NAME(from_f16)(__builtin_convertvector(h, U));
}
INLINE void NAME(store_four)(uint16_t *p, F v) {
  const NAME(H) h = __builtin_convertvector(NAME(to_f16)(v), NAME(H));
  memcpy(p, &h, sizeof h);
}
INLINE void NAME(load_f16)(const uint16_t *p, F *low, F *high) {
  *low = NAME(load_four)(p);
  *high = NAME(load_four)(p + 4);
}
INLINE void NAME(store_f16)(uint16_t *p, F low, F high, int nt) {
  (void)nt;
  NAME(store_four)(p, low);
  NAME(store_four)(p + 4, high);
}
INLINE F NAME(round_f16)(F v) { return NAME(from_f16)(NAME(to_f16)(v)); }
#undef U
INLINE void NAME(load_eight)(const uint16_t *p, F *v, int dtype) {
  if (dtype == BF16)
    for (int i = 0; i < 8; i += 4)
      v[i / 4] = (F){from_bf16(p[i]), from_bf16(p[i + 1]), from_bf16(p[i + 2]), from_bf16(p[i + 3])};
  else
    NAME(load_f16)(p, v, v + 1);
}
INLINE void NAME(store_eight)(uint16_t *p, const F *v, int dtype) {
  if (dtype == BF16)
    for (int i = 0; i < 8; i++) p[i] = to_bf16(v[i / 4][i % 4]);
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
