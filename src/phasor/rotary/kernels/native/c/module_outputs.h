/* Part of module.c: outputs that the caller gives, by the rules of apply/outputs.py. */

static int64_t bytes_of(const View *x) { /* from its first element to the end of its last */
  if (is_empty(x)) return 0;
  int64_t last = 0;
  for (int i = 0; i < x->rank; i++) last += (x->shape[i] - 1) * x->strides[i];
  return (last + 1) * (x->dtype.bits / 8);
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

/* An axis along which the first of two tensors reaches `up` steps, and the second `down`. */
typedef struct {
  int64_t stride, up, down;
} Way;
enum { LONGEST_SEARCH = 1 << 12 };

/* Whether the sum of stride * n is `apart` for some -down <= n <= up, longest strides first; yes where it is not soon
   told. */
static int meet(int64_t apart, const Way *way, int count, int *left) {
  if (--*left < 0) return 1;
  if (!count) return apart == 0;
  int64_t most = 0, least = 0;
  for (int i = 1; i < count; i++) {
    most += way[i].stride * way[i].up;
    least -= way[i].stride * way[i].down;
  }
  const int64_t low = apart - most, high = apart - least, stride = way->stride;
  const int64_t from = low >= 0 ? (low + stride - 1) / stride : -(-low / stride),
                to = high >= 0 ? high / stride : -((-high + stride - 1) / stride);
  for (int64_t n = from > -way->down ? from : -way->down; n <= (to < way->up ? to : way->up); n++)
    if (meet(apart - stride * n, way + 1, count - 1, left)) return 1;
  return 0;
}

/* Whether two tensors share an address; of different dtypes, whether their stretches of memory meet. */
static int overlap(const View *a, const View *b) {
  const int64_t apart = (int64_t)((uintptr_t)b->data - (uintptr_t)a->data), size = a->dtype.bits / 8;
  if (is_empty(a) || is_empty(b) || apart >= bytes_of(a) || -apart >= bytes_of(b)) return 0;
  if (a->dtype.code != b->dtype.code || a->dtype.bits != b->dtype.bits || apart % size) return 1;
  if (a->rank + b->rank > 2 * MAX_AXES) return 1;
  Way ways[2 * MAX_AXES];
  int count = 0, left = LONGEST_SEARCH;
  for (int m = 0; m < 2; m++) {
    const View *x = m ? b : a;
    for (int i = 0; i < x->rank; i++) {
      if (x->shape[i] < 2 || !x->strides[i]) continue;
      int at = 0;
      while (at < count && ways[at].stride > x->strides[i]) at++;
      if (at == count || ways[at].stride != x->strides[i]) {
        memmove(ways + at + 1, ways + at, (size_t)(count++ - at) * sizeof *ways);
        ways[at] = (Way){.stride = x->strides[i]};
      }
      *(m ? &ways[at].down : &ways[at].up) += x->shape[i] - 1;
    }
  }
  return meet(apart / size, ways, count, &left);
}

static int same(const View *a, const View *b) { /* of equal shapes */
  for (int i = 0; i < a->rank; i++)
    if (a->shape[i] > 1 && a->strides[i] != b->strides[i]) return 0;
  return a->data == b->data;
}

/* Whether `y` can hold a result; `counted`: whether it has a version to count on. */
static int may_write(PyObject *y, const View *at, int *counted) {
  if (is_signed(y) || !(is_contiguous(at) || is_once(at))) return 0;
  *counted = falsy(PyObject_CallMethodObjArgs(y, s_is_inference, NULL));
  return *counted || !off(torch.inference_mode);
}

static void keep_apart(Job *job, int at, const View *x) { /* it is read while results are written */
  job->apart[at].from = x->data;
  job->apart[at].bytes = bytes_of(x);
}
static int is_apart(const Job *job, const View *y) {
  for (int i = 0; i < 2; i++)
    if ((uintptr_t)y->data < (uintptr_t)job->apart[i].from + (uintptr_t)job->apart[i].bytes &&
        (uintptr_t)job->apart[i].from < (uintptr_t)y->data + (uintptr_t)bytes_of(y))
      return 0;
  return 1;
}

/* Whether the results of x may go to y: each in place or apart, from everything else apart, and without a gradient. */
static int may_write_all(PyObject *const *x, PyObject *const *y, const View *in, const View *out, int count,
                         int gradients, int *counted) {
  for (int m = 0; m < count; m++) {
    if (gradients && (learns(x[m]) || (y[m] != x[m] && learns(y[m])))) return 0;
    if (!may_write(y[m], &out[m], &counted[m])) return 0;
    for (int n = 0; n < count; n++) {
      if (overlap(&out[m], &in[n]) && !(m == n && same(&out[m], &in[n]))) return 0;
      if (n < m && overlap(&out[m], &out[n])) return 0;
    }
  }
  return 1;
}

/* Autograd is told of what was written. 0 for an error of Python. */
static int count_versions(PyObject *const *y, const int *counted, int count) {
  PyObject *written = PyList_New(0), *done = NULL;
  int good = written != NULL;
  for (int m = 0; m < count && good; m++) good = !counted[m] || !PyList_Append(written, y[m]);
  if (good) done = PyObject_CallFunctionObjArgs(torch.increment_version, written, NULL);
  Py_XDECREF(written);
  Py_XDECREF(done);
  return done != NULL;
}
