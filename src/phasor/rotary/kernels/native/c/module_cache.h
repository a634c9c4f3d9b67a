/* Part of module.c: keys rotated into a cache. Everything is checked before anything is written. */

enum { FLOAT8_CODE = 10 }; /* e4m3fn, as DLPack numbers it */
static int is_float8(const View *x) { return x->dtype.code == FLOAT8_CODE && x->dtype.bits == 8; }

/* A cache [blocks, size, heads, width], or with heads before the slots of a block. */
static int read_cache(const Job *job, const View *cache, int by_head, int64_t width) {
  const int slots = by_head ? 2 : 1, heads = by_head ? 1 : 2;
  return cache->rank == 4 && cache->shape[heads] == job->of[1].heads && cache->shape[3] == width &&
         cache->shape[slots] > 0 && (float_kind(cache) == job->dtype || is_float8(cache)) && is_once(cache);
}

/* The scale of a float8 cache: a number, or a tensor of floats with one or with one for each head; None for others. */
static int read_scale(PyObject *scale, const View *cache, int64_t heads, int gradients, Scale *to, View *from) {
  *from = (View){0};
  if (scale == Py_None) return !is_float8(cache);
  to->is = is_float8(cache);
  if (!to->is) return 0;
  if (PyFloat_Check(scale)) {
    to->one = (float)PyFloat_AsDouble(scale);
    return to->one > 0 && to->one - to->one == 0;
  }
  if (!read_tensor(scale, from) || is_signed(scale) || (gradients && learns(scale)) || from->rank > 1 ||
      float_kind(from) != F32)
    return 0;
  const int64_t count = from->rank ? from->shape[0] : 1;
  if (count != 1 && count != heads) return 0;
  to->each = (const float *)from->data;
  to->step = count > 1 ? from->strides[0] : 0;
  for (int64_t h = 0; h < count; h++)
    if (!(to->each[h * to->step] > 0) || to->each[h * to->step] - to->each[h * to->step] != 0) return 0;
  return 1;
}

/* A weight that is read before anything is written: it needs no gradient, and lies in no cache. */
static int is_still(PyObject *weight, int gradients, const View *keys, const View *values) {
  View x;
  if (weight == Py_None) return 1;
  return read_tensor(weight, &x) && !(gradients && learns(weight)) && !overlap(&x, keys) && !overlap(&x, values);
}

