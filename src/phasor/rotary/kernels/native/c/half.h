/* Half precision one value at a time, rounded to nearest even. */
#pragma once
#include <stdint.h>
#include <string.h>

static inline uint32_t bits_of(float f) {
  uint32_t u;
  memcpy(&u, &f, 4);
  return u;
}
static inline float float_of(uint32_t u) {
  float f;
  memcpy(&f, &u, 4);
  return f;
}

static inline float from_bf16(uint16_t h) { return float_of((uint32_t)h << 16); }
static inline uint16_t to_bf16(float f) {
  const uint32_t u = bits_of(f);
  return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

static inline float from_f16(uint16_t h) {
  const uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = h >> 10 & 31, fraction = h & 1023;
  if (exponent == 31) return float_of(sign | 0x7f800000 | fraction << 13);
  if (exponent) return float_of(sign | (exponent + 112) << 23 | fraction << 13);
  return float_of(sign | bits_of((float)fraction * 0x1p-24f));
}
static inline uint16_t to_f16(float f) {
  const uint32_t u = bits_of(f), sign = u >> 16 & 0x8000, size = u & 0x7fffffff;
  if (size > 0x7f800000) return (uint16_t)(sign | 0x7e00);
  if (size >= 0x477ff000) return (uint16_t)(sign | 0x7c00); /* halfway beyond the largest one, and more */
  if (size < 0x38800000) return (uint16_t)(sign | (bits_of(float_of(size) + 0.5f) - bits_of(0.5f))); /* subnormal */
  return (uint16_t)(sign | (size - 0x38000000 + 0xfff + (size >> 13 & 1)) >> 13);
}
