/* What the kernel of every set of instructions begins with: constants, given tables, plain copies. */
#pragma once
#include <string.h>

#include "half.h"
#include "sizes.h"

#define INLINE static inline __attribute__((always_inline))
#define NOINLINE __attribute__((noinline))

enum { PLAIN, APART, TWICE };                          /* the orders in which cos and sin are staged */
enum { HALVES, NEIGHBOURS, TO_HALVES, TO_NEIGHBOURS }; /* the forms of a row; the last two are read in the other */
enum { AHEAD = 2048 };                                 /* bytes by which rows are fetched before they are read */

/* 2 pi / 2**64, and the polynomials of phasor.phase */
#define RADIANS 3.4061215800304e-19f
#define SIN_3 -1.6666654611e-1f
#define SIN_5 8.3321608736e-3f
#define SIN_7 -1.9515295891e-4f
#define COS_4 4.166664568298827e-2f
#define COS_6 -1.388731625493765e-3f
#define COS_8 2.443315711809948e-5f

/* A signed integer of at most 2**61 to the nearest float. AVX2 has no instruction that does so for many at once. There
   it goes by way of a double, which has room for all but eight bits: the lowest bit that it takes tells whether there
   was more, so that rounding twice is rounding once. The double is put together from two halves, with the exponents of
   2**52 and 2**84 above them. */
static inline float float_of_rest(uint64_t rest) {
#if !defined(__AVX2__) || defined(__AVX512DQ__)
  return (float)(int64_t)rest;
#else
  const uint64_t odd = (rest | (((rest & 255) + 255) & 256)) & ~255ull;
  const uint64_t all = rest + (1ull << 53) < 1ull << 54 ? rest : odd;
  const uint64_t low = (all & 0xffffffff) | 0x4330000000000000, high = all >> 32 ^ 0x4530000080000000;
  double least, most;
  memcpy(&least, &low, 8); /* 2**52 + low half */
  memcpy(&most, &high, 8); /* 2**84 + 2**63 + upper half */
  return (float)(most - (0x1p84 + 0x1p63 + 0x1p52) + least);
#endif
}

/* a if the last bit is set, else b, without a branch that would keep a loop from becoming vectors. */
static inline float either(uint32_t last, float a, float b) {
  return float_of(bits_of(b) ^ ((bits_of(a) ^ bits_of(b)) & (0 - (last & 1))));
}

/* One token of given tables, widened. A NaN loses its payload: rounding to bfloat16 could carry it over to zero. */
static void from_tables(float *restrict cosine, float *restrict sine, const Tables *of, int64_t pairs, int64_t batch,
                        int64_t head, int64_t token) {
  const int64_t start = batch * of->batch + head * of->head + token * of->token;
  for (int part = 0; part < 2; part++) {
    float *restrict to = part ? sine : cosine;
    const char *from = part ? of->sin : of->cos;
    if (of->dtype == F32 && of->pair == 1) {
      const float *restrict whole = (const float *)from + start;
      for (int64_t j = 0; j < pairs; j++) to[j] = whole[j] == whole[j] ? whole[j] : float_of(0x7fc00000);
    } else
      for (int64_t j = 0; j < pairs; j++) {
        const int64_t at = start + j * of->pair;
        const float v = of->dtype == F32    ? ((const float *)from)[at]
                        : of->dtype == BF16 ? from_bf16(((const uint16_t *)from)[at])
                                            : from_f16(((const uint16_t *)from)[at]);
        to[j] = v == v ? v : float_of(0x7fc00000);
      }
  }
}

static void copy_channels(char *y, int64_t y_step, const char *x, int64_t x_step, int64_t count, int64_t size) {
  for (int64_t i = 0; i < count; i++) memcpy(y + i * y_step * size, x + i * x_step * size, size == 4 ? 4 : 2);
}

/* The heads of some tokens that do not rotate. */
static void copy_heads(const Job *job, const Tensor *of, const int64_t *entry, int64_t start, int64_t tokens) {
  const int64_t size = job->dtype == F32 ? 4 : 2;
  if (of->in == of->out) return;
  for (int64_t i = start; i < start + tokens; i++)
    for (int64_t h = of->heads; h < of->heads + of->passing; h++) {
      int64_t x = i * of->in_token + h * of->in_head, y = i * of->out_token + h * of->out_head;
      for (int n = 0; n < job->lead; n++) {
        x += entry[n] * of->in_lead[n];
        y += entry[n] * of->out_lead[n];
      }
      if (of->in_channel == 1 && of->out_channel == 1)
        memcpy(of->out + size * y, of->in + size * x, (size_t)(size * job->width));
      else
        copy_channels(of->out + size * y, of->out_channel, of->in + size * x, of->in_channel, job->width, size);
    }
}
