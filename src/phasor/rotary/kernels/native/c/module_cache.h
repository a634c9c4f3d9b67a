/* Part of module.c: keys rotated into a cache. Everything is checked before anything is written. */

static int64_t bytes_of(const View *x) { /* from its first element to the end of its last */
  int64_t last = 0;
  for (int i = 0; i < x->rank; i++) last += (x->shape[i] - 1) * x->strides[i];
  return is_empty(x) ? 0 : (last + 1) * (x->dtype.bits / 8);
}
static int are_apart(const View *a, const View *b) {
  const uintptr_t p = (uintptr_t)a->data, q = (uintptr_t)b->data;
  return p + (uintptr_t)bytes_of(a) <= q || q + (uintptr_t)bytes_of(b) <= p;
}

/* Two halves of one tensor of blocks: each block of one ends before the other's begins. */
static int alternate(const View *a, const View *b) {
  View low = (uintptr_t)a->data < (uintptr_t)b->data ? *a : *b,
       high = (uintptr_t)a->data < (uintptr_t)b->data ? *b : *a;
  int64_t one[4] = {1, low.shape[1], low.shape[2], low.shape[3]},
          other[4] = {1, high.shape[1], high.shape[2], high.shape[3]};
  if (low.strides[0] != high.strides[0]) return 0;
  low.shape = one;
  high.shape = other;
  const int64_t between = (int64_t)((uintptr_t)high.data - (uintptr_t)low.data),
                block = low.strides[0] * (low.dtype.bits / 8);
  return bytes_of(&low) <= between && between + bytes_of(&high) <= block;
}

/* No two elements share an address: every axis steps further than all smaller ones reach. */
static int is_once(const View *x) {
  int64_t reach = 0, before = -1;
  for (int n = 0; n < x->rank; n++) {
    int next = -1;
    for (int i = 0; i < x->rank; i++) {
      if (x->shape[i] < 2 || x->strides[i] <= before) continue;
      if (next < 0 || x->strides[i] < x->strides[next]) next = i;
    }
    int64_t equal = 0; /* axes of one stride share addresses */
    for (int i = 0; next >= 0 && i < x->rank; i++) equal += x->shape[i] > 1 && x->strides[i] == x->strides[next];
    if (next < 0) return 1;
    if (equal > 1 || x->strides[next] <= reach) return 0;
    reach += (x->shape[next] - 1) * x->strides[next];
    before = x->strides[next];
  }
  return 1;
}

/* A cache [blocks, size, heads, width], or with heads before the slots of a block. */
static int read_cache(const Job *job, const View *cache, int by_head, int64_t width) {
  const int slots = by_head ? 2 : 1, heads = by_head ? 1 : 2;
  return cache->rank == 4 && cache->shape[heads] == job->of[1].heads && cache->shape[3] == width &&
         cache->shape[slots] > 0 && float_kind(cache) == job->dtype && is_once(cache);
}

/* The slots of all tokens, in memory of their own: each -1, or inside the cache and once. */
static int64_t *read_slots(const Job *job, const View *x, int64_t room) {
  if (x->dtype.code != 0 || (x->dtype.bits != 64 && x->dtype.bits != 32) || x->rank != job->lead + 1 ||
      x->shape[job->lead] != job->tokens)
    return NULL;
  for (int i = 0; i < job->lead; i++)
    if (x->shape[i] != job->sizes[i]) return NULL;
  const int64_t count = job->batch * job->tokens;
  int64_t *slots = (int64_t *)PyMem_Malloc((size_t)(count + 1) * sizeof *slots);
  unsigned char *taken = (unsigned char *)PyMem_Calloc((size_t)(room / 8 + 1), 1);
  int good = slots && taken;
  for (int64_t n = 0; n < count && good; n++) {
    int64_t at = n % job->tokens * x->strides[job->lead];
    for (int64_t i = job->lead, left = n / job->tokens; i-- > 0; left /= job->sizes[i])
      at += left % job->sizes[i] * x->strides[i];
    const int64_t slot = slots[n] =
        x->dtype.bits == 64 ? ((const int64_t *)x->data)[at] : ((const int32_t *)x->data)[at];
    if (slot == -1) continue;
    good = slot >= 0 && slot < room && !(taken[slot / 8] >> slot % 8 & 1);
    if (good) taken[slot / 8] |= (unsigned char)(1 << slot % 8);
  }
  PyMem_Free(taken);
  if (good) return slots;
  PyMem_Free(slots);
  return NULL;
}

