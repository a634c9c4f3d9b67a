/* phasor.kernels._native: from Python to the kernel and back, for every Python from 3.11.

   Every function returns None when the tensors are not the plain ones of a CPU that it knows, whatever the reason: the
   caller then takes the general path, which also words the errors. Nothing here explains, and nothing guesses. */
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030b0000
#include <Python.h>

#include <string.h>
#if defined(__linux__)
#include <sys/mman.h>
#endif

#include "exchange.h"
#include "half.h"
#include "job.h"

typedef int (*ParallelFor)(int64_t first, int64_t last, int64_t grain, void (*)(int64_t, int64_t, void *), void *);

enum { ALONE = 1 << 15 };                 /* elements below which one thread is sooner done */
enum { HUGE = 4 << 20, STREAM = 8 << 20 };/* bytes from which outputs come in large pages, and go past the cache */
enum { SMALL_PAGE = 1 << 12 };

static struct {
  const Exchange *exchange;
  PyObject *tensor, *parameter, *rotation;                                        /* types */
  PyObject *grad_enabled, *functorch, *dispatch_modes, *function_modes, *tracing; /* functions of torch */
  PyObject *empty, *contiguous, *forward_ad, *learn;
  ParallelFor parallel_for;
  int huge_pages;
} torch;

static PyObject *s_requires_grad, *s_level, *s_is_neg, *s_cos, *s_sin, *s_layout, *s_per_head, *s_promoted, *s_second;
static PyObject *s_head_dim, *s_rotary_dim, *s_trailing, *s_interleaved, *s_blocks, *s_permuted;

static PyObject *decline(void) { PyErr_Clear(); Py_RETURN_NONE; }

/* ---- Whether this call may be taken at all ---- */

/* Whether a new reference is False, None or 0. An error is not. */
static int falsy(PyObject *value) {
  if (!value) { PyErr_Clear(); return 0; }
  int is = value == Py_False || value == Py_None;
  if (!is && PyLong_Check(value) && value != Py_True) is = PyLong_AsLong(value) == 0;
  Py_DECREF(value);
  return is;
}
static int off(PyObject *function) { return falsy(PyObject_CallNoArgs(function)); }

/* Nothing traces, transforms, intercepts, or differentiates forwards. */
static int undisturbed(void) {
  if (!off(torch.functorch) || !off(torch.dispatch_modes) || !off(torch.function_modes) || !off(torch.tracing)) return 0;
  PyObject *level = PyObject_GetAttr(torch.forward_ad, s_level);
  if (!level) { PyErr_Clear(); return 0; }
  const long at = PyLong_AsLong(level);
  Py_DECREF(level);
  return at < 0;
}

/* ---- Tensors ---- */

static int is_empty(const View *x) {
  for (int i = 0; i < x->rank; i++) if (x->shape[i] == 0) return 1;
  return 0;
}

/* A plain tensor of the CPU with memory of its own: autograd's lazy zeros have none. */
static int read_tensor(PyObject *x, View *to) {
  PyObject *type = (PyObject *)Py_TYPE(x);
  if (type != torch.tensor && type != torch.parameter) return 0;
  if (torch.exchange->view(x, to)) { PyErr_Clear(); return 0; }
  if (to->device.type != 1 || to->dtype.lanes != 1 || (!to->data && !is_empty(to))) return 0;
  if (to->data) to->data += to->offset;
  return (uintptr_t)to->data % (to->dtype.bits < 8 ? 1 : to->dtype.bits / 8) == 0; /* a mapped file may lie at odd addresses */
}

static int float_kind(const View *x) {
  if (x->dtype.code == 2) return x->dtype.bits == 32 ? F32 : x->dtype.bits == 16 ? F16 : -1;
  return x->dtype.code == 4 && x->dtype.bits == 16 ? BF16 : -1;
}

/* The lazy sign of z.conj().imag: its memory holds the other one. */
static int is_signed(PyObject *x) { return !falsy(PyObject_CallMethodObjArgs(x, s_is_neg, NULL)); }
static int learns(PyObject *x) { return !falsy(PyObject_GetAttr(x, s_requires_grad)); }

static int is_contiguous(const View *x) {
  uint64_t due = 1; /* an empty one may have sizes whose product is no number */
  for (int i = x->rank; i-- > 0; due *= (uint64_t)x->shape[i]) if (x->shape[i] != 1 && (uint64_t)x->strides[i] != due) return 0;
  return 1;
}

