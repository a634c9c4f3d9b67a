/* Part of module.c: whether a call may be taken at all: nothing may trace, transform, intercept or differentiate
 * forwards. */

/* Whether a new reference is False, None or 0. An error is not. */
static int falsy(PyObject *value) {
  if (!value) {
    PyErr_Clear();
    return 0;
  }
  int is = value == Py_False || value == Py_None;
  if (!is && PyLong_Check(value) && value != Py_True) is = PyLong_AsLong(value) == 0;
  Py_DECREF(value);
  return is;
}
static int off(PyObject *function) { return falsy(PyObject_CallNoArgs(function)); }

/* Nothing traces, transforms, intercepts, or differentiates forwards. */
static int undisturbed(void) {
  if (!off(torch.functorch) || !off(torch.dispatch_modes) || !off(torch.function_modes) || !off(torch.tracing))
    return 0;
  PyObject *level = PyObject_GetAttr(torch.forward_ad, s_level);
  if (!level) {
    PyErr_Clear();
    return 0;
  }
  const long at = PyLong_AsLong(level);
  Py_DECREF(level);
  return at < 0;
}
