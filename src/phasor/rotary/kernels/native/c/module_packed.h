/* Part of module.c: projections that hold queries, keys and values in one tensor. */

/* [..., seq, 3, heads, channels] as [..., seq, 3 heads, channels]. */
static int read_packed(PyObject *x, View *to, int apart, int64_t *axes) {
  if (!read_tensor(x, to) || to->rank < 3 + apart || to->rank > MAX_AXES) return 0;
  if (!apart) return 1;
  const int at = to->rank - 3;
  if (to->shape[at] != 3 || (to->shape[at + 1] > 1 && to->strides[at] != to->shape[at + 1] * to->strides[at + 1]))
    return 0;
  int64_t *shape = axes, *strides = axes + MAX_AXES;
  for (int i = 0; i < to->rank - 1; i++) {
    shape[i] = i == at ? 3 * to->shape[at + 1] : to->shape[i + (i > at)];
    strides[i] = to->strides[i + (i >= at)];
  }
  if (to->shape[at + 1] == 1) strides[at] = to->strides[at];
  to->shape = shape;
  to->strides = strides;
  to->rank--;
  return 1;
}

/* apply_packed(qkv, rotation, num_heads of q or None, output or None): queries and keys rotated, values copied */
static PyObject *apply_packed(PyObject *self, PyObject *const *a, Py_ssize_t n) {
  (void)self;
  Job job = {0};
  View in, out;
  Axes axes;
  const Order order = {2, 3, 0, 0};
  if (n != 4) return PyErr_Format(PyExc_TypeError, "apply_packed takes 4 arguments");
  const int apart = a[2] == Py_None, given = a[3] != Py_None;
  if (!apart && !(PyLong_Check(a[2]) && a[2] != Py_True)) return decline();
  if (!read_packed(a[0], &in, apart, axes[0]) || is_signed(a[0]) || !place(&job, 0, &in, &in, order) || !undisturbed())
    return decline();
  const int64_t all = in.shape[in.rank - 2], heads = apart ? all / 3 : PyLong_AsLongLong(a[2]);
  if (heads < 1 || heads >= all || (all - heads) % 2) return decline();
  job.of[0].heads = (all + heads) / 2;
  const int gradients = !off(torch.grad_enabled);
  if (!read_rotation(&job, a[1], 0, gradients) || (gradients && learns(a[0]))) return decline();
  PyObject *y = given ? a[3] : new_like(a[0], &in);
  int counted = 0;
  if (given) Py_INCREF(y);
  if (y && read_packed(a[0], &in, apart, axes[0]) && read_packed(y, &out, apart, axes[1]) &&
      place(&job, 0, &in, &out, order) &&
      (!given || (is_apart(&job, &out) && may_write_all(a, &y, &in, &out, 1, gradients, &counted)))) {
    job.of[0].heads = (all + heads) / 2;
    job.of[0].passing = all - job.of[0].heads;
    run(&job, !given);
    if (given && !count_versions(&y, &counted, 1)) Py_CLEAR(y);
    return y;
  }
  Py_XDECREF(y);
  return decline();
}