/* Norms of q and k, and of v: those of heads, before the rotation. `values` is a job to hold that of v. */
static int read_norms(Job *job, Job *values, PyObject *const *a, const Call *call, const View *keys,
                      const View *rows_of_values) {
  for (int i = 0; i < 2; i++) {
    PyObject *norm = a[13 + i];
    Job *of = i ? values : job;
    if (norm == Py_None) continue;
    of->width = i ? job->slots.width : job->width;
    of->count = i ? 1 : 2;
    of->dtype = job->dtype;
    if (!read_norm(of, norm) || of->norm.across || of->norm.after) return 0;
    for (int m = 0; m < 2; m++)
      if (!is_still(PyTuple_GetItem(norm, m), call->gradients, keys, rows_of_values)) return 0;
  }
  if (job->wide) job->rounded = 0;
  job->slots.value_rounding = values->norm.rounding;
  job->slots.value_eps = values->norm.eps;
  job->slots.value_weight = values->norm.weight[0];
  return job->width <= MAX_NORM && job->slots.width <= MAX_NORM;
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

/* Everything but q's result, which may lie anywhere but in a cache; what is read of slots must be freed. */
static int read_into_cache(Job *job, Job *of_values, PyObject *const *a, const Call *call, int by_head, const View *y) {
  View v, keys, values, slots, k_scale, v_scale;
  const View *q = &call->in[0], *k = &call->in[1];
  Job other = {0};
  if (call->count != 2 || job->per_head || !read_tensor(a[8], &v) || !read_tensor(a[9], &keys) ||
      !read_tensor(a[10], &values) || !read_tensor(a[11], &slots))
    return 0;
  for (int i = 8; i < 12; i++)
    if (is_signed(a[i]) || (i < 11 && call->gradients && learns(a[i]))) return 0;
  if (!place(&other, 0, &v, &v, call->order) || other.dtype != job->dtype || other.lead != job->lead ||
      other.tokens != job->tokens || other.of[0].heads != job->of[1].heads)
    return 0;
  for (int i = 0; i < job->lead; i++)
    if (other.sizes[i] != job->sizes[i]) return 0;
  const int slot = by_head ? 2 : 1, head = by_head ? 1 : 2;
  if (!read_cache(job, &keys, by_head, job->width) || !read_cache(job, &values, by_head, other.width)) return 0;
  if (keys.shape[0] != values.shape[0] || keys.shape[slot] != values.shape[slot]) return 0;
  const View *given[] = {q, k, &v, &slots, y};
  for (int i = 0; i < 5; i++)
    if (given[i] && (overlap(given[i], &keys) || overlap(given[i], &values))) return 0;
  if (!is_apart(job, &keys) || !is_apart(job, &values)) return 0;
  if (overlap(&keys, &values) || (y && (overlap(y, k) || overlap(y, &v) || overlap(y, &slots)))) return 0;
  Slots *to = &job->slots;
  const Tensor *from = &other.of[0];
  *to = (Slots){
      .size = keys.shape[slot], .value = from->in, .head = from->in_head, .token = from->in_token,
      .channel = from->in_channel, .width = other.width,
      .keys = {keys.data, keys.strides[0], keys.strides[slot], keys.strides[head], keys.strides[3]},
      .values = {values.data, values.strides[0], values.strides[slot], values.strides[head], values.strides[3]},
  };
  memcpy(to->lead, from->in_lead, sizeof to->lead);
  if (to->keys.channel != 1) job->through = 1;
  if (!read_scale(a[15], &keys, job->of[1].heads, call->gradients, &to->key_scale, &k_scale) ||
      !read_scale(a[16], &values, job->of[1].heads, call->gradients, &to->value_scale, &v_scale) ||
      (to->key_scale.is && job->rounded))
    return 0;
  const View *scales[] = {&k_scale, &v_scale};
  for (int i = 0; i < 2; i++)
    if (scales[i]->data && (overlap(scales[i], &keys) || overlap(scales[i], &values))) return 0;
  if (!read_norms(job, of_values, a, call, &keys, &values)) return 0;
  to->of = read_slots(job, &slots, keys.shape[0] * keys.shape[slot]);
  return to->of != NULL;
}

/* In two parts where what is done to k is not what is done to q: each has cos and sin in the order of its rows. */
static int run_into_cache(Job *job) {
  if (!job->norm.rounding && !job->slots.key_scale.is) {
    run(job, 0);
    return 1;
  }
  Job queries = *job, keys = *job;
  queries.count = 1;
  queries.slots.of = NULL;
  keys.of[0].heads = 0;
  keys.wide |= keys.slots.key_scale.is;
  if (!fits(&queries) || !fits(&keys)) return 0;
  run(&queries, 0);
  run(&keys, 0);
  return 1;
}

/* rotate_into_cache(q, k, rotation, tensor_format, False, None, None, out of q, v, k_cache, v_cache, slots, kv_layout,
   Norm or None, that of v, k_scale, v_scale): q rotated, or None if nothing was written */
static PyObject *rotate_into_cache(PyObject *self, PyObject *const *a, Py_ssize_t n) {
  (void)self;
  Job job = {0}, values = {0};
  Call call;
  View out;
  if (n != 17) return PyErr_Format(PyExc_TypeError, "rotate_into_cache takes 17 arguments");
  const int by_head = PyUnicode_Check(a[12]) && !PyUnicode_CompareWithASCIIString(a[12], "HND");
  if (!by_head && !(PyUnicode_Check(a[12]) && !PyUnicode_CompareWithASCIIString(a[12], "NHD"))) return decline();
  if (!read_call(&job, a, NULL, 0, &call) || !read_rotation(&job, a[2], 0, call.gradients) || wanted(&call))
    return decline();
  PyObject *y = a[7] == Py_None ? NULL : a[7], *changed[] = {a[9], a[10], y};
  int counted[3] = {0}, good = 1, done = 0;
  if (good && y)
    good = read_tensor(y, &out) && place(&job, 0, call.in, &out, call.order) &&
           is_apart(&job, &out) && may_write_all(a, &y, call.in, &out, 1, call.gradients, counted + 2);
  for (int i = 0; i < 2 && good; i++) {
    View cache;
    good = read_tensor(a[9 + i], &cache) && may_write(a[9 + i], &cache, &counted[i]);
  }
  good = good && read_into_cache(&job, &values, a, &call, by_head, y ? &out : NULL);
  if (good && y)
    Py_INCREF(y);
  else if (good)
    y = new_like(a[0], call.in);
  else
    y = NULL;
  if (y && read_tensor(y, &out) && place(&job, 0, call.in, &out, call.order)) {
    job.count = 2;
    done = run_into_cache(&job);
    if (done && !count_versions(changed, counted, 3)) Py_CLEAR(y);
  }
  PyMem_Free((void *)(uintptr_t)job.slots.of);
  drop_weights(&job);
  drop_weights(&values);
  if (done) return y;
  Py_XDECREF(y);
  return decline();
}
