/* Part of module.c: what the extension keeps of torch, and the names that it asks Python for. */

typedef int32_t (*Threads)(uint32_t *count);
typedef int (*ParallelFor)(int64_t first, int64_t last, int64_t grain, void (*)(int64_t, int64_t, void *), void *);

enum { ALONE = 1 << 15 };                  /* elements below which one thread is sooner done */
enum { EACH_THREAD = 4 };                  /* tiles, at least, so that none waits long for another */
enum { HUGE = 4 << 20, STREAM = 8 << 20 }; /* bytes from which outputs come in large pages, and go past the cache */
enum { SMALL_PAGE = 1 << 12 };

static struct {
  const Exchange *exchange;
  PyObject *tensor, *parameter, *rotation;                                        /* types */
  PyObject *grad_enabled, *functorch, *dispatch_modes, *function_modes, *tracing; /* functions of torch */
  PyObject *empty, *contiguous, *forward_ad, *learn, *inference_mode, *increment_version;
  ParallelFor parallel_for;
  Threads threads;
  int huge_pages;
} torch;

static PyObject *s_requires_grad, *s_level, *s_is_neg, *s_cos, *s_sin, *s_layout, *s_per_head, *s_promoted, *s_second;
static PyObject *s_head_dim, *s_rotary_dim, *s_trailing, *s_interleaved, *s_blocks, *s_permuted, *s_is_inference;

static PyObject *decline(void) {
  PyErr_Clear();
  Py_RETURN_NONE;
}
