/* Every set of instructions of this machine against the portable one, bit by bit, over random jobs.

       compare SEED JOBS

   prints the sets compared and a checksum of what `portable` wrote, which is the same on every machine. It has
   nothing of Python, and so runs wherever a C compiler reaches; tests/native/test_compilers.py builds and runs it. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "job.h"

static uint64_t state;
static uint64_t any(void) { /* splitmix64 */
  uint64_t z = state += 0x9e3779b97f4a7c15;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
  z = (z ^ z >> 27) * 0x94d049bb133111eb;
  return z ^ z >> 31;
}
static int64_t below(int64_t n) { return (int64_t)(any() % (uint64_t)n); }
static int64_t from_to(int64_t low, int64_t high) { return low + below(high - low + 1); }

static int64_t size_of(int dtype) { return dtype == F32 ? 4 : 2; }

/* `count` finite numbers of any sign: most of moderate size, some zero or subnormal, some near the largest one. */
static void *numbers(int64_t count, int dtype) {
  static const struct { int fraction, zero, near, far; } of[] = {{23, 127, 6, 60}, {7, 127, 6, 60}, {10, 15, 3, 14}};
  char *to = aligned_alloc(64, (size_t)(count * size_of(dtype) + 63) / 64 * 64);
  for (int64_t i = 0; i < count; i++) {
    const int64_t kind = below(64), spread = kind ? of[dtype].near : of[dtype].far;
    const uint32_t exponent = kind == 1 ? 0 : (uint32_t)(of[dtype].zero + from_to(-spread, spread));
    const uint32_t sign = (uint32_t)below(2) << (dtype == F32 ? 31 : 15), fraction = (uint32_t)below(1 << of[dtype].fraction);
    const uint32_t bits = sign | exponent << of[dtype].fraction | fraction;
    const uint16_t half = (uint16_t)bits;
    if (dtype == F32) memcpy(to + 4 * i, &bits, 4);
    else memcpy(to + 2 * i, &half, 2);
  }
  return to;
}

/* Cosines and sines of no model, but of their size: some zero, and where all are so, a set may round in a quicker way. */
static void tame(char *x, int64_t count, int dtype) {
  for (int64_t i = 0; i < count; i++, x += size_of(dtype)) {
    const uint32_t one = dtype == F16 ? 0x3c00 : 0x3f80, sign = (uint32_t)below(2) << 15;
    uint32_t bits = below(8) ? one - (uint32_t)below(0x400) : below(2) ? one : 0;
    bits = dtype == F32 && bits && bits != one ? (bits | sign) << 16 | (uint32_t)below(1 << 16) : dtype == F32 ? (bits | sign) << 16 : bits | sign;
    memcpy(x, &bits, (size_t)size_of(dtype));
  }
}

/* What is not a number has no agreed bits: one stands for all. */
static void settle(char *x, int64_t count, int dtype) {
  const uint32_t infinity = dtype == F32 ? 0x7f800000 : dtype == BF16 ? 0x7f80 : 0x7c00, sign = dtype == F32 ? 0x80000000 : 0x8000;
  for (int64_t i = 0; i < count; i++, x += size_of(dtype)) {
    uint32_t bits = 0;
    uint16_t half;
    if (dtype == F32) memcpy(&bits, x, 4);
    else { memcpy(&half, x, 2); bits = half; }
    if ((bits & ~sign) > infinity) memset(x, 0xff, (size_t)size_of(dtype));
  }
}

/* Strides of axes that lie in a random order, the last one innermost if `rows`, with gaps of multiples of `gap`; the
   extent of it all. */
static int64_t lie(int64_t *strides, const int64_t *sizes, int axes, int rows, int64_t gap) {
  int order[MAX_LEAD + 3];
  for (int i = 0; i < axes; i++) order[i] = i;
  for (int i = rows ? axes - 2 : axes - 1; i > 0; i--) {
    const int j = (int)below(i + 1), kept = order[i];
    order[i] = order[j];
    order[j] = kept;
  }
  int64_t extent = 1;
  for (int i = axes - 1; i >= 0; i--) {
    strides[order[i]] = i == axes - 1 && below(4) == 0 && !rows ? 2 : extent;
    extent = strides[order[i]] * sizes[order[i]];
    extent = (extent + gap - 1) / gap * gap + gap * below(3) * (below(3) == 0);
  }
  return extent;
}

