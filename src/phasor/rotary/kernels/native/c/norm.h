/* RMSNorm of heads with the rotation, and its way back. Part of rows.h.

   What is rounded between the steps, job.h says. */

/* 1 / sqrt(mean of squares + eps) */
INLINE float NAME(root)(const float *x, int64_t n, float eps) {
  return 1.0f / __builtin_sqrtf(NAME(dot)(x, x, n) / (float)n + eps);
}

INLINE F NAME(round_to)(F v, int dtype) { return dtype == BF16 ? NAME(round_bf16)(v) : NAME(round_f16)(v); }

/* Some heads: all of one token, or one of some tokens. `next` is from one to the next in bytes; a mean is of each, or
   of all together. In the buffers they lie `pitch` apart, in whole registers if each has a mean of its own. */
typedef struct {
  const Job *job, *row;
  const Tensor *of;
  NAME(Run) run;
  const float *table, *weight;
  const char *in, *kept;
  char *out;
  float *floats; /* where the results go unrounded, `pitch` apart, instead of to `out`; or NULL */
  int64_t heads, next_in, next_kept, next_out, next_table, pitch;
} NAME(Group);
enum { NAME(ROOM) = MAX_NORM + LANES + 512 }; /* two buffers do not lie a multiple of a page apart */
typedef float NAME(Buffer)[NAME(ROOM)] __attribute__((aligned(64)));

INLINE void NAME(rotate_group)(const NAME(Group) * g, char *y, int64_t next_y, int64_t y_step, const char *x,
                               int64_t next_x, int64_t x_step) {
  if (!g->job->through) {
    g->run(g->job, &(Walk){y, x, g->table, g->heads, next_y, next_x, g->next_table, 1});
    return;
  }
  for (int64_t h = 0; h < g->heads; h++)
    NAME(buffered)(g->job, g->row, g->run, y + h * next_y, y_step, x + h * next_x, x_step,
                   g->table + h * g->next_table);
}
INLINE void NAME(get_group)(const NAME(Group) * g, float *x, const char *from, int64_t next, int64_t step) {
  const int64_t width = g->job->width;
  for (int64_t h = 0; h < g->heads; h++) {
    for (int64_t z = 0; z < 4 * width; z += 64) __builtin_prefetch(from + (h + 8) * next + z, 0, 3);
    NAME(get)(x + h * g->pitch, from + h * next, step, width, g->job->dtype);
  }
}
/* How many channels have one mean, and how many such means there are. What follows them in a buffer becomes zero. */
INLINE int64_t NAME(means)(const NAME(Group) * g, float *x, int64_t *channels) {
  const int across = g->job->norm.across;
  const int64_t n = *channels = across ? g->heads * g->job->width : g->job->width, count = across ? 1 : g->heads;
  for (int64_t i = 0; i < count && n % LANES; i++)
    memset(x + i * g->pitch + n, 0, (size_t)(LANES - n % LANES) * sizeof *x);
  return count;
}

static NOINLINE void NAME(norm_group)(const NAME(Group) * g) {
  NAME(Buffer) x, y;
  const Job *job = g->job;
  const int64_t width = job->width, from = g->of->in_channel, to = g->of->out_channel, pitch = g->pitch;
  const int dtype = job->dtype, rows = dtype_of_rows(job), after = job->norm.after;
  const int64_t size = rows == F32 ? 4 : 2;
  if (!after)
    NAME(get_group)(g, x, g->in, g->next_in, from);
  else if (rows == dtype) {
    NAME(rotate_group)(g, (char *)y, size * pitch, 1, g->in, g->next_in, from);
    NAME(get_group)(g, x, (char *)y, size * pitch, 1);
  } else {
    NAME(get_group)(g, y, g->in, g->next_in, from);
    NAME(rotate_group)(g, (char *)x, 4 * pitch, 1, (char *)y, 4 * pitch, 1);
  }
  int64_t n;
  const int64_t means = NAME(means)(g, x, &n);
  float roots[MAX_NORM / LANES + 1];
  for (int64_t i = 0; i < means; i++) roots[i] = NAME(root)(x + i * pitch, n, job->norm.eps);
  const int rounded = job->norm.rounding == BEFORE_WEIGHT ? dtype : F32;
  const int between = g->floats && job->norm.rounding != ONCE ? dtype : F32; /* else what follows rounds */
  for (int64_t i = 0; i < means; i++) {
    const F r = NAME(all)(roots[i]);
    float *head = x + i * pitch;
    for (int64_t j = 0; j < n; j += NAME(W)) {
      F v = NAME(load)(head + j) * r;
      if (rounded != F32) v = NAME(round_to)(v, rounded);
      if (g->weight) v = v * NAME(load)(g->weight + j);
      if (between != F32) v = NAME(round_to)(v, between);
      NAME(store)(head + j, v, 0);
    }
  }
  if (g->floats) {
    NAME(rotate_group)(g, (char *)g->floats, 4 * pitch, 1, (char *)x, 4 * pitch, 1);
    return;
  }
  if (!after && rows == F32) {
    const int there = dtype == F32;
    NAME(rotate_group)(g, there ? g->out : (char *)y, there ? g->next_out : 4 * pitch, there ? to : 1, (char *)x,
                       4 * pitch, 1);
    if (there) return;
  } else if (!after) {
    for (int64_t h = 0; h < g->heads; h++) NAME(put)((char *)y + h * 2 * pitch, 1, x + h * pitch, width, dtype);
    NAME(rotate_group)(g, g->out, g->next_out, to, (char *)y, 2 * pitch, 1);
    return;
  }
  for (int64_t h = 0; h < g->heads; h++)
    NAME(put)(g->out + h * g->next_out, to, (after ? x : y) + h * pitch, width, dtype);
}

