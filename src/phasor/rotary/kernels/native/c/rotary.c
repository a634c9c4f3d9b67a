/* What a job consists of, and the choice among the sets of instructions at run time. */
#include <string.h>

#include "sets.h"
#include "sizes.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

int fits(const Job *job) { return job->pairs <= MAX_PAIRS && token_floats(job) <= TILE_FLOATS; }
int64_t tiles_of(const Job *job) {
  const int64_t tokens = tile_tokens(job);
  return job->batch * ((job->tokens + tokens - 1) / tokens);
}

static Rotate chosen;
static const char *name_of_chosen = "";

#if defined(__x86_64__)
/* Which of avx2, avx512 and avx512_bf16 this machine and its system have. */
static int has_avx2(void) {
  unsigned a, b, c, d; /* older compilers do not know f16c by name */
  return __builtin_cpu_supports("avx2") && __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}
static int has_avx512(void) {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
static int has_avx512_bf16(void) {
  unsigned a, b, c, d;
  return has_avx512() && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & 1 << 5);
}
#else
static int has_avx2(void) { return 0; }
static int has_avx512(void) { return 0; }
static int has_avx512_bf16(void) { return 0; }
#endif

static int take(const char *name, Rotate rotate, int here, const char *wanted) {
  if (!rotate || !here || (wanted && strcmp(wanted, name))) return 0;
  chosen = rotate;
  name_of_chosen = name;
  return 1;
}

int choose_instructions(const char *wanted) {
  return take("avx512_bf16", set_avx512_bf16, has_avx512_bf16(), wanted) ||
         take("avx512", set_avx512, has_avx512(), wanted) || take("avx2", set_avx2, has_avx2(), wanted) ||
         take("neon", set_neon, 1, wanted) || take("portable", set_portable, 1, wanted);
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