/* Half way between two floats, or one off: where an integer that is rounded twice may end elsewhere. */
static int64_t halfway(void) {
  const int64_t odd = (1ll << 24) + 2 * below(1ll << 23) + 1; /* 25 bits: a float has 24, a double 53 */
  return (odd << from_to(20, 35)) + from_to(-1, 1);
}

static const char *const names[] = {"avx512_bf16", "avx512", "avx2", "neon"};
enum { SETS = sizeof names / sizeof *names };
static uint64_t checksum = 0xcbf29ce484222325;

/* One job for every set. `out` is what lies in the memory of the outputs beforehand. */
static void compare(Job *job, char *out[2], const int64_t *extents) {
  char *expected[2] = {NULL, NULL};
  const int64_t size = size_of(job->dtype), tiles = tiles_of(job);
  for (int set = -1; set < SETS; set++) {
    if (!choose_instructions(set < 0 ? "portable" : names[set])) continue;
    char *got[2];
    for (int m = 0; m < job->count; m++) {
      const size_t bytes = (size_t)(extents[m] * size + 63) / 64 * 64;
      const int here = job->of[m].in == job->of[m].out;
      memcpy(job->of[m].out = got[m] = aligned_alloc(64, bytes), out[m], (size_t)(extents[m] * size));
      if (here) job->of[m].in = got[m];
    }
    for (int64_t end = tiles; end > 0;) { /* in any portions, as threads have them */
      const int64_t first = below(end);
      rotate_tiles(job, first, end);
      end = first;
    }
    for (int m = 0; m < job->count; m++) {
      settle(got[m], extents[m], job->dtype);
      if (set < 0) {
        expected[m] = got[m];
        for (int64_t i = 0; i < extents[m] * size; i++) checksum = (checksum ^ (unsigned char)got[m][i]) * 0x100000001b3;
      } else {
        for (int64_t i = 0; i < extents[m] * size; i++) if (got[m][i] != expected[m][i]) {
          printf("%s differs at element %" PRId64 " of tensor %d: dtype %d tables %d phases %d rounded %d streamed %d through %d"
                 " pairs %" PRId64 " of %" PRId64 " from %" PRId64 " in %" PRId64 " blocks, interleaved %d permuted %d\n",
                 names[set], i / size, m, job->dtype, job->tables.dtype, job->phases.axes, job->rounded, job->streamed, job->through,
                 job->pairs, job->width, job->first, job->blocks, job->interleaved, job->permuted);
          exit(1);
        }
        free(got[m]);
      }
    }
  }
  for (int m = 0; m < job->count; m++) free(expected[m]);
}

