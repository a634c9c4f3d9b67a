/* Rows by tables of float64: widened, multiplied in double, and rounded by way of float32, as torch rounds them. Part
   of rows.h. */

/* One token of given tables of float64. */
static void NAME(from_doubles)(double *to, int64_t sines, const Job *job, int64_t batch, int64_t head, int64_t token) {
  const Tables *of = &job->tables;
  const int64_t start = batch * of->batch + head * of->head + token * of->token;
  const double *cos = (const double *)of->cos + start, *sin = (const double *)of->sin + start;
  for (int64_t j = 0; j < job->pairs; j++) {
    const double c = cos[j * of->pair], s = sin[j * of->pair];
    to[j] = c == c ? c : float_of(0x7fc00000);
    to[sines + j] = s == s ? job->sign * s : float_of(0x7fc00000);
  }
}

/* Rows in plain loops, of which the compiler makes vectors: more is to be multiplied than to be read. */
INLINE void NAME(doubles)(const Job *job, const Walk *of, int form) {
  float x[2 * MAX_PAIRS] __attribute__((aligned(64))), y[2 * MAX_PAIRS] __attribute__((aligned(64)));
  const int dtype = dtype_of_rows(job), here = of->x == of->y;
  const int64_t size = dtype == F32 ? 4 : 2, sines = token_floats(job) / 2, per = pairs_of_block(job),
                before = job->first * size, end = before + 2 * job->pairs * size, passing = job->width * size - end;
  /* steps to the next pair, and to the second member, of what is read and of what is written */
  const int64_t p = form & READ_PAIRS ? 2 : 1, q = form & READ_PAIRS ? 1 : per;
  const int64_t u = form & WRITE_PAIRS ? 2 : 1, v = form & WRITE_PAIRS ? 1 : per;
  for (int64_t t = 0; t < of->tokens; t++)
    for (Rows row = rows_of(of, t, sines); row.count > 0; row = after(row, 1)) {
      const float *from = dtype == F32 ? (const float *)(row.x + before) : x;
      float *to = dtype == F32 && !here ? (float *)(row.y + before) : y;
      if (from == x) NAME(get)(x, row.x + before, 1, 2 * job->pairs, dtype);
      for (int64_t k = 0; k < job->pairs; k += per) {
        const double *c = (const double *)row.c + k, *s = (const double *)row.s + k;
        const float *restrict xs = from + 2 * k;
        float *restrict ys = to + 2 * k;
        for (int64_t j = 0; j < per; j++) {
          const double a = xs[p * j], b = xs[p * j + q];
          ys[u * j] = (float)(a * c[j] - b * s[j]);
          ys[u * j + v] = (float)(a * s[j] + b * c[j]);
        }
      }
      if (to == y) NAME(put)(row.y + before, 1, y, 2 * job->pairs, dtype);
      if (here) continue;
      NAME(copy)(row.y, 0, row.x, 0, before, 1);
      NAME(copy)(row.y + end, 0, row.x + end, 0, passing, 1);
    }
}
#define DOUBLES(form)                                                                                                  \
  static NOINLINE void NAME(doubles_##form)(const Job *job, const Walk *of) { NAME(doubles)(job, of, form); }
DOUBLES(0) DOUBLES(1) DOUBLES(2) DOUBLES(3)
#undef DOUBLES
