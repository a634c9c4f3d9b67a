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
#include "sizes.h"

#include "module_state.h"

#include "module_guards.h"
#include "module_tensors.h"
#include "module_outputs.h"
#include "module_angles.h"
#include "module_run.h"

/* One translation unit in several files: a call for one token is 2 us long, and the compiler inlines across them. */

typedef int64_t Axes[2][2 * MAX_AXES];
typedef struct {
  PyObject *x[2], *out[2]; /* no first output: new ones */
  View in[2]; /* of x: reading them twice takes as long as a few rows */
  Axes axes;
  Order order;
  int count, transposed, gradients, apart; /* gradients are kept; k has tokens of its own, and is the next job */
  int64_t heads, width; /* of q, and the width of all, where the last axis holds them side by side; else 0 */
} Call;

static int read_sizes(PyObject *heads, PyObject *layout, Call *call) {
  if (heads == Py_None) return 1;
  const LayoutFields *fields = layout && PyLong_Check(heads) && heads != Py_True ? read_layout(layout) : NULL;
  call->heads = fields ? PyLong_AsLongLong(heads) : 0;
  call->width = fields ? fields->head_dim : 0;
  return call->heads > 0 && call->order.heads == 2; /* flat heads follow the tokens */
}

static int place_in(Job *job, int m, const View *x, const View *y, const Call *call) {
  return call->apart ? place(job + m, 0, x, y, call->order) : place(job, m, x, y, call->order);
}

/* q, k, angles, tensor_format, transposed, num_heads, outputs; None for no k, for heads with an axis of their own, and
   for new outputs, which are one tensor or a pair. */
static int read_call(Job *job, PyObject *const *a, PyObject *layout, int apart, Call *call) {
  *call = (Call){
      .x = {a[0], a[1]}, .count = a[1] == Py_None ? 1 : 2, .transposed = a[4] == Py_True, .apart = apart};
  call->gradients = !off(torch.grad_enabled);
  if (a[6] != Py_None) {
    const int pair = PyTuple_Check(a[6]);
    if (pair && PyTuple_Size(a[6]) != 2) return 0;
    call->out[0] = pair ? PyTuple_GetItem(a[6], 0) : a[6];
    call->out[1] = pair ? PyTuple_GetItem(a[6], 1) : Py_None;
    if (call->out[0] == Py_None || (call->out[1] == Py_None) != (call->count == 1)) return 0;
  }
  if (!read_order(a[3], &call->order) || !read_sizes(a[5], layout, call)) return 0;
  for (int m = 0; m < call->count; m++) {
    View *in = &call->in[m];
    if (!read_heads(call->x[m], in, m ? 0 : call->heads, call->width, call->axes[m]) || is_signed(call->x[m]) ||
        !place_in(job, m, in, in, call))
      return 0;
  }
  return undisturbed();
}

/* The rotated pair: new tensors, or those given. */
static PyObject *rotated(Job *job, const Call *call) {
  PyObject *y[2] = {NULL, NULL}, *pair = NULL;
  View out[2] = {0};
  Axes of_out;
  int placed = 1, counted[2] = {0}, done = 1;
  const int given = call->out[0] != NULL;
  for (int m = 0; m < call->count && placed; m++) {
    y[m] = given ? call->out[m] : new_like(call->x[m], &call->in[m]);
    if (given) Py_XINCREF(y[m]);
    placed = y[m] && read_heads(y[m], &out[m], 0, call->width, of_out[m]) &&
             place_in(job, m, &call->in[m], &out[m], call) &&
             (!given || (is_apart(job, &out[m]) && (!call->apart || is_apart(job + 1, &out[m]))));
  }
  if (placed && (!given || may_write_all(call->x, y, call->in, out, call->count, call->gradients, counted))) {
    for (int m = 0; m < (call->apart ? call->count : 1); m++) run(job + m, !given);
    done = !given || count_versions(y, counted, call->count);
    pair = done ? PyTuple_Pack(2, y[0], y[1] ? y[1] : Py_None) : NULL;
  }
  Py_XDECREF(y[0]);
  Py_XDECREF(y[1]);
  return pair || !done ? pair : decline();
}

/* Whether a result must be able to pass a gradient back. */
static int wanted(const Call *call) {
  return !call->out[0] && call->gradients && (learns(call->x[0]) || (call->count > 1 && learns(call->x[1])));
}

/* learn(q, k, angles, tensor_format, transposed, plan) of native/autograd.py: the same with a way back. Flat heads are
   left to the general path, which makes an axis of them. */
static PyObject *learnt(PyObject *const *a, PyObject *plan) {
  if (a[5] != Py_None) return decline();
  PyObject *args = PyTuple_Pack(6, a[0], a[1], a[2], a[3], a[4], plan),
           *pair = args ? PyObject_CallObject(torch.learn, args) : NULL;
  Py_XDECREF(args);
  return pair;
}

/* The layout of a Rotation; a new reference, or NULL. */
static PyObject *layout_of(PyObject *rotation) {
  return (PyObject *)Py_TYPE(rotation) == torch.rotation ? PyObject_GetAttr(rotation, s_layout) : NULL;
}
static int read_tables_call(Job *job, PyObject *const *a, int apart, Call *call) {
  PyObject *layout = a[5] == Py_None ? NULL : layout_of(a[2]);
  const int done = read_call(job, a, layout, apart, call);
  Py_XDECREF(layout);
  return done;
}

