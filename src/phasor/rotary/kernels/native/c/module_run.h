/* Part of module.c: the work: how many threads, which pages, and whether stores go past the cache. */

static void part(int64_t first, int64_t last, void *job) { rotate_tiles((const Job *)job, first, last); }
static void pieces(int64_t first, int64_t last, void *job) { rotate_pieces((const Job *)job, first, last); }

/* Whether every row of the output begins and ends at 64 bytes, and is not its own input. */
static int may_stream(const Job *job, const Tensor *of, int64_t size) {
  uintptr_t steps = (uintptr_t)of->out | (uintptr_t)(of->out_head * size) | (uintptr_t)(of->out_token * size);
  for (int i = 0; i < job->lead; i++) steps |= (uintptr_t)(of->out_lead[i] * size);
  steps |= (uintptr_t)(job->first * size) | (uintptr_t)(job->pairs / job->blocks * size);
  return of->in != of->out && steps % 64 == 0;
}

/* A long walk through each head is the faster one, while its tables stay in the first cache. But every thread wants
   some tiles, and sums for the gradients of a norm's weights are of tiles of one size. */
static int64_t longest_tile(const Job *job, int64_t elements) {
  uint32_t threads = 1;
  if (elements >= ALONE && torch.threads) torch.threads(&threads);
  const int few = threads > 1 && LONG_TILE * EACH_THREAD * threads > job->batch * job->tokens;
  return job->norm.back || few ? SHORT_TILE : LONG_TILE;
}

static void run(Job *job, int fresh) {
  if (!job->batch || !job->tokens || !(job->of[0].heads + job->of[1].heads)) return; /* other sizes may be any */
  int64_t elements = 0;
  for (int m = 0; m < job->count; m++) elements += job->batch * job->tokens * job->of[m].heads * job->width;
  job->tile = longest_tile(job, elements);
  const int64_t tiles = tiles_of(job), size = job->dtype == F32 ? 4 : 2;
  if (job->norm.back) { /* its sums are the same on any number of threads */
    Py_BEGIN_ALLOW_THREADS if (torch.parallel_for && elements >= ALONE) torch.parallel_for(0, PIECES, 1, pieces, job);
    else rotate_pieces(job, 0, PIECES);
    Py_END_ALLOW_THREADS return;
  }
  if (elements < ALONE) {
    rotate_tiles(job, 0, tiles);
    return;
  }
  job->streamed = !job->norm.rounding && !job->slots.of && !job->through && !job->permuted &&
                  2 * job->pairs == job->width && /* what passes is copied, and not past the cache */
                  elements * size >= STREAM && (!fresh || torch.huge_pages);
  for (int m = 0; m < job->count; m++) {
    if (!may_stream(job, &job->of[m], size)) job->streamed = 0;
#if defined(MADV_HUGEPAGE)
    const uintptr_t bytes = (uintptr_t)(job->batch * job->tokens * job->of[m].heads * job->width * size);
    if (fresh && bytes >= HUGE) { /* not yet touched, and so not yet mapped */
      const uintptr_t out = (uintptr_t)job->of[m].out, start = (out + SMALL_PAGE - 1) / SMALL_PAGE * SMALL_PAGE;
      madvise((void *)start, (out + bytes - start) / SMALL_PAGE * SMALL_PAGE, MADV_HUGEPAGE);
    }
#endif
  }
  Py_BEGIN_ALLOW_THREADS if (torch.parallel_for) torch.parallel_for(0, tiles, 1 + ALONE * tiles / elements, part, job);
  else rotate_tiles(job, 0, tiles);
  Py_END_ALLOW_THREADS
}
