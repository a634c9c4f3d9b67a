/* The kernel, compiled once for each set of instructions: NAME(x) names its functions, F is a vector of W floats.

   Products and sums are rounded one by one, never fused: the bits are those of the plain expression. */

#include "pairs.h"
#ifdef TAIL /* a narrower set for what fills no vectors of this one */
#include "wide.h"
#else
#include "eights.h"
#define TAIL NAME
#endif
#include "phases.h"

typedef F NAME(Bytes) __attribute__((aligned(1), may_alias)); /* a vector of whatever lies anywhere */

/* The same bytes of some rows: whole vectors of every row, then what is left of it in smaller pieces. */
INLINE void NAME(copy)(char *y, int64_t next_y, const char *x, int64_t next_x, int64_t bytes, int64_t rows) {
  const int64_t vector = sizeof(NAME(Bytes));
  int64_t z = 0;
  for (; z + vector <= bytes; z += vector)
    for (int64_t i = 0; i < rows; i++)
      *(NAME(Bytes) *)(y + i * next_y + z) = *(const NAME(Bytes) *)(x + i * next_x + z);
#define PIECES_OF(size)                                                                                                \
  for (; z + size <= bytes; z += size)                                                                                 \
    for (int64_t i = 0; i < rows; i++) memcpy(y + i * next_y + z, x + i * next_x + z, size);
  PIECES_OF(32) PIECES_OF(16) PIECES_OF(8) PIECES_OF(2)
#undef PIECES_OF
}

/* Fewer than eight pairs, through buffers that hold eight. */
static NOINLINE void NAME(few)(Rows of, int64_t half, int64_t pairs, int dtype, int form, int rounded) {
  char x[2][64] __attribute__((aligned(64))) = {{0}}, y[2][64] __attribute__((aligned(64)));
  const int64_t bytes = pairs * (dtype == F32 ? 4 : 2);
  NAME(copy)(x[0], 0, of.x, 0, form & READ_PAIRS ? 2 * bytes : bytes, 1);
  if (!(form & READ_PAIRS)) NAME(copy)(x[1], 0, of.x + half, 0, bytes, 1);
  TAIL(members)((Rows){.y = y[0], .x = x[0], .c = of.c, .s = of.s}, sizeof *x, 8, plain(dtype), form, rounded);
  NAME(copy)(of.y, 0, y[0], 0, form & WRITE_PAIRS ? 2 * bytes : bytes, 1);
  if (!(form & WRITE_PAIRS)) NAME(copy)(of.y + half, 0, y[1], 0, bytes, 1);
}

/* In each of the rows: what stays the same stays in registers, and no row waits for the end of another. */
#define EACH(row, rows) for (Rows row = rows; row.count > 0; row = after(row, 1))

/* Whole vectors of all rows of some tokens, of a few abreast where they do not lie one behind the other. */
INLINE void NAME(stretch)(const Walk *of, int64_t sines, int64_t end, int64_t half, int dtype, int form, int nt,
                          int rounded) {
  const int apart = dtype == F32 && !of->next_table && of->next_y > NEAR;
  const int64_t once = NAME(READ) * NAME(W) * (form == HALVES ? 1 : 2); /* channels of what is read at once */
  for (int64_t t = 0; t < of->tokens; t++) {
    Rows rows = rows_of(of, t, sines);
    for (; apart && rows.count >= ABREAST; rows = after(rows, ABREAST))
      NAME(whole)(rows, ABREAST, end, half, dtype, form, nt, rounded);
#define WHOLE(at_once, end)                                                                                            \
  for (; rows.count >= at_once; rows = after(rows, at_once))                                                           \
    NAME(whole)(rows, at_once, end, half, dtype, form, nt, rounded);
    if (dtype != F32 && end == once) /* loops of known length: in place a sixth faster on a Zen 4 */
      WHOLE(1, once)
    else if (NAME(READ) == 4 && dtype != F32 && 2 * end == once) {
      WHOLE(2, once / 2)
      WHOLE(1, once / 2)
    } else
      WHOLE(1, end)
#undef WHOLE
  }
}

