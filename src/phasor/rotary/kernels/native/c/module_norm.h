/* Part of module.c: calls with a norm. */

/* What multiplies the normalised channels, widened; NULL for no weight. A NaN loses its payload, as in tables. */
static int read_weight(Job *job, int m, PyObject *weight, int offset) {
  View w;
  const int64_t channels = job->width * (job->norm.across ? job->of[m].heads : 1);
  if (channels > MAX_NORM) return 0;
  if (weight == Py_None) return 1;
  if (!read_tensor(weight, &w) || is_signed(weight) || w.rank != 1 || w.shape[0] != channels || float_kind(&w) < 0)
    return 0;
  float *wide = (float *)PyMem_Calloc((size_t)(channels + LANES), sizeof(float));
  if (!wide) return 0;
  job->norm.weight[m] = wide;
  for (int64_t i = 0; i < channels; i++) {
    const int64_t at = i * w.strides[0];
    const int kind = float_kind(&w);
    const float v = kind == F32    ? ((const float *)w.data)[at]
                    : kind == BF16 ? from_bf16(((const uint16_t *)w.data)[at])
                                   : from_f16(((const uint16_t *)w.data)[at]);
    wide[i] = v != v ? float_of(0x7fc00000) : offset ? 1.0f + v : v;
  }
  return 1;
}
static void drop_weights(Job *job) {
  for (int m = 0; m < 2; m++) PyMem_Free((void *)(uintptr_t)job->norm.weight[m]);
}

/* A Norm: weights of q and k, eps, unit_offset, across_heads, after, rounding. */
static int read_norm(Job *job, PyObject *norm) {
  static const char *const names[] = {"once", "between", "before_weight"};
  if (!PyTuple_Check(norm) || PyTuple_Size(norm) != 7) return 0;
  PyObject *item[7];
  for (int i = 0; i < 7; i++) item[i] = PyTuple_GetItem(norm, i);
  for (int i = 3; i < 6; i++)
    if (item[i] != Py_True && item[i] != Py_False) return 0;
  for (int i = 0; i < 3 && PyUnicode_Check(item[6]); i++)
    if (!PyUnicode_CompareWithASCIIString(item[6], names[i])) job->norm.rounding = ONCE + i;
  if (!job->norm.rounding || !(PyFloat_Check(item[2]) || PyLong_CheckExact(item[2]))) return 0;
  const double eps = PyFloat_AsDouble(item[2]);
  if (!(eps >= 0) || eps - eps != 0 || (job->count > 1 && (item[0] == Py_None) != (item[1] == Py_None))) return 0;
  job->norm.eps = (float)eps;
  job->norm.across = item[4] == Py_True;
  job->norm.after = item[5] == Py_True;
  job->wide = job->norm.rounding == ONCE || job->norm.back;
  for (int m = 0; m < job->count; m++)
    if (!read_weight(job, m, item[m], item[3] == Py_True)) return 0;
  return 1;
}
static int read_normed(Job *job, PyObject *const *a, const Call *call) {
  if (!read_norm(job, a[7]) || !read_rotation(job, a[2], call->transposed, call->gradients)) return 0;
  if (job->wide) job->rounded = 0;
  return !(job->norm.across && job->per_head);
}

/* norm_and_rotate(q, k, rotation, tensor_format, transposed, num_heads, outputs, Norm) */
static PyObject *norm_and_rotate(PyObject *self, PyObject *const *a, Py_ssize_t n) {
  (void)self;
  Job job = {0};
  Call call;
  PyObject *done = NULL;
  if (n != 8) return PyErr_Format(PyExc_TypeError, "norm_and_rotate takes 8 arguments");
  if (read_tables_call(&job, a, 0, &call) && read_normed(&job, a, &call)) {
    int learning = wanted(&call);
    for (int m = 0; m < call.count && !learning && call.gradients; m++) {
      PyObject *weight = PyTuple_GetItem(a[7], m);
      learning = weight != Py_None && learns(weight);
    }
    done = !learning ? rotated(&job, &call) : call.out[0] ? decline() : learnt(a, a[7]);
  } else
    done = decline();
  drop_weights(&job);
  return done;
}

/* Sums [PIECES, channels] of float64, zeros; None where they are not wanted. */
static int read_sums(Job *job, int m, PyObject *sums) {
  View to;
  if (sums == Py_None) return 1;
  const int64_t channels = job->width * (job->norm.across ? job->of[m].heads : 1);
  if (!read_tensor(sums, &to) || to.dtype.code != 2 || to.dtype.bits != 64 || to.rank != 2 || to.shape[0] != PIECES ||
      to.shape[1] != channels || !is_contiguous(&to))
    return 0;
  job->norm.sums[m] = (double *)to.data;
  return 1;
}

/* What was normalised: of the shape and dtype of its gradient. */
static int read_kept(Job *job, int m, PyObject *x, Order order) {
  Job other = {0};
  View kept;
  if (!read_tensor(x, &kept) || is_signed(x) || !place(&other, 0, &kept, &kept, order)) return 0;
  if (other.dtype != job->dtype || other.lead != job->lead || other.tokens != job->tokens ||
      other.width != job->width || other.of[0].heads != job->of[m].heads)
    return 0;
  for (int i = 0; i < job->lead; i++)
    if (other.sizes[i] != job->sizes[i]) return 0;
  const Tensor *from = &other.of[0];
  Tensor *to = &job->of[m];
  to->kept = from->in;
  memcpy(to->kept_lead, from->in_lead, sizeof to->kept_lead);
  to->kept_head = from->in_head;
  to->kept_token = from->in_token;
  to->kept_channel = from->in_channel;
  return 1;
}

/* back(gradient of q, of k, rotation, tensor_format, True, None, None, Norm, q, k, sums of q, of k): through a norm
   that comes first. Writes the sums for the gradients of the weights. */
static PyObject *back(PyObject *self, PyObject *const *a, Py_ssize_t n) {
  (void)self;
  Job job = {.norm.back = 1};
  Call call;
  if (n != 12) return PyErr_Format(PyExc_TypeError, "back takes 12 arguments");
  int fits = read_call(&job, a, NULL, 0, &call) && read_normed(&job, a, &call) && !job.norm.after;
  for (int m = 0; m < call.count && fits; m++)
    fits = read_kept(&job, m, a[8 + m], call.order) && read_sums(&job, m, a[10 + m]);
  PyObject *done = fits ? rotated(&job, &call) : decline();
  drop_weights(&job);
  return done;
}