/* Contiguous, as that of a contiguous one is unasked, which is sooner done. */
static PyObject *new_like(PyObject *x, const View *view) {
  PyObject *args = PyTuple_Pack(1, x), *made = args ? PyObject_Call(torch.empty, args, is_contiguous(view) ? NULL : torch.contiguous) : NULL;
  Py_XDECREF(args);
  return made;
}

/* ---- The order of axes ---- */

typedef struct { int heads, tokens, batch; } Order; /* axes counted from the end; batch 0: all that remain in front */

static int read_order(PyObject *format, const View *q, Order *to) {
  const struct { const char *name; Order order; int rank; } known[] = {
    {"bhsd", {3, 2, 0}, 0}, {"bshd", {2, 3, 0}, 0}, {"sbhd", {2, 4, 3}, 4}, {"thd", {2, 3, 0}, 3},
  };
  for (size_t i = 0; PyUnicode_Check(format) && i < sizeof known / sizeof *known; i++)
    if (!PyUnicode_CompareWithASCIIString(format, known[i].name)) {
      *to = known[i].order;
      return !known[i].rank || q->rank == known[i].rank;
    }
  return 0;
}

/* Fill in one tensor and what is written for it. */
static int place(Job *job, int at, const View *x, const View *y, Order order) {
  const int rank = x->rank, h = rank - order.heads, s = rank - order.tokens;
  const int lead = order.batch ? 1 : rank - 3;
  if (rank < 3 || lead > MAX_LEAD || (order.batch && rank != 4) || y->rank != rank) return 0;
  const int kind = float_kind(x);
  if (kind < 0 || kind != float_kind(y)) return 0;
  if (at && (lead != job->lead || x->shape[s] != job->tokens || x->shape[rank - 1] != job->width || kind != job->dtype)) return 0;
  Tensor *of = &job->of[at];
  int64_t batch = 1;
  for (int i = 0; i < lead; i++) {
    const int axis = order.batch ? rank - order.batch : i;
    if (at && job->sizes[i] != x->shape[axis]) return 0;
    batch *= job->sizes[i] = x->shape[axis];
    of->in_lead[i] = x->strides[axis];
    of->out_lead[i] = y->strides[axis];
  }
  for (int i = 0; i < rank; i++) if (x->shape[i] != y->shape[i]) return 0;
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

/* ---- What turns them ---- */

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

typedef struct { PyObject *of; int64_t head_dim, rotary_dim, blocks; int trailing, interleaved, permuted; } Lies;

/* The fields of a Layout, which is immutable: those of the last one are kept, with a reference to it. */
static const Lies *read_layout(PyObject *layout) {
  static Lies kept;
  if (kept.of == layout) return &kept;
  Lies read = {.of = layout};
  if (!whole_of(layout, s_head_dim, &read.head_dim) || !whole_of(layout, s_rotary_dim, &read.rotary_dim) ||
      !whole_of(layout, s_blocks, &read.blocks) || !flag_of(layout, s_trailing, &read.trailing) ||
      !flag_of(layout, s_interleaved, &read.interleaved) || !flag_of(layout, s_permuted, &read.permuted)) return NULL;
  if (read.rotary_dim > read.head_dim || read.rotary_dim % 2 || read.rotary_dim / 2 % read.blocks ||
      (read.blocks > 1 && (read.interleaved || read.permuted))) return NULL; /* as Layout says, and memory relies on it */
  PyObject *before = kept.of;
  Py_INCREF(layout);
  kept = read;
  Py_XDECREF(before);
  return &kept;
}

static int lay_out(Job *job, PyObject *layout, int transposed) {
  const Lies *lies = layout ? read_layout(layout) : NULL;
  if (!lies || lies->head_dim != job->width) return 0;
  job->pairs = lies->rotary_dim / 2;
  job->first = lies->trailing ? lies->head_dim - lies->rotary_dim : 0;
  job->blocks = lies->blocks;
  job->permuted = lies->permuted;
  job->interleaved = lies->interleaved ^ (transposed && lies->permuted);
  job->through |= lies->permuted;
  return fits(job);
}

/* cos and sin of a Rotation; only if nothing of it needs a gradient. */
static int read_tables(Job *job, PyObject *cos, PyObject *sin, int per_head, int gradients) {
  View c, s;
  if (!read_tensor(cos, &c) || !read_tensor(sin, &s) || is_signed(cos) || is_signed(sin)) return 0;
  const int rank = c.rank, batched = rank == 3 + per_head, kind = float_kind(&c);
  if (kind < 0 || kind != float_kind(&s) || s.rank != rank || (rank != 2 + per_head && !batched)) return 0;
  for (int i = 0; i < rank; i++) if (c.shape[i] != s.shape[i] || (c.shape[i] > 1 && c.strides[i] != s.strides[i])) return 0;
  if (c.shape[rank - 1] != job->pairs || c.shape[rank - 2] != job->tokens) return 0;
  if (per_head) for (int m = 0; m < job->count; m++) if (job->of[m].heads != c.shape[rank - 3]) return 0;
  if (batched && (!job->lead || (c.shape[0] != 1 && c.shape[0] != job->sizes[job->lead - 1]))) return 0;
  if (gradients && (learns(cos) || learns(sin))) return 0;
  job->per_head = per_head;
  job->rounded = kind == job->dtype && kind != F32;
  Tables *t = &job->tables;
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
      !flag_of(rotation, s_promoted, &promoted)) return 0;
  PyObject *second = PyObject_GetAttr(rotation, s_second), *layout = PyObject_GetAttr(rotation, s_layout);
  PyObject *cos = PyObject_GetAttr(rotation, s_cos), *sin = PyObject_GetAttr(rotation, s_sin);
  const int fits = second == Py_None && lay_out(job, layout, transposed) && cos && sin && read_tables(job, cos, sin, per_head, gradients);
  Py_XDECREF(second);
  Py_XDECREF(layout);
  Py_XDECREF(cos); /* the rotation holds them */
  Py_XDECREF(sin);
  job->sign = transposed ? -1.0f : 1.0f;
  /* promoted results have the dtype of the tables */
  return fits && (!promoted || job->dtype == F32 || job->rounded);
}