/* `each` pairs of every row, of as many rows at once as fill vectors; all of them, or as many as that divides. */
INLINE void NAME(together)(Rows rows, int64_t half, int each, int dtype, int form, int rounded) {
  const int at_once = NAME(vectors)(dtype) * NAME(W) / each;
  for (; rows.count > 0; rows = after(rows, at_once))
    if (!NAME(members)(rows, half, each, dtype, form, rounded))
      NAME(members)(rows, half, each, plain(dtype), form, rounded);
}

/* The channels of rows that rotate, from pair j on: pairs that move, and what fills no vectors, part by part. */
INLINE void NAME(parts)(Rows rows, int64_t j, int64_t per, int here, int dtype, int form, int rounded) {
  const int64_t size = dtype == F32 ? 4 : 2, half = per * size, wide = NAME(vectors)(dtype) * NAME(W);
  const int64_t read = form & READ_PAIRS ? 2 * size : size, written = form & WRITE_PAIRS ? 2 * size : size;
#define FROM(rows, j) beside(rows, (j) * written, (j) * read, are_doubled(form, dtype) ? 2 * (j) : j)
  char kept[KEPT] __attribute__((aligned(64))); /* what is not yet read when the first pairs are written over it */
  const int64_t first = moves(form) && per >= wide ? wide * read : 0;
  Rows later = rows;
  if (here && moves(form) && per != wide && per != 8) { /* else vectors hold all of it in between */
    later.x = kept;
    later.next_x = (2 * half + 63) / 64 * 64;
    NAME(copy)(kept + first, later.next_x, rows.x + first, rows.next_x, 2 * half - first, rows.count);
  }
  for (; moves(form) && j + wide <= per; j += wide)
    NAME(together)(FROM(j ? later : rows, j), half, (int)wide, dtype, form, rounded);
  rows = later;
  Rows some = rows; /* what fills no vectors, of several rows at once */
  some.count = rows.count / (wide / 8) * (wide / 8);
  int64_t i = j;
  for (; wide == 32 && i + 16 <= per; i += 16) NAME(together)(FROM(some, i), half, 16, dtype, form, rounded);
  for (; i + 8 <= per; i += 8) NAME(together)(FROM(some, i), half, 8, dtype, form, rounded);
  for (; j + 8 <= per; j += 8)
    EACH(row, FROM(after(rows, some.count), j)) TAIL(members)(row, half, 8, plain(dtype), form, rounded);
  if (j < per) EACH(row, FROM(rows, j)) NAME(few)(row, half, per - j, dtype, form, rounded);
}
#undef FROM
#undef EACH

INLINE F NAME(all)(float value) {
  float same[NAME(W)];
  for (int i = 0; i < NAME(W); i++) same[i] = value;
  return NAME(load)(same);
}

/* cos and sin of one token in the order of the rows: apart for bfloat16 halves (even and odd ones of each two vectors),
   twice for interleaved float32 and float16. */
static NOINLINE void NAME(stage)(float *restrict c, float *restrict s, const float *restrict cosine,
                                 const float *restrict sine, int64_t pairs, int64_t blocks, float sign, int order) {
  enum { W = NAME(W) };
  if (order == TWICE) {
    for (int64_t j = 0; j < pairs; j++) {
      c[2 * j] = c[2 * j + 1] = cosine[j];
      s[2 * j] = -sign * sine[j];
      s[2 * j + 1] = sign * sine[j];
    }
    for (int64_t j = 2 * pairs; j < staged_of(pairs, 1); j++) c[j] = s[j] = 0;
    return;
  }
  const int64_t per = blocks == 1 ? pairs : pairs / blocks, staged = staged_of(per, 0);
  for (int64_t k = 0; k < blocks; k++, c += staged, s += staged, cosine += per, sine += per) {
    int64_t j = 0;
    for (; order == APART && j + 2 * W <= per; j += 2 * W) { /* what fills no two vectors lies in its order */
      F even, odd;
      NAME(unzip)(NAME(load)(cosine + j), NAME(load)(cosine + j + W), &even, &odd);
      NAME(store)(c + j, even, 0);
      NAME(store)(c + j + W, odd, 0);
      NAME(unzip)(NAME(load)(sine + j), NAME(load)(sine + j + W), &even, &odd);
      NAME(store)(s + j, even * NAME(all)(sign), 0);
      NAME(store)(s + j + W, odd * NAME(all)(sign), 0);
    }
    for (; j < per; j++) {
      c[j] = cosine[j];
      s[j] = sign * sine[j];
    }
    for (; j < staged; j++) c[j] = s[j] = 0;
  }
}

