/* Half precision and float8 (e4m3fn) one value at a time, rounded to nearest even. */
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
  return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16); /* half, less one bit if the last that stays is even */
}

static inline float from_f16(uint16_t h) {
  const uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = h >> 10 & 31, fraction = h & 1023;
  if (exponent == 31) return float_of(sign | 0x7f800000 | fraction << 13);
  if (exponent) return float_of(sign | (exponent + 112) << 23 | fraction << 13); /* 112: 127 - 15, of both biases */
  return float_of(sign | bits_of((float)fraction * 0x1p-24f)); /* subnormal: its unit is 2**-24 */
}
static inline uint16_t to_f16(float f) {
  const uint32_t u = bits_of(f), sign = u >> 16 & 0x8000, size = u & 0x7fffffff;
  if (size > 0x7f800000) return (uint16_t)(sign | 0x7e00); /* NaN */
  if (size >= 0x477ff000) return (uint16_t)(sign | 0x7c00); /* halfway beyond the largest one, and more */
  if (size < 0x38800000) return (uint16_t)(sign | (bits_of(float_of(size) + 0.5f) - bits_of(0.5f))); /* subnormal */
  /* The bias is taken down by 112, and 13 bits are dropped: half of the last that stays is added, less one bit where
     that one is even, so a tie goes to the even neighbour. */
  return (uint16_t)(sign | (size - 0x38000000 + 0xfff + (size >> 13 & 1)) >> 13);
}

/* What is beyond the largest number, 448, becomes that. Below 2**-6 the numbers are 2**-9 apart, as floats above 2**14
   are. */
static inline uint8_t to_float8(float f) {
  const uint32_t u = bits_of(f), size = u & 0x7fffffff, below = size < 0x43e00000 ? size : 0x43e00000;
  const uint32_t normal = ((below + 0x7ffff + (below >> 20 & 1)) >> 20) - (120 << 3),
                 small = bits_of(float_of(below) + 16384.0f) - 0x46800000;
  const uint32_t code = size > 0x7f800000 ? 0x7f : below < 0x3c800000 ? small : normal;
  return (uint8_t)(code | (u >> 24 & 0x80));
}
