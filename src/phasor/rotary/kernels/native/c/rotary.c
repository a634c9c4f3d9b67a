/* The kernel for every set of instructions of this machine's family, and the choice among them at run time. */
#include "job.h"

#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#include "half.h"

#define INLINE static inline __attribute__((always_inline))
#define NOINLINE __attribute__((noinline))

enum { PLAIN, APART, TWICE };                       /* the orders in which cos and sin are staged */
enum { HALVES, NEIGHBOURS, TO_HALVES, TO_NEIGHBOURS }; /* the forms of a row; the last two are read in the other */
enum { AHEAD = 2048 };        /* bytes by which rows are fetched before they are read */

/* 2 pi / 2**64, and the polynomials of phasor.phase */
#define RADIANS 3.4061215800304e-19f
#define SIN_3 -1.6666654611e-1f
#define SIN_5 8.3321608736e-3f
#define SIN_7 -1.9515295891e-4f
#define COS_4 4.166664568298827e-2f
#define COS_6 -1.388731625493765e-3f
#define COS_8 2.443315711809948e-5f

/* The length of a staged table: whole registers, whichever are used. */
static inline int64_t staged_of(int64_t pairs, int twice) {
  return ((twice ? 2 * pairs : pairs) + LANES - 1) / LANES * LANES;
}
static inline int dtype_of_rows(const Job *job) { return job->wide ? F32 : job->dtype; }
static inline int are_twice(const Job *job) {
  return job->interleaved && !job->permuted && dtype_of_rows(job) != BF16;
}
static inline int64_t token_floats(const Job *job) {
  return 2 * job->blocks * staged_of(job->pairs / job->blocks, are_twice(job));
}
static inline int64_t tile_tokens(const Job *job) {
  const int64_t fit = TILE_FLOATS / token_floats(job);
  return fit > TILE_TOKENS ? TILE_TOKENS : fit;
}
int fits(const Job *job) { return job->pairs <= MAX_PAIRS && token_floats(job) <= TILE_FLOATS; }
int64_t tiles_of(const Job *job) {
  const int64_t tokens = tile_tokens(job);
  return job->batch * ((job->tokens + tokens - 1) / tokens);
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

#define NAME(x) x##_portable
#include "portable.h"
#include "rows.h"

#if defined(__x86_64__)
#pragma GCC push_options
#pragma GCC target("avx2,f16c")
#define NAME(x) x##_avx2
#include "avx2.h"
#include "rows.h"
#pragma GCC pop_options
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx2,f16c")
#define NAME(x) x##_of_eight
#include "avx2.h"
#include "pairs.h"
#include "eights.h"
#undef F
#undef NAME
#define NAME(x) x##_avx512
#define TAIL(x) x##_of_eight
#include "avx512.h"
#include "rows.h"
#pragma GCC pop_options
#elif defined(__aarch64__)
#define NAME(x) x##_neon
#include "neon.h"
#include "rows.h"
#endif

typedef void (*Rotate)(const Job *, int64_t, int64_t);
static Rotate chosen;
static const char *name_of_chosen = "";

static int take(const char *name, Rotate rotate, int here, const char *wanted) {
  if (!here || (wanted && strcmp(wanted, name))) return 0;
  chosen = rotate;
  name_of_chosen = name;
  return 1;
}

int choose_instructions(const char *wanted) {
#if defined(__x86_64__)
  __builtin_cpu_init();
  const int avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                     __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  const int avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c");
  if (take("avx512", rotate_avx512, avx512, wanted) || take("avx2", rotate_avx2, avx2, wanted)) return 1;
#elif defined(__aarch64__)
  if (take("neon", rotate_neon, 1, wanted)) return 1;
#endif
  return take("portable", rotate_portable, 1, wanted);
}

const char *instructions(void) { return name_of_chosen; }
void rotate_tiles(const Job *job, int64_t first, int64_t last) { chosen(job, first, last); }
void rotate_pieces(const Job *job, int64_t first, int64_t last) {
  const int64_t tiles = tiles_of(job);
  for (int64_t piece = first; piece < last; piece++) {
    Job part = *job;
    for (int m = 0; m < job->count; m++)
      if (job->norm.sums[m]) part.norm.sums[m] += piece * job->width * (job->norm.across ? job->of[m].heads : 1);
    chosen(&part, tiles * piece / PIECES, tiles * (piece + 1) / PIECES);
  }
}
