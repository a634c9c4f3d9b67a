/* What the kernel of every set of instructions begins with: constants, places of rows, plain copies. */
#pragma once
#include <string.h>

#include "half.h"
#include "sizes.h"

#define INLINE static inline __attribute__((always_inline))
#define NOINLINE __attribute__((noinline))

enum { PLAIN, APART, TWICE };                          /* the orders in which cos and sin are staged */
enum { READ_PAIRS = 1, WRITE_PAIRS = 2 };              /* how pairs lie in a row: one beside the other, or in halves */
enum { HALVES, TO_HALVES, TO_NEIGHBOURS, NEIGHBOURS };
enum { ABREAST = 4 };  /* rows that rotate side by side: cos and sin are read once; no cache has fewer ways */
enum { LONG = 128, FAR = 2 << 20 }; /* bytes of half a row, and of all rows, from which the walk is another */
enum { NEAR = 2048 };  /* bytes to the next row, at most, for which both are one stretch */
enum { AT_ONCE = 16 }; /* rows that are rotated part by part, in the first cache */
enum { KEPT = 16 * MAX_PAIRS };                         /* bytes of rows that are read before they are written */
enum { AHEAD = 2048 };                                 /* bytes by which streamed rows are fetched early */

typedef struct { /* some rows, each with its own cos and sin if `next_table` is not 0 */
  char *y;
  const char *x;
  const float *c, *s;
  int64_t count, next_y, next_x, next_table;
} Rows;
typedef struct { /* rows of several tokens, by the steps from one token to the next */
  char *y;
  const char *x;
  const float *table;
  int64_t rows, next_y, next_x, next_table, tokens, token_y, token_x, token_table;
} Walk; /* handed on by its address: a copy is read wider than it was written, and waits for all that is on its way */
/* Those of a token, whose sines follow its cosines. */
INLINE Rows rows_of(const Walk *of, int64_t token, int64_t sines) {
  const float *table = of->table + token * of->token_table;
  return (Rows){of->y + token * of->token_y, of->x + token * of->token_x, table, table + sines, of->rows,
                of->next_y, of->next_x, of->next_table};
}
/* Without the first ones; and from a channel on, by bytes and by angles. */
INLINE Rows after(Rows of, int64_t rows) {
  return (Rows){of.y + rows * of.next_y, of.x + rows * of.next_x, of.c + rows * of.next_table,
                of.s + rows * of.next_table, of.count - rows, of.next_y, of.next_x, of.next_table};
}
INLINE Rows beside(Rows of, int64_t y, int64_t x, int64_t angles) {
  return (Rows){of.y + y, of.x + x, of.c + angles, of.s + angles, of.count, of.next_y, of.next_x, of.next_table};
}
/* Whether a row is vectors alone, and the few heads of one token are worth a walk: where heads leave the second cache,
   and in it where rows are long and no pair moves. */
INLINE int is_whole(const Job *job) {
  const int64_t vector = dtype_of_rows(job) == F32 ? LANES / 2 : LANES, size = job->dtype == F32 ? 4 : 2;
  const int far = job->batch * job->tokens * job->of[0].heads * job->width * size > FAR;
  return 2 * job->pairs == job->width && job->blocks == 1 && job->pairs % vector == 0 &&
         (far ? !job->permuted || job->pairs > LANES : !job->permuted && job->pairs * size >= LONG);
}
INLINE int moves(int form) { return form == TO_HALVES || form == TO_NEIGHBOURS; }
enum { QUICK_BF16 = F16 + 1 }; /* bfloat16 by the machine's own instructions (quick.h), and without them */
INLINE int is_bf16(int dtype) { return dtype == BF16 || dtype == QUICK_BF16; }
INLINE int plain(int dtype) { return dtype == QUICK_BF16 ? BF16 : dtype; }
/* Whether cos and sin are staged twice, for each member of a pair. */
INLINE int are_doubled(int form, int dtype) { return form == NEIGHBOURS && !is_bf16(dtype); }
typedef struct { /* what vectors hold of some rows: of every one the same few pairs; the rows are `next` bytes apart */
  const char *at;
  char *to;
  int each;
  int64_t next;
} Part;

/* 2 pi / 2**64, and the polynomials of phasor.phase */
#define RADIANS 3.4061215800304e-19f
#define SIN_3 -1.6666654611e-1f
#define SIN_5 8.3321608736e-3f
#define SIN_7 -1.9515295891e-4f
#define COS_4 4.166664568298827e-2f
#define COS_6 -1.388731625493765e-3f
#define COS_8 2.443315711809948e-5f

static inline float scale_of(const Scale *scale, int64_t head) {
  return scale->each ? scale->each[head * scale->step] : scale->one;
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

/* Where one token stands on an axis, as phases are counted: modulo 2**64. */
static inline uint64_t position_of(const Phases *of, int axis, int64_t batch, int64_t token) {
  const char *p = of->at + of->bytes * (axis * of->axis + batch * of->batch + token * of->token);
  return of->bytes == 8 ? (uint64_t)*(const int64_t *)p : (uint64_t)(int64_t)*(const int32_t *)p;
}

/* Whether a token stands where the one before it does, as in blocks that move alike. */
static inline int as_before(const Phases *of, int64_t batch, int64_t token) {
  for (int a = 0; a < of->axes; a++)
    if (position_of(of, a, batch, token) != position_of(of, a, batch, token - 1)) return 0;
  return 1;
}

/* Whether all of some tokens do. */
static inline int are_alike(const Phases *of, int64_t batch, int64_t first, int64_t tokens) {
  for (int64_t i = 1; i < tokens; i++)
    if (!as_before(of, batch, first + i)) return 0;
  return 1;
}

/* Upper halves of some phases, and four times each as a signed float, one by one. */
static inline void split_each(const uint64_t *phase, float *upper, float *rest, int count) {
  for (int i = 0; i < count; i++) {
    const uint32_t bits = (uint32_t)(phase[i] >> 32);
    memcpy(upper + i, &bits, sizeof bits);
    rest[i] = (float)(int64_t)(phase[i] << 2);
  }
}