/* dtype, order of pairs, stores and rounding are constants inside: thirty loops from one text. Those of whole vectors
   are functions of their own, in which the compiler has registers enough. */
typedef void (*NAME(Whole))(const Walk *of, int64_t sines, int64_t end, int64_t half);
INLINE void NAME(run)(const Job *job, const Walk *of, NAME(Whole) stretch, int dtype, int form, int rounded) {
  const int64_t size = dtype == F32 ? 4 : 2, sines = token_floats(job) / 2; /* dtype: that of the rows */
  const int64_t blocks = job->blocks, per = pairs_of_block(job); /* read once: to a compiler y may be anywhere */
  const int64_t before = job->first * size, block = 2 * per * size, end = before + blocks * block,
                passing = job->width * size - end, staged = staged_of(per, 0);
  const int here = of->x == of->y;
  /* tables are padded for eights at multiples of eight */
  const int64_t vector = (dtype == F32 ? 1 : 2) * NAME(W) / (form == HALVES ? 1 : 2), unit = vector > 8 ? vector : 8,
                whole = moves(form) ? 0 : per / unit * unit, channels = form == HALVES ? whole : 2 * whole,
                kept = moves(form) && here ? KEPT / (block + 63) : AT_ONCE, most = kept < AT_ONCE ? kept : AT_ONCE;
  if (whole == per && block == job->width * size) return stretch(of, sines, channels, block / 2);
  for (int64_t t = 0; t < of->tokens; t++)
    for (Rows all = rows_of(of, t, sines); all.count > 0; all = after(all, most)) {
      Rows some = all;
      if (some.count > most) some.count = most;
      for (int64_t k = 0; k < blocks; k++) {
        const Rows rows = beside(some, before + k * block, before + k * block, k * staged);
        if (whole)
          stretch(&(Walk){rows.y, rows.x, rows.c, rows.count, rows.next_y, rows.next_x, rows.next_table, 1}, sines,
                  channels, block / 2);
        if (whole < per) NAME(parts)(rows, whole, per, here, dtype, form, rounded);
      }
      if (!here && before) NAME(copy)(some.y, some.next_y, some.x, some.next_x, before, some.count);
      if (!here && passing) NAME(copy)(some.y + end, some.next_y, some.x + end, some.next_x, passing, some.count);
    }
}
typedef void (*NAME(Run))(const Job *, const Walk *);
#include "head.h"
#include "doubles.h"
#define RUN(d, i, n, r)                                                                                                \
  static NOINLINE void NAME(stretch_##d##i##n##r)(const Walk *of, int64_t sines, int64_t end, int64_t half) {          \
    NAME(stretch)(of, sines, end, half, d, i, n, r);                                                                   \
  }                                                                                                                    \
  static NOINLINE void NAME(run_##d##i##n##r)(const Job *job, const Walk *of) {                                        \
    NAME(run)(job, of, NAME(stretch_##d##i##n##r), d, i, r);                                                           \
  }
#define EVERY(d, r) RUN(d, 0, 0, r) RUN(d, 0, 1, r) RUN(d, 3, 0, r) RUN(d, 3, 1, r) RUN(d, 1, 0, r) RUN(d, 2, 0, r)
EVERY(0, 0)
EVERY(1, 0) EVERY(1, 1) EVERY(2, 0) EVERY(2, 1)
#ifdef QUICK
EVERY(3, 0) EVERY(3, 1)
#endif
#undef EVERY
#undef RUN
#define EVERY(d, r)                                                                                                    \
  {NAME(run_##d##00##r), NAME(run_##d##01##r), NAME(run_##d##30##r),                                                   \
   NAME(run_##d##31##r), NAME(run_##d##10##r), NAME(run_##d##20##r)}
enum { DOUBLE = 7 };
static const NAME(Run) NAME(runs)[8][6] = {EVERY(0, 0), EVERY(1, 0), EVERY(1, 1), EVERY(2, 0), EVERY(2, 1),
#ifdef QUICK
    EVERY(3, 0), EVERY(3, 1),
#endif
    [DOUBLE] = {NAME(doubles_0), NAME(doubles_0), NAME(doubles_3),
                NAME(doubles_3), NAME(doubles_1), NAME(doubles_2)}
};
#undef EVERY

/* One row whose channels are strided. */
static void NAME(buffered)(const Job *job, const Job *row, NAME(Run) run, char *y, int64_t y_step, const char *x,
                           int64_t x_step, const float *table) {
  const int64_t size = dtype_of_rows(job) == F32 ? 4 : 2, before = job->first, rotating = 2 * job->pairs,
                end = before + rotating;
  char read[8 * MAX_PAIRS] __attribute__((aligned(64))), rotated[8 * MAX_PAIRS] __attribute__((aligned(64)));
  read[0] = 0; /* some compilers do not see that every channel of it is written below */
  if (y != x) {
    copy_channels(y, y_step, x, x_step, before, size);
    copy_channels(y + size * end * y_step, y_step, x + size * end * x_step, x_step, job->width - end, size);
  }
  copy_channels(read, 1, x + size * before * x_step, x_step, rotating, size);
  run(row, &(Walk){.y = rotated, .x = read, .table = table, .rows = 1, .tokens = 1});
  copy_channels(y + size * before * y_step, y_step, rotated, 1, rotating, size);
}

/* Some heads of one tensor in one tile, walked in the order in which the results lie in memory. The cos and sin of its
   tokens are `stride` apart: 0 if all of them have the same. */
static void NAME(heads)(const Job *job, const Tensor *of, NAME(Run) run, const float *table, const int64_t *entry,
                        int64_t start, int64_t tokens, int64_t stride, int64_t head, int64_t heads) {
  if (!heads) return; /* and no memory */
  const int64_t size = job->dtype == F32 ? 4 : 2;
  const char *in = of->in + size * (head * of->in_head + start * of->in_token);
  char *out = of->out + size * (head * of->out_head + start * of->out_token);
  for (int i = 0; i < job->lead; i++) {
    in += size * entry[i] * of->in_lead[i];
    out += size * entry[i] * of->out_lead[i];
  }
  const int64_t in_head = size * of->in_head, in_token = size * of->in_token, out_head = size * of->out_head,
                out_token = size * of->out_token;
  if (job->through) {
    Job row = *job;
    row.first = 0;
    row.width = 2 * job->pairs;
    for (int64_t h = 0; h < heads; h++)
      for (int64_t i = 0; i < tokens; i++)
        NAME(buffered)(job, &row, run, out + h * out_head + i * out_token, of->out_channel,
                       in + h * in_head + i * in_token, of->in_channel, table + i * stride);
  } else if (heads == 1 || (out_head > out_token && !is_whole(job))) /* tokens as rows */
    for (int64_t h = 0; h < heads; h++)
      run(job, &(Walk){out + h * out_head, in + h * in_head, table, tokens, out_token, in_token, stride, 1});
  else /* heads abreast, and few where each is a long stretch of its own */
    for (int64_t most = out_head > out_token ? ABREAST : heads, h = 0; h < heads; h += most)
      run(job, &(Walk){out + h * out_head, in + h * in_head, table, heads - h < most ? heads - h : most, out_head,
                       in_head, 0, tokens, out_token, in_token, stride});
}

#include "norm.h"
#include "slots.h"

/* One token of given tables, widened. A NaN loses its payload: rounding to bfloat16 could carry it over to zero. */
static void NAME(from_tables)(float *cosine, float *sine, const Tables *of, int64_t pairs, int64_t batch,
                               int64_t head, int64_t token) {
  const int64_t start = (batch * of->batch + head * of->head + token * of->token) * (of->dtype == F32 ? 4 : 2);
  for (int part = 0; part < 2; part++) {
    float *to = part ? sine : cosine;
    const char *from = (part ? of->sin : of->cos) + start;
    const float *wide = of->dtype == F32 && of->pair == 1 ? (const float *)from : to;
    if (wide == to) NAME(get)(to, from, of->pair, pairs, of->dtype);
    for (int64_t j = 0; j < pairs; j++) to[j] = wide[j] == wide[j] ? wide[j] : float_of(0x7fc00000);
  }
}

static void NAME(rotate)(const Job *job, int64_t first, int64_t last) {
  union {
    float floats[TILE_FLOATS];
    double doubles[TILE_FLOATS / 2];
  } room __attribute__((aligned(64)));
  float *table = room.floats, cosine[MAX_PAIRS], sine[MAX_PAIRS];
  const int dtype = dtype_of_rows(job), wide = in_double(job);
  const int way = job->permuted ? 5 - job->interleaved : 2 * job->interleaved + job->streamed;
  const int order = are_twice(job) ? TWICE : !job->interleaved && !job->permuted && dtype == BF16 ? APART : PLAIN;
  const int64_t of_token = token_floats(job), per_tile = tile_tokens(job),
                per_entry = (job->tokens + per_tile - 1) / per_tile;
  const int64_t groups = job->per_head ? job->of[0].heads : 1;
  for (int64_t tile = first; tile < last; tile++) {
    const int64_t start = tile % per_entry * per_tile,
                  tokens = start + per_tile < job->tokens ? per_tile : job->tokens - start;
    int64_t entry[MAX_LEAD] = {0};
    for (int64_t i = job->lead, left = tile / per_entry; i-- > 0; left /= job->sizes[i])
      entry[i] = left % job->sizes[i];
    const int64_t batch = job->lead ? entry[job->lead - 1] : 0;
    const int64_t stride = job->phases.steps && are_alike(&job->phases, batch, start, tokens) ? 0 : of_token;
    for (int64_t g = 0; g < groups; g++) {
      for (int64_t i = 0; i < (stride ? tokens : 1); i++) {
        if (i && job->phases.steps && as_before(&job->phases, batch, start + i)) {
          memcpy(table + i * stride, table + (i - 1) * stride, sizeof(float) * (size_t)stride);
          continue;
        }
        if (wide) {
          NAME(from_doubles)(room.doubles + i * stride / 2, of_token / 4, job, batch, g, start + i);
          continue;
        }
        if (job->phases.steps)
          NAME(from_phases)(cosine, sine, &job->phases, job->pairs, batch, start + i);
        else
          NAME(from_tables)(cosine, sine, &job->tables, job->pairs, batch, g, start + i);
        NAME(stage)(table + i * stride, table + i * stride + of_token / 2, cosine, sine, job->pairs, job->blocks,
                    job->sign, order);
      }
      int row = wide ? DOUBLE : dtype == F32 ? 0 : 2 * dtype - 1 + job->rounded;
#ifdef QUICK
      if (!wide && dtype == BF16 && NAME(table_fits)(table, stride ? tokens * stride : of_token)) row += 4;
#endif
      const NAME(Run) run = NAME(runs)[row][way];
      for (int m = 0; m < job->count; m++) {
        const int64_t heads = job->per_head ? 1 : job->of[m].heads;
        if (job->slots.of && m)
          NAME(to_slots)(job, run, table, entry, tile / per_entry, start, tokens);
        else if (job->norm.rounding)
          NAME(norm_heads)(job, m, run, table, entry, start, tokens, g, heads);
        else if (!job->of[m].passing)
          NAME(heads)(job, &job->of[m], run, table, entry, start, tokens, stride, g, heads);
        else /* what passes lies beside what rotates: one walk through both */
          for (int64_t i = 0; i < tokens; i++) {
            NAME(heads)(job, &job->of[m], run, table + i * stride, entry, start + i, 1, stride, g, heads);
            if (!g) copy_heads(job, &job->of[m], entry, start + i, 1);
          }
      }
    }
  }
  NAME(fence)(job->streamed);
}

#undef F
#undef NAME
#undef QUICK
#undef TAIL