static void random_job(void) {
  Job job = {.dtype = (int)below(3), .count = (int)from_to(1, 2), .lead = (int)below(MAX_LEAD + 1), .batch = 1};
  const int64_t size = size_of(job.dtype), even = below(3) == 0 ? 64 / size : 1; /* even: rows of whole cache lines */
  job.interleaved = (int)below(2);
  job.blocks = job.interleaved || below(2) ? 1 : from_to(2, 5);
  job.pairs = job.blocks * (even > 1 ? even * from_to(1, 3) : from_to(1, below(16) ? 40 : 100));
  job.permuted = job.blocks == 1 && below(4) == 0;
  const int64_t passing = even * below(4) * below(2);
  job.width = 2 * job.pairs + passing;
  job.first = below(2) * passing;
  job.tokens = from_to(1, below(4) ? 5 : 50);
  job.tile = SHORT_TILE << job.tokens % 4;
  job.sign = below(2) ? 1 : -1;
  for (int i = 0; i < job.lead; i++) job.batch *= job.sizes[i] = from_to(1, 2);
  const int64_t batch = job.lead ? job.sizes[job.lead - 1] : 1, heads = from_to(1, 5);
  job.per_head = below(4) == 0;

  char *out[2] = {NULL, NULL}, *in[2] = {NULL, NULL};
  int64_t extents[2];
  int whole = even > 1; /* whole lines may be written past the cache */
  for (int m = 0; m < job.count; m++) {
    Tensor *of = &job.of[m];
    const int axes = job.lead + 3, here = below(4) == 0, rows = even > 1 || below(4) != 0;
    of->heads = job.per_head || m == 0 ? heads : from_to(1, 3);
    int64_t sizes[MAX_LEAD + 3], strides[2][MAX_LEAD + 3];
    memcpy(sizes, job.sizes, sizeof job.sizes);
    sizes[job.lead] = of->heads;
    sizes[job.lead + 1] = job.tokens;
    sizes[job.lead + 2] = job.width;
    const int64_t extent = lie(strides[0], sizes, axes, rows, even);
    extents[m] = lie(strides[1], sizes, axes, rows, even);
    if (here) { memcpy(strides[1], strides[0], sizeof strides[0]); extents[m] = extent; }
    for (int i = 0; i < job.lead; i++) { of->in_lead[i] = strides[0][i]; of->out_lead[i] = strides[1][i]; }
    of->in_head = strides[0][job.lead], of->out_head = strides[1][job.lead];
    of->in_token = strides[0][job.lead + 1], of->out_token = strides[1][job.lead + 1];
    of->in_channel = strides[0][job.lead + 2], of->out_channel = strides[1][job.lead + 2];
    job.through |= of->in_channel != 1 || of->out_channel != 1;
    of->in = in[m] = numbers(extent, job.dtype);
    out[m] = here ? in[m] : numbers(extents[m], job.dtype);
    of->out = here ? in[m] : out[m];
    whole = whole && !here;
  }
  job.streamed = whole && !job.through && !job.permuted;

  void *first = NULL, *second = NULL;
  int64_t steps[4 * MAX_PAIRS], strides[4];
  if (below(2)) {
    const int batched = (int)below(2), dtype = (int)below(3);
    const int64_t sizes[] = {batched ? batch : 1, job.per_head ? heads : 1, job.tokens, job.pairs};
    const int64_t extent = lie(strides, sizes, 4, below(2) == 0, 1);
    first = numbers(extent, dtype);
    second = numbers(extent, dtype);
    if (below(2)) {
      tame(first, extent, dtype);
      tame(second, extent, dtype);
    }
    job.tables = (Tables){first, second, dtype, batched ? strides[0] : 0, job.per_head ? strides[1] : 0, strides[2], strides[3]};
    job.rounded = dtype == job.dtype && dtype != F32 && below(4);
  } else {
    const int axes = (int)from_to(1, 4), batched = (int)below(2);
    const int64_t sizes[] = {axes, batched ? batch : 1, job.tokens};
    const int64_t count = lie(strides, sizes, 3, 0, 1);
    int64_t *at = first = malloc((size_t)(8 * count));
    for (int64_t i = 0; i < count; i++) at[i] = below(4) ? (int64_t)any() : 1;
    for (int i = 0; i < 4 * MAX_PAIRS; i++) {
      const int64_t kind = below(8);
      steps[i] = kind > 1 ? (int64_t)any() : kind ? halfway() : from_to(-2, 2) * (1ll << 61);
    }
    job.per_head = 0;
    job.phases = (Phases){first, below(2) ? 8 : 4, axes, strides[0], batched ? strides[1] : 0, strides[2], steps, below(2) ? 1.0f : 1.3f};
  }
  if (fits(&job)) compare(&job, out, extents);
  for (int m = 0; m < 2; m++) { if (in[m] != out[m]) free(in[m]); free(out[m]); }
  free(first);
  free(second);
}

int main(int count, char **given) {
  if (count != 3) return 2;
  const uint64_t seed = strtoull(given[1], NULL, 10);
  const int64_t jobs = strtoll(given[2], NULL, 10);
  for (int64_t i = 0; i < jobs; i++) {
    state = seed << 32 | (uint64_t)i;
    random_job();
  }
  for (int set = 0; set < SETS; set++) if (choose_instructions(names[set])) printf("%s ", names[set]);
  printf("%016" PRIx64 "\n", checksum);
}