/* From the gradient of what a group gave to that of what it was given, and what it adds to that of the weights. */
static NOINLINE void NAME(norm_back)(const NAME(Group) * g, float *sums) {
  NAME(Buffer) x, d, y;
  const Job *job = g->job;
  const int64_t pitch = g->pitch;
  NAME(get_group)(g, x, g->kept, g->next_kept, g->of->kept_channel);
  NAME(get_group)(g, y, g->in, g->next_in, g->of->in_channel);
  NAME(rotate_group)(g, (char *)d, 4 * pitch, 1, (char *)y, 4 * pitch, 1);
  int64_t n;
  NAME(means)(g, d, &n);
  const int64_t means = NAME(means)(g, x, &n);
  float roots[MAX_NORM / LANES + 1];
  for (int64_t i = 0; i < means; i++) roots[i] = NAME(root)(x + i * pitch, n, job->norm.eps);
  for (int64_t i = 0; i < means; i++) {
    const F r = NAME(all)(roots[i]);
    float *normal = x + i * pitch, *up = d + i * pitch;
    for (int64_t j = 0; j < n; j += NAME(W)) {
      const F v = NAME(load)(normal + j) * r, u = NAME(load)(up + j);
      NAME(store)(normal + j, v, 0);
      if (sums) NAME(store)(sums + j, NAME(load)(sums + j) + u * v, 0);
      if (g->weight) NAME(store)(up + j, u * NAME(load)(g->weight + j), 0);
    }
    const F mean = NAME(all)(NAME(dot)(up, normal, n) / (float)n);
    for (int64_t j = 0; j < n; j += NAME(W))
      NAME(store)(up + j, (NAME(load)(up + j) - NAME(load)(normal + j) * mean) * r, 0);
  }
  for (int64_t h = 0; h < g->heads; h++)
    NAME(put)(g->out + h * g->next_out, g->of->out_channel, d + h * pitch, job->width, job->dtype);
}

/* Some heads of one tensor in one tile, walked in the order in which the results lie in memory. Few products are summed
   in float32 before the sum goes on in float64. */
static void NAME(norm_heads)(const Job *job, int m, NAME(Run) run, const float *table, const int64_t *entry,
                             int64_t start, int64_t tokens, int64_t head, int64_t heads) {
  enum { FEW = 16 };
  if (!heads) return;
  const Tensor *of = &job->of[m];
  const int across = job->norm.across, by_head = !across && of->out_head > of->out_token;
  const int64_t size = job->dtype == F32 ? 4 : 2, stride = token_floats(job);
  const int64_t pitch = across ? job->width : (job->width + LANES - 1) / LANES * LANES,
                channels = across ? heads * job->width : job->width;
  const int64_t inner = by_head ? tokens : heads, outer = by_head ? heads : tokens, fit = MAX_NORM / pitch;
  const int64_t most = across ? heads : fit < FEW ? fit : FEW;
  Job row = *job;
  row.first = 0;
  row.width = 2 * job->pairs;
  const int64_t in_token = size * of->in_token, kept_token = size * of->kept_token, out_token = size * of->out_token;
  const int64_t in_head = size * of->in_head, kept_head = size * of->kept_head, out_head = size * of->out_head;
  NAME(Group) g = {.job = job, .row = &row, .of = of, .run = run, .weight = job->norm.weight[m], .pitch = pitch};
  g.next_table = by_head ? stride : 0, g.next_in = by_head ? in_token : in_head;
  g.next_kept = by_head ? kept_token : kept_head, g.next_out = by_head ? out_token : out_head;
  int64_t in = head * in_head + start * in_token, kept = head * kept_head + start * kept_token,
          out = head * out_head + start * out_token;
  for (int i = 0; i < job->lead; i++) {
    in += size * entry[i] * of->in_lead[i];
    kept += size * entry[i] * of->kept_lead[i];
    out += size * entry[i] * of->out_lead[i];
  }
  float sums[MAX_NORM + LANES] __attribute__((aligned(64)));
  double *total = job->norm.back ? job->norm.sums[m] : NULL;
  for (int64_t o = 0; o < outer; o++)
    for (int64_t i = 0; i < inner; i += most) {
      g.heads = inner - i < most ? inner - i : most;
      g.table = table + stride * (by_head ? i : o);
      g.in = of->in + in + o * (by_head ? in_head : in_token) + i * g.next_in;
      g.out = of->out + out + o * (by_head ? out_head : out_token) + i * g.next_out;
      if (!job->norm.back) {
        NAME(norm_group)(&g);
        continue;
      }
      g.kept = of->kept + kept + o * (by_head ? kept_head : kept_token) + i * g.next_kept;
      if (total) memset(sums, 0, (size_t)(channels + LANES) * sizeof *sums);
      NAME(norm_back)(&g, total ? sums : NULL);
      if (total)
        for (int64_t j = 0; j < channels; j++) total[j] += (double)sums[j];
    }
}