typedef struct { PyObject *layout; float sign, factor; int axes; int64_t pairs, steps[]; } Plan;

static int read_phases(Job *job, PyObject *positions, const Plan *plan, int transposed) {
  View at;
  if (!read_tensor(positions, &at) || is_signed(positions) || at.dtype.code != 0 || (at.dtype.bits != 64 && at.dtype.bits != 32)) return 0;
  const int axes = plan->axes > 1, rank = at.rank, batched = rank == axes + 2;
  if ((rank != axes + 1 && !batched) || (axes && at.shape[0] != plan->axes) || at.shape[rank - 1] != job->tokens) return 0;
  if (batched && (!job->lead || (at.shape[axes] != 1 && at.shape[axes] != job->sizes[job->lead - 1]))) return 0;
  if (!lay_out(job, plan->layout, transposed) || job->pairs != plan->pairs) return 0;
  Phases *p = &job->phases;
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

/* ---- The work ---- */

static void part(int64_t first, int64_t last, void *job) { turn_tiles((const Job *)job, first, last); }
static void pieces(int64_t first, int64_t last, void *job) { turn_pieces((const Job *)job, first, last); }

/* Whether every row of the output begins and ends at 64 bytes, and is not its own input. */
static int may_stream(const Job *job, const Tensor *of, int64_t size) {
  uintptr_t steps = (uintptr_t)of->out | (uintptr_t)(of->out_head * size) | (uintptr_t)(of->out_token * size);
  for (int i = 0; i < job->lead; i++) steps |= (uintptr_t)(of->out_lead[i] * size);
  steps |= (uintptr_t)(job->first * size) | (uintptr_t)(job->pairs / job->blocks * size);
  return of->in != of->out && steps % 64 == 0;
}

static void run(Job *job, int fresh) {
  if (!job->batch || !job->tokens || !(job->of[0].heads + job->of[1].heads)) return; /* other sizes may be any */
  int64_t elements = 0, tiles = tiles_of(job), size = job->dtype == F32 ? 4 : 2;
  for (int m = 0; m < job->count; m++) elements += job->batch * job->tokens * job->of[m].heads * job->width;
  if (job->norm.back) { /* its sums are the same on any number of threads */
    Py_BEGIN_ALLOW_THREADS
    if (torch.parallel_for && elements >= ALONE) torch.parallel_for(0, PIECES, 1, pieces, job);
    else turn_pieces(job, 0, PIECES);
    Py_END_ALLOW_THREADS
    return;
  }
  if (elements < ALONE) { turn_tiles(job, 0, tiles); return; }
  job->streamed = !job->norm.rounding && !job->slots.of && elements * size >= STREAM && !job->through && (!fresh || torch.huge_pages);
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
  Py_BEGIN_ALLOW_THREADS
  if (torch.parallel_for) torch.parallel_for(0, tiles, 1 + ALONE * tiles / elements, part, job);
  else turn_tiles(job, 0, tiles);
  Py_END_ALLOW_THREADS
}

typedef struct { PyObject *x[2], *out[2]; Order order; int count, transposed; } Call;

/* q, k, angles, tensor_format, transposed, out of q, out of k; None for no k and for new outputs. */
static int read_call(Job *job, PyObject *const *a, Call *call) {
  *call = (Call){.x = {a[0], a[1]}, .out = {a[5] == Py_None ? NULL : a[5], a[6]}, .count = a[1] == Py_None ? 1 : 2, .transposed = a[4] == Py_True};
  for (int m = 0; m < call->count; m++) {
    View in;
    if (!read_tensor(call->x[m], &in) || (!m && !read_order(a[3], &in, &call->order)) || is_signed(call->x[m]) || !place(job, m, &in, &in, call->order)) return 0;
  }
  return undisturbed();
}

/* The turned pair: new tensors, or those given. */
static PyObject *turned(Job *job, const Call *call) {
  PyObject *y[2] = {NULL, NULL}, *pair = NULL;
  int placed = 1;
  for (int m = 0; m < call->count && placed; m++) {
    View in, out;
    placed = read_tensor(call->x[m], &in);
    y[m] = !placed ? NULL : call->out[0] ? call->out[m] : new_like(call->x[m], &in);
    if (call->out[0]) Py_XINCREF(y[m]);
    placed = y[m] && read_tensor(y[m], &out) && !(call->out[0] && is_signed(y[m])) && place(job, m, &in, &out, call->order);
  }
  if (placed) {
    run(job, !call->out[0]);
    pair = PyTuple_Pack(2, y[0], y[1] ? y[1] : Py_None);
  }
  Py_XDECREF(y[0]);
  Py_XDECREF(y[1]);
  return pair ? pair : decline();
}

/* Whether a result must be able to pass a gradient back. */
static int wanted(const Call *call) {
  return !call->out[0] && !off(torch.grad_enabled) && (learns(call->x[0]) || (call->count > 1 && learns(call->x[1])));
}

/* learn(q, k, angles, tensor_format, transposed, plan) of phasor.kernels.native_turn: the same with a way back */
static PyObject *learnt(PyObject *const *a, PyObject *plan) {
  PyObject *args = PyTuple_Pack(6, a[0], a[1], a[2], a[3], a[4], plan), *pair = args ? PyObject_CallObject(torch.learn, args) : NULL;
  Py_XDECREF(args);
  return pair;
}

/* apply(q, k, rotation, tensor_format, transposed, out of q, out of k) */
static PyObject *apply(PyObject *self, PyObject *const *a, Py_ssize_t n) {
  (void)self;
  Job job = {0};
  Call call;
  if (n != 7) return PyErr_Format(PyExc_TypeError, "apply takes 7 arguments");
  if (!read_call(&job, a, &call) || !read_rotation(&job, a[2], call.transposed, !off(torch.grad_enabled))) return decline();
  return wanted(&call) ? learnt(a, Py_None) : turned(&job, &call);
}

/* rotate(q, k, positions, tensor_format, transposed, out of q, out of k, (plan, ...)) */
static PyObject *rotate(PyObject *self, PyObject *const *a, Py_ssize_t n) {
  (void)self;
  Job job = {0};
  Call call;
  if (n != 8 || !PyTuple_Check(a[7])) return PyErr_Format(PyExc_TypeError, "rotate takes 8 arguments, the last one a tuple");
  const Plan *plan = (const Plan *)PyCapsule_GetPointer(PyTuple_GetItem(a[7], 0), "phasor.plan");
  if (!plan) return NULL;
  if (!read_call(&job, a, &call) || !read_phases(&job, a[2], plan, call.transposed)) return decline();
  return wanted(&call) ? learnt(a, a[7]) : turned(&job, &call);
}

#include "module_norm.h"
#include "module_cache.h"

static void drop_plan(PyObject *capsule) {
  Plan *plan = (Plan *)PyCapsule_GetPointer(capsule, "phasor.plan");
  Py_DECREF(plan->layout);
  PyMem_Free(plan);
}

/* plan(layout, sign, factor, steps: the bytes of int64 [axes, pairs], pairs): what the kernel needs of a spec */
static PyObject *plan(PyObject *self, PyObject *args) {
  (void)self;
  PyObject *layout;
  double sign, factor;
  const char *steps;
  Py_ssize_t length;
  long long pairs;
  if (!PyArg_ParseTuple(args, "Oddy#L", &layout, &sign, &factor, &steps, &length, &pairs)) return NULL;
  if (pairs < 1 || pairs > MAX_PAIRS || !length || length % (8 * pairs)) return PyErr_Format(PyExc_ValueError, "steps must be [axes, pairs]");
  Plan *made = (Plan *)PyMem_Calloc(1, sizeof(Plan) + (size_t)length);
  if (!made) return PyErr_NoMemory();
  Py_INCREF(layout);
  *made = (Plan){.layout = layout, .sign = (float)sign, .factor = (float)factor, .axes = (int)(length / (8 * pairs)), .pairs = pairs};
  memcpy(made->steps, steps, (size_t)length);
  PyObject *capsule = PyCapsule_New(made, "phasor.plan", drop_plan);
  if (!capsule) { Py_DECREF(layout); PyMem_Free(made); }
  return capsule;
}

/* ---- Binding ---- */

/* bind(exchange, (Tensor, Parameter, Rotation), guards, empty_like, its keywords, forward_ad, learn, parallel_for, huge pages) */
static PyObject *bind(PyObject *self, PyObject *args) {
  (void)self;
  PyObject *capsule, *types, *guards;
  unsigned long long parallel_for;
  if (!PyArg_ParseTuple(args, "OO!O!OOOOKp", &capsule, &PyTuple_Type, &types, &PyTuple_Type, &guards, &torch.empty, &torch.contiguous, &torch.forward_ad, &torch.learn, &parallel_for, &torch.huge_pages)) return NULL;
  torch.exchange = (const Exchange *)PyCapsule_GetPointer(capsule, "dlpack_exchange_api");
  while (torch.exchange && torch.exchange->version.major != 1) torch.exchange = torch.exchange->older;
  if (!torch.exchange || !torch.exchange->view) return PyErr_Format(PyExc_ImportError, "this torch has no DLPack exchange of version 1");
  if (!PyArg_ParseTuple(types, "OOO", &torch.tensor, &torch.parameter, &torch.rotation)) return NULL;
  if (!PyArg_ParseTuple(guards, "OOOOO", &torch.grad_enabled, &torch.functorch, &torch.dispatch_modes, &torch.function_modes, &torch.tracing)) return NULL;
  PyObject *kept[] = {types, guards, torch.empty, torch.contiguous, torch.forward_ad, torch.learn}; /* for the life of the process */
  for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) Py_INCREF(kept[i]);
  torch.parallel_for = (ParallelFor)(uintptr_t)parallel_for;
  Py_RETURN_NONE;
}