/* apply(q, k, rotation, tensor_format, transposed, num_heads, outputs, rotation of k or None) */
static PyObject *apply(PyObject *self, PyObject *const *a, Py_ssize_t n) {
  (void)self;
  Job job[2] = {0};
  Call call;
  if (n != 8) return PyErr_Format(PyExc_TypeError, "apply takes 8 arguments");
  const int apart = a[7] != Py_None && a[1] != Py_None;
  if (!read_tables_call(job, a, apart, &call) || !read_rotation(job, a[2], call.transposed, call.gradients) ||
      (apart && !read_rotation(job + 1, a[7], call.transposed, call.gradients)))
    return decline();
  return !wanted(&call) ? rotated(job, &call) : apart ? decline() : learnt(a, Py_None);
}

/* rotate(q, k, positions, tensor_format, transposed, num_heads, outputs, positions of k or None, (plan, ...)) */
static PyObject *rotate(PyObject *self, PyObject *const *a, Py_ssize_t n) {
  (void)self;
  Job job[2] = {0};
  Call call;
  if (n != 9 || !PyTuple_Check(a[8]))
    return PyErr_Format(PyExc_TypeError, "rotate takes 9 arguments, the last one a tuple");
  const Plan *plan = (const Plan *)PyCapsule_GetPointer(PyTuple_GetItem(a[8], 0), "phasor.plan");
  if (!plan) return NULL;
  const int apart = a[7] != Py_None && a[1] != Py_None;
  if (!read_call(job, a, plan->layout, apart, &call) || !read_phases(job, a[2], plan, call.transposed) ||
      (apart && !read_phases(job + 1, a[7], plan, call.transposed)))
    return decline();
  return !wanted(&call) ? rotated(job, &call) : apart ? decline() : learnt(a, a[8]);
}

#include "module_packed.h"
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
  if (pairs < 1 || pairs > MAX_PAIRS || !length || length % (8 * pairs))
    return PyErr_Format(PyExc_ValueError, "steps must be [axes, pairs]");
  Plan *made = (Plan *)PyMem_Calloc(1, sizeof(Plan) + (size_t)length);
  if (!made) return PyErr_NoMemory();
  Py_INCREF(layout);
  const int axes = (int)(length / (8 * pairs));
  *made = (Plan){.layout = layout, .sign = (float)sign, .factor = (float)factor, .axes = axes, .pairs = pairs};
  memcpy(made->steps, steps, (size_t)length);
  PyObject *capsule = PyCapsule_New(made, "phasor.plan", drop_plan);
  if (!capsule) {
    Py_DECREF(layout);
    PyMem_Free(made);
  }
  return capsule;
}

/* ---- Binding ---- */

/* bind(exchange, (Tensor, Parameter, Rotation), guards, empty_like, its keywords, forward_ad, learn, increment_version,
   parallel_for, get_num_threads, huge pages) */
static PyObject *bind(PyObject *self, PyObject *args) {
  (void)self;
  PyObject *capsule, *types, *guards;
  unsigned long long parallel_for, threads;
  if (!PyArg_ParseTuple(args, "OO!O!OOOOOKKp", &capsule, &PyTuple_Type, &types, &PyTuple_Type, &guards, &torch.empty,
                        &torch.contiguous, &torch.forward_ad, &torch.learn, &torch.increment_version, &parallel_for,
                        &threads, &torch.huge_pages))
    return NULL;
  torch.exchange = (const Exchange *)PyCapsule_GetPointer(capsule, "dlpack_exchange_api");
  while (torch.exchange && torch.exchange->version.major != 1) torch.exchange = torch.exchange->older;
  if (!torch.exchange || !torch.exchange->view)
    return PyErr_Format(PyExc_ImportError, "this torch has no DLPack exchange of version 1");
  if (!PyArg_ParseTuple(types, "OOO", &torch.tensor, &torch.parameter, &torch.rotation)) return NULL;
  if (!PyArg_ParseTuple(guards, "OOOOOO", &torch.grad_enabled, &torch.inference_mode, &torch.functorch,
                        &torch.dispatch_modes, &torch.function_modes, &torch.tracing))
    return NULL;
  PyObject *kept[] = {types, guards, torch.empty, torch.contiguous, torch.forward_ad, torch.learn,
                      torch.increment_version}; /* for the life of the process */
  for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) Py_INCREF(kept[i]);
  torch.parallel_for = (ParallelFor)(uintptr_t)parallel_for;
  torch.threads = (Threads)(uintptr_t)threads;
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
    {"apply_packed", (PyCFunction)(void (*)(void))apply_packed, METH_FASTCALL, NULL},
    {"norm_and_rotate", (PyCFunction)(void (*)(void))norm_and_rotate, METH_FASTCALL, NULL},
    {"back", (PyCFunction)(void (*)(void))back, METH_FASTCALL, NULL},
    {"rotate_into_cache", (PyCFunction)(void (*)(void))rotate_into_cache, METH_FASTCALL, NULL},
    {"plan", plan, METH_VARARGS, NULL},
    {"bind", bind, METH_VARARGS, NULL},
    {"use", use, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};
static PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_native", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__native(void) {
  const struct {
    PyObject **to;
    const char *name;
  } names[] = {
      {&s_requires_grad, "requires_grad"}, {&s_level, "_current_level"}, {&s_is_neg, "is_neg"}, {&s_cos, "cos"},
      {&s_sin, "sin"}, {&s_layout, "layout"}, {&s_per_head, "per_head"}, {&s_promoted, "promoted"},
      {&s_second, "second"}, {&s_head_dim, "head_dim"}, {&s_rotary_dim, "rotary_dim"}, {&s_trailing, "trailing"},
      {&s_interleaved, "interleaved"}, {&s_blocks, "blocks"}, {&s_permuted, "permuted"},
      {&s_is_inference, "is_inference"},
  };
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (!(*names[i].to = PyUnicode_InternFromString(names[i].name))) return NULL;
  choose_instructions(NULL);
  return PyModule_Create(&definition);
}