/* Everything but q's result; what is read of slots must be freed. `checked`: what overlaps is. */
static int read_into_cache(Job *job, PyObject *const *a, const Call *call, int by_head, int checked) {
  View q, k, v, keys, values, slots;
  Job other = {0};
  if (call->count != 2 || job->per_head || !read_tensor(a[0], &q) || !read_tensor(a[1], &k) || !read_tensor(a[7], &v) ||
      !read_tensor(a[8], &keys) || !read_tensor(a[9], &values) || !read_tensor(a[10], &slots))
    return 0;
  for (int i = 7; i < 11; i++)
    if (is_signed(a[i]) || (i < 10 && learns(a[i]) && !off(torch.grad_enabled))) return 0;
  if (!place(&other, 0, &v, &v, call->order) || other.dtype != job->dtype || other.lead != job->lead ||
      other.tokens != job->tokens || other.of[0].heads != job->of[1].heads)
    return 0;
  for (int i = 0; i < job->lead; i++)
    if (other.sizes[i] != job->sizes[i]) return 0;
  const int slot = by_head ? 2 : 1, head = by_head ? 1 : 2;
  if (!read_cache(job, &keys, by_head, job->width) || !read_cache(job, &values, by_head, other.width)) return 0;
  if (keys.shape[0] != values.shape[0] || keys.shape[slot] != values.shape[slot]) return 0;
  const View *given[] = {&q, &k, &v, &slots};
  for (int i = 0; i < 4 && !checked; i++)
    if (!are_apart(given[i], &keys) || !are_apart(given[i], &values)) return 0;
  if (!checked && !are_apart(&keys, &values) && !alternate(&keys, &values)) return 0;
  Slots *to = &job->slots;
  const Tensor *from = &other.of[0];
  *to = (Slots){
      .size = keys.shape[slot],
      .value = from->in,
      .head = from->in_head,
      .token = from->in_token,
      .channel = from->in_channel,
      .width = other.width,
      .keys = {keys.data, keys.strides[0], keys.strides[slot], keys.strides[head], keys.strides[3]},
      .values = {values.data, values.strides[0], values.strides[slot], values.strides[head], values.strides[3]},
  };
  memcpy(to->lead, from->in_lead, sizeof to->lead);
  if (to->keys.channel != 1) job->through = 1;
  to->of = read_slots(job, &slots, keys.shape[0] * keys.shape[slot]);
  return to->of != NULL;
}

/* rotate_into_cache(q, k, rotation, tensor_format, False, out of q, None, v, k_cache, v_cache, slots, kv_layout,
   checked): q rotated, or None if nothing was written */
static PyObject *rotate_into_cache(PyObject *self, PyObject *const *a, Py_ssize_t n) {
  (void)self;
  Job job = {0};
  Call call;
  View in, out;
  if (n != 13) return PyErr_Format(PyExc_TypeError, "rotate_into_cache takes 13 arguments");
  const int by_head = PyUnicode_Check(a[11]) && !PyUnicode_CompareWithASCIIString(a[11], "HND");
  if (!by_head && !(PyUnicode_Check(a[11]) && !PyUnicode_CompareWithASCIIString(a[11], "NHD"))) return decline();
  if (!read_call(&job, a, &call) || !read_rotation(&job, a[2], 0, !off(torch.grad_enabled)) || wanted(&call))
    return decline();
  if (!read_into_cache(&job, a, &call, by_head, a[12] == Py_True)) return decline();
  PyObject *y = NULL;
  if (read_tensor(a[0], &in)) y = call.out[0] ? call.out[0] : new_like(a[0], &in);
  if (call.out[0]) Py_XINCREF(y);
  if (y && read_tensor(y, &out) && !is_signed(y) && place(&job, 0, &in, &out, call.order)) {
    job.count = 2;
    run(&job, 0);
  } else
    Py_CLEAR(y);
  PyMem_Free((void *)(uintptr_t)job.slots.of);
  return y ? y : decline();
}
