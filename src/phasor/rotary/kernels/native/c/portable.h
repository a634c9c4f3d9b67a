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
  *even = *odd = (F){0};
  for (int i = 0; i < 4; i++) {
    (*even)[i] = from_bf16(p[2 * i]);
    (*odd)[i] = from_bf16(p[2 * i + 1]);
  }
}
INLINE void NAME(store_bf16)(uint16_t *p, F even, F odd, int nt) {
  (void)nt;
  for (int i = 0; i < 4; i++) {
    p[2 * i] = to_bf16(even[i]);
    p[2 * i + 1] = to_bf16(odd[i]);
  }
}
INLINE void NAME(load_bf16_in_order)(const uint16_t *p, F *low, F *high) {
  *low = (F){from_bf16(p[0]), from_bf16(p[1]), from_bf16(p[2]), from_bf16(p[3])};
  *high = (F){from_bf16(p[4]), from_bf16(p[5]), from_bf16(p[6]), from_bf16(p[7])};
}
INLINE void NAME(store_bf16_in_order)(uint16_t *p, F low, F high) {
  for (int i = 0; i < 4; i++) {
    p[i] = to_bf16(low[i]);
    p[4 + i] = to_bf16(high[i]);
  }
}
INLINE F NAME(round_bf16)(F v) {
  return (F){from_bf16(to_bf16(v[0])), from_bf16(to_bf16(v[1])), from_bf16(to_bf16(v[2])), from_bf16(to_bf16(v[3]))};
}

INLINE void NAME(load_f16)(const uint16_t *p, F *low, F *high) {
  *low = (F){from_f16(p[0]), from_f16(p[1]), from_f16(p[2]), from_f16(p[3])};
  *high = (F){from_f16(p[4]), from_f16(p[5]), from_f16(p[6]), from_f16(p[7])};
}
INLINE void NAME(store_f16)(uint16_t *p, F low, F high, int nt) {
  (void)nt;
  for (int i = 0; i < 4; i++) {
    p[i] = to_f16(low[i]);
    p[4 + i] = to_f16(high[i]);
  }
}
INLINE F NAME(round_f16)(F v) {
  return (F){from_f16(to_f16(v[0])), from_f16(to_f16(v[1])), from_f16(to_f16(v[2])), from_f16(to_f16(v[3]))};
}
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