/* use(name): these instructions from now on, the best ones for None; "" only asks. The name of those in use.
   ValueError for a set that this machine lacks. */
static PyObject *use(PyObject *self, PyObject *name) {
  (void)self;
  PyObject *text = name == Py_None ? NULL : PyUnicode_AsUTF8String(name);
  if (name != Py_None && !text) return NULL;
  const char *wanted = text ? PyBytes_AsString(text) : NULL;
  const int done = (wanted && !*wanted) || choose_instructions(wanted);
  Py_XDECREF(text);
  return done ? PyUnicode_FromString(instructions()) : PyErr_Format(PyExc_ValueError, "this machine has no %S", name);
}

static PyMethodDef methods[] = {
  {"apply", (PyCFunction)(void (*)(void))apply, METH_FASTCALL, NULL},
  {"rotate", (PyCFunction)(void (*)(void))rotate, METH_FASTCALL, NULL},
  {"norm_and_turn", (PyCFunction)(void (*)(void))norm_and_turn, METH_FASTCALL, NULL},
  {"back", (PyCFunction)(void (*)(void))back, METH_FASTCALL, NULL},
  {"turn_into_cache", (PyCFunction)(void (*)(void))turn_into_cache, METH_FASTCALL, NULL},
  {"plan", plan, METH_VARARGS, NULL},
  {"bind", bind, METH_VARARGS, NULL},
  {"use", use, METH_O, NULL},
  {NULL, NULL, 0, NULL},
};
static PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_native", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__native(void) {
  const struct { PyObject **to; const char *name; } names[] = {
    {&s_requires_grad, "requires_grad"}, {&s_level, "_current_level"}, {&s_is_neg, "is_neg"}, {&s_cos, "cos"}, {&s_sin, "sin"},
    {&s_layout, "layout"}, {&s_per_head, "per_head"}, {&s_promoted, "promoted"}, {&s_second, "second"},
    {&s_head_dim, "head_dim"}, {&s_rotary_dim, "rotary_dim"}, {&s_trailing, "trailing"}, {&s_interleaved, "interleaved"},
    {&s_blocks, "blocks"}, {&s_permuted, "permuted"},
  };
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (!(*names[i].to = PyUnicode_InternFromString(names[i].name))) return NULL;
  choose_instructions(NULL);
  return PyModule_Create(&definition);
}
