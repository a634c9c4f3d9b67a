/* Part of module.c: what rotates the tensors: a layout, tables of cos and sin, or positions and steps. */

static int flag_of(PyObject *object, PyObject *name, int *to) {
  PyObject *value = PyObject_GetAttr(object, name);
  Py_XDECREF(value);
  *to = value == Py_True;
  return value == Py_True || value == Py_False;
}
static int whole_of(PyObject *object, PyObject *name, int64_t *to) {
  PyObject *value = PyObject_GetAttr(object, name);
  if (!value) return 0;
  *to = PyLong_Check(value) ? PyLong_AsLongLong(value) : -1;
  Py_DECREF(value);
  return *to > 0;
}

typedef struct {
  PyObject *of;
  int64_t head_dim, rotary_dim, blocks;
  int trailing, interleaved, permuted;
} LayoutFields;

/* The fields of a Layout, which is immutable: those of the last one are kept, with a reference to it. */
static const LayoutFields *read_layout(PyObject *layout) {
  static LayoutFields kept;
  if (kept.of == layout) return &kept;
  LayoutFields read = {.of = layout};
  if (!whole_of(layout, s_head_dim, &read.head_dim) || !whole_of(layout, s_rotary_dim, &read.rotary_dim) ||
      !whole_of(layout, s_blocks, &read.blocks) || !flag_of(layout, s_trailing, &read.trailing) ||
      !flag_of(layout, s_interleaved, &read.interleaved) || !flag_of(layout, s_permuted, &read.permuted))
    return NULL;
  if (read.rotary_dim > read.head_dim || read.rotary_dim % 2 || read.rotary_dim / 2 % read.blocks ||
      (read.blocks > 1 && (read.interleaved || read.permuted)))
    return NULL; /* as Layout says, and memory relies on it */
  PyObject *before = kept.of;
  Py_INCREF(layout);
  kept = read;
  Py_XDECREF(before);
  return &kept;
}

static int lay_out(Job *job, PyObject *layout, int transposed) {
  const LayoutFields *fields = layout ? read_layout(layout) : NULL;
  if (!fields || fields->head_dim != job->width) return 0;
  job->pairs = fields->rotary_dim / 2;
  job->first = fields->trailing ? fields->head_dim - fields->rotary_dim : 0;
  job->blocks = fields->blocks;
  job->permuted = fields->permuted;
  job->interleaved = fields->interleaved ^ (transposed && fields->permuted);
  return fits(job);
}

/* cos and sin of a Rotation; only if nothing of it needs a gradient. */
static int read_tables(Job *job, PyObject *cos, PyObject *sin, int per_head, int gradients) {
  View c, s;
  if (!read_tensor(cos, &c) || !read_tensor(sin, &s) || is_signed(cos) || is_signed(sin)) return 0;
  const int rank = c.rank, batched = rank == 3 + per_head, kind = table_kind(&c);
  if (kind < 0 || kind != table_kind(&s) || s.rank != rank || (rank != 2 + per_head && !batched)) return 0;
  for (int i = 0; i < rank; i++)
    if (c.shape[i] != s.shape[i] || (c.shape[i] > 1 && c.strides[i] != s.strides[i])) return 0;
  if (c.shape[rank - 1] != job->pairs || c.shape[rank - 2] != job->tokens) return 0;
  if (per_head)
    for (int m = 0; m < job->count; m++)
      if (job->of[m].heads != c.shape[rank - 3]) return 0;
  if (batched && (!job->lead || (c.shape[0] != 1 && c.shape[0] != job->sizes[job->lead - 1]))) return 0;
  if (gradients && (learns(cos) || learns(sin))) return 0;
  job->per_head = per_head;
  job->rounded = kind == job->dtype && kind != F32;
  Tables *t = &job->tables;
  keep_apart(job, 0, &c);
  keep_apart(job, 1, &s);
  t->cos = c.data;
  t->sin = s.data;
  t->dtype = kind;
  t->batch = batched && c.shape[0] > 1 ? c.strides[0] : 0;
  t->head = per_head ? c.strides[rank - 3] : 0;
  t->token = c.strides[rank - 2];
  t->pair = c.strides[rank - 1];
  return 1;
}

static int read_rotation(Job *job, PyObject *rotation, int transposed, int gradients) {
  int per_head, promoted;
  if ((PyObject *)Py_TYPE(rotation) != torch.rotation || !flag_of(rotation, s_per_head, &per_head) ||
      !flag_of(rotation, s_promoted, &promoted))
    return 0;
  PyObject *second = PyObject_GetAttr(rotation, s_second), *layout = PyObject_GetAttr(rotation, s_layout);
  PyObject *cos = PyObject_GetAttr(rotation, s_cos), *sin = PyObject_GetAttr(rotation, s_sin);
  const int fits = second == Py_None && lay_out(job, layout, transposed) && cos && sin &&
                   read_tables(job, cos, sin, per_head, gradients);
  Py_XDECREF(second);
  Py_XDECREF(layout);
  Py_XDECREF(cos); /* the rotation holds them */
  Py_XDECREF(sin);
  job->sign = transposed ? -1.0f : 1.0f;
  /* promoted results have the dtype of the tables */
  return fits && (!promoted || (job->dtype == F32 && !in_double(job)) || job->rounded);
}

typedef struct {
  PyObject *layout;
  float sign, factor;
  int axes;
  int64_t pairs, steps[];
} Plan;

static int read_phases(Job *job, PyObject *positions, const Plan *plan, int transposed) {
  View at;
  if (!read_tensor(positions, &at) || is_signed(positions) || at.dtype.code != 0 ||
      (at.dtype.bits != 64 && at.dtype.bits != 32))
    return 0;
  const int axes = plan->axes > 1, rank = at.rank, batched = rank == axes + 2;
  if ((rank != axes + 1 && !batched) || (axes && at.shape[0] != plan->axes) || at.shape[rank - 1] != job->tokens)
    return 0;
  if (batched && (!job->lead || (at.shape[axes] != 1 && at.shape[axes] != job->sizes[job->lead - 1]))) return 0;
  if (!lay_out(job, plan->layout, transposed) || job->pairs != plan->pairs) return 0;
  Phases *p = &job->phases;
  keep_apart(job, 0, &at);
  p->at = at.data;
  p->bytes = at.dtype.bits / 8;
  p->axes = plan->axes;
  p->axis = axes ? at.strides[0] : 0;
  p->batch = batched && at.shape[axes] > 1 ? at.strides[axes] : 0;
  p->token = at.strides[rank - 1];
  p->steps = plan->steps;
  p->factor = plan->factor;
  job->sign = transposed ? -plan->sign : plan->sign;
  return 1;
}
