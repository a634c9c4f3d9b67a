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

#include "module_state.h"

#include "module_guards.h"
#include "module_tensors.h"
#include "module_angles.h"
#include "module_run.h"

/* One translation unit in several files: a call for one token is 2 us long, and the compiler inlines across them. */

typedef struct {
  PyObject *x[2], *out[2];
  Order order;
  int count, transposed;
} Call;

/* q, k, angles, tensor_format, transposed, out of q, out of k; None for no k and for new outputs. */
static int read_call(Job *job, PyObject *const *a, Call *call) {
  *call = (Call){.x = {a[0], a[1]},
                 .out = {a[5] == Py_None ? NULL : a[5], a[6]},
                 .count = a[1] == Py_None ? 1 : 2,
                 .transposed = a[4] == Py_True};
  for (int m = 0; m < call->count; m++) {
    View in;
    if (!read_tensor(call->x[m], &in) || (!m && !read_order(a[3], &in, &call->order)) || is_signed(call->x[m]) ||
        !place(job, m, &in, &in, call->order))
      return 0;
  }
  return undisturbed();
}

/* The rotated pair: new tensors, or those given. */
static PyObject *rotated(Job *job, const Call *call) {
  PyObject *y[2] = {NULL, NULL}, *pair = NULL;
  int placed = 1;
  for (int m = 0; m < call->count && placed; m++) {
    View in, out;
    placed = read_tensor(call->x[m], &in);
    y[m] = !placed ? NULL : call->out[0] ? call->out[m] : new_like(call->x[m], &in);
    if (call->out[0]) Py_XINCREF(y[m]);
    placed =
        y[m] && read_tensor(y[m], &out) && !(call->out[0] && is_signed(y[m])) && place(job, m, &in, &out, call->order);
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

/* learn(q, k, angles, tensor_format, transposed, plan) of native/autograd.py: the same with a way back */
static PyObject *learnt(PyObject *const *a, PyObject *plan) {
  PyObject *args = PyTuple_Pack(6, a[0], a[1], a[2], a[3], a[4], plan),
           *pair = args ? PyObject_CallObject(torch.learn, args) : NULL;
  Py_XDECREF(args);
  return pair;
}

/* apply(q, k, rotation, tensor_format, transposed, out of q, out of k) */
static PyObject *apply(PyObject *self, PyObject *const *a, Py_ssize_t n) {
  (void)self;
  Job job = {0};
  Call call;
  if (n != 7) return PyErr_Format(PyExc_TypeError, "apply takes 7 arguments");
  if (!read_call(&job, a, &call) || !read_rotation(&job, a[2], call.transposed, !off(torch.grad_enabled)))
    return decline();
  return wanted(&call) ? learnt(a, Py_None) : rotated(&job, &call);
}

/* rotate(q, k, positions, tensor_format, transposed, out of q, out of k, (plan, ...)) */
static PyObject *rotate(PyObject *self, PyObject *const *a, Py_ssize_t n) {
  (void)self;
  Job job = {0};
  Call call;
  if (n != 8 || !PyTuple_Check(a[7]))
    return PyErr_Format(PyExc_TypeError, "rotate takes 8 arguments, the last one a tuple");
  const Plan *plan = (const Plan *)PyCapsule_GetPointer(PyTuple_GetItem(a[7], 0), "phasor.plan");
  if (!plan) return NULL;
  if (!read_call(&job, a, &call) || !read_phases(&job, a[2], plan, call.transposed)) return decline();
  return wanted(&call) ? learnt(a, a[7]) : rotated(&job, &call);
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
  if (pairs < 1 || pairs > MAX_PAIRS || !length || length % (8 * pairs))
    return PyErr_Format(PyExc_ValueError, "steps must be [axes, pairs]");
  Plan *made = (Plan *)PyMem_Calloc(1, sizeof(Plan) + (size_t)length);
  if (!made) return PyErr_NoMemory();
  Py_INCREF(layout);
  *made = (Plan){.layout = layout,
                 .sign = (float)sign,
                 .factor = (float)factor,
                 .axes = (int)(length / (8 * pairs)),
                 .pairs = pairs};
  memcpy(made->steps, steps, (size_t)length);
  PyObject *capsule = PyCapsule_New(made, "phasor.plan", drop_plan);
  if (!capsule) {
    Py_DECREF(layout);
    PyMem_Free(made);
  }
  return capsule;
}

/* ---- Binding ---- */

/* bind(exchange, (Tensor, Parameter, Rotation), guards, empty_like, its keywords, forward_ad, learn, parallel_for, huge
 * pages) */
static PyObject *bind(PyObject *self, PyObject *args) {
  (void)self;
  PyObject *capsule, *types, *guards;
  unsigned long long parallel_for;
  if (!PyArg_ParseTuple(args, "OO!O!OOOOKp", &capsule, &PyTuple_Type, &types, &PyTuple_Type, &guards, &torch.empty,
                        &torch.contiguous, &torch.forward_ad, &torch.learn, &parallel_for, &torch.huge_pages))
    return NULL;
  torch.exchange = (const Exchange *)PyCapsule_GetPointer(capsule, "dlpack_exchange_api");
  while (torch.exchange && torch.exchange->version.major != 1) torch.exchange = torch.exchange->older;
  if (!torch.exchange || !torch.exchange->view)
    return PyErr_Format(PyExc_ImportError, "this torch has no DLPack exchange of version 1");
  if (!PyArg_ParseTuple(types, "OOO", &torch.tensor, &torch.parameter, &torch.rotation)) return NULL;
  if (!PyArg_ParseTuple(guards, "OOOOO", &torch.grad_enabled, &torch.functorch, &torch.dispatch_modes,
                        &torch.function_modes, &torch.tracing))
    return NULL;
  PyObject *kept[] = {types,      guards, torch.empty, torch.contiguous, torch.forward_ad,
                      torch.learn}; /* for the life of the process */
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
      {&s_requires_grad, "requires_grad"},
      {&s_level, "_current_level"},
      {&s_is_neg, "is_neg"},
      {&s_cos, "cos"},
      {&s_sin, "sin"},
      {&s_layout, "layout"},
      {&s_per_head, "per_head"},
      {&s_promoted, "promoted"},
      {&s_second, "second"},
      {&s_head_dim, "head_dim"},
      {&s_rotary_dim, "rotary_dim"},
      {&s_trailing, "trailing"},
      {&s_interleaved, "interleaved"},
      {&s_blocks, "blocks"},
      {&s_permuted, "permuted"},
  };
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (!(*names[i].to = PyUnicode_InternFromString(names[i].name))) return NULL;
  choose_instructions(NULL);
  return PyModule_Create(&definition);
}
