/* Part of module.c: tensors as they lie in memory, and the order of their axes. */

static int is_empty(const View *x) {
  for (int i = 0; i < x->rank; i++)
    if (x->shape[i] == 0) return 1;
  return 0;
}

/* A plain tensor of the CPU with memory of its own: autograd's lazy zeros have none. */
static int read_tensor(PyObject *x, View *to) {
  PyObject *type = (PyObject *)Py_TYPE(x);
  if (type != torch.tensor && type != torch.parameter) return 0;
  if (torch.exchange->view(x, to)) {
    PyErr_Clear();
    return 0;
  }
  if (to->device.type != 1 || to->dtype.lanes != 1 || (!to->data && !is_empty(to))) return 0;
  if (to->data) to->data += to->offset;
  return (uintptr_t)to->data % (to->dtype.bits < 8 ? 1 : to->dtype.bits / 8) ==
         0; /* a mapped file may lie at odd addresses */
}

enum { MAX_AXES = 16 };

/* A tensor whose last axis holds `heads` heads (any number for 0) side by side, as one with an axis for them; where it
   has one already, `width` is 0. `axes` has room for its sizes and strides. */
static int read_heads(PyObject *x, View *to, int64_t heads, int64_t width, int64_t *axes) {
  if (!read_tensor(x, to)) return 0;
  const int last = to->rank - 1;
  if (!width) return 1;
  if (last < 1 || last + 2 > MAX_AXES || to->shape[last] < width || to->shape[last] % width ||
      (heads && to->shape[last] / width != heads))
    return 0;
  int64_t *shape = axes, *strides = axes + MAX_AXES;
  memcpy(shape, to->shape, (size_t)last * sizeof *shape);
  memcpy(strides, to->strides, (size_t)last * sizeof *strides);
  shape[last] = to->shape[last] / width;
  shape[last + 1] = width;
  strides[last] = to->strides[last] * width;
  strides[last + 1] = to->strides[last];
  to->shape = shape;
  to->strides = strides;
  to->rank++;
  return 1;
}

static int float_kind(const View *x) {
  if (x->dtype.code == 2) return x->dtype.bits == 32 ? F32 : x->dtype.bits == 16 ? F16 : -1;
  return x->dtype.code == 4 && x->dtype.bits == 16 ? BF16 : -1;
}

static int table_kind(const View *x) { return x->dtype.code == 2 && x->dtype.bits == 64 ? F64 : float_kind(x); }

/* The lazy sign of z.conj().imag: its memory holds the other one. */
static int is_signed(PyObject *x) { return !falsy(PyObject_CallMethodObjArgs(x, s_is_neg, NULL)); }
static int learns(PyObject *x) { return !falsy(PyObject_GetAttr(x, s_requires_grad)); }

static int is_contiguous(const View *x) {
  uint64_t due = 1; /* an empty one may have sizes whose product is no number */
  for (int i = x->rank; i-- > 0; due *= (uint64_t)x->shape[i])
    if (x->shape[i] != 1 && (uint64_t)x->strides[i] != due) return 0;
  return 1;
}

/* Contiguous, as that of a contiguous one is unasked, which is sooner done. */
static PyObject *new_like(PyObject *x, const View *view) {
  PyObject *args = PyTuple_Pack(1, x),
           *made = args ? PyObject_Call(torch.empty, args, is_contiguous(view) ? NULL : torch.contiguous) : NULL;
  Py_XDECREF(args);
  return made;
}

/* ---- The order of axes ---- */

typedef struct {
  int heads, tokens, batch, rank;
} Order; /* axes counted from the end; batch 0: all that remain in front; rank 0: any */

static int read_order(PyObject *format, Order *to) {
  const struct {
    const char *name;
    Order order;
  } known[] = {
      {"bhsd", {3, 2, 0, 0}}, {"bshd", {2, 3, 0, 0}}, {"sbhd", {2, 4, 3, 4}}, {"thd", {2, 3, 0, 3}},
  };
  for (size_t i = 0; PyUnicode_Check(format) && i < sizeof known / sizeof *known; i++)
    if (!PyUnicode_CompareWithASCIIString(format, known[i].name)) {
      *to = known[i].order;
      return 1;
    }
  return 0;
}

/* Fill in one tensor and what is written for it. */
static int place(Job *job, int at, const View *x, const View *y, Order order) {
  const int rank = x->rank, h = rank - order.heads, s = rank - order.tokens;
  const int lead = order.batch ? 1 : rank - 3;
  if (rank < 3 || lead > MAX_LEAD || (order.rank && rank != order.rank) || y->rank != rank) return 0;
  const int kind = float_kind(x);
  if (kind < 0 || kind != float_kind(y)) return 0;
  if (at && (lead != job->lead || x->shape[s] != job->tokens || x->shape[rank - 1] != job->width || kind != job->dtype))
    return 0;
  Tensor *of = &job->of[at];
  int64_t batch = 1;
  for (int i = 0; i < lead; i++) {
    const int axis = order.batch ? rank - order.batch : i;
    if (at && job->sizes[i] != x->shape[axis]) return 0;
    batch *= job->sizes[i] = x->shape[axis];
    of->in_lead[i] = x->strides[axis];
    of->out_lead[i] = y->strides[axis];
  }
  for (int i = 0; i < rank; i++)
    if (x->shape[i] != y->shape[i]) return 0;
  job->lead = lead;
  job->batch = batch;
  job->tokens = x->shape[s];
  job->width = x->shape[rank - 1];
  job->dtype = kind;
  of->in = x->data;
  of->out = y->data;
  of->heads = x->shape[h];
  of->in_head = x->strides[h];
  of->in_token = x->strides[s];
  of->in_channel = x->strides[rank - 1];
  of->out_head = y->strides[h];
  of->out_token = y->strides[s];
  of->out_channel = y->strides[rank - 1];
  if (of->in_channel != 1 || of->out_channel != 1) job->through = 1;
  job->count = at + 1;
  return 1;
}
