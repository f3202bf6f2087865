/* The module cgr._cgr. */
#include "core.h"

/* What the layer in Python defines: the exception, the class of addresses, and the members of each enum. */
static PyObject *module_register(PyObject *module, PyObject *args) {
  PyObject *error, *address, *members;
  (void)module;
  if (!PyArg_ParseTuple(args, "OOO!", &error, &address, &PyDict_Type, &members))
    return NULL;
  cgrpy_replace(&cgrpy_error, Py_NewRef(error));
  cgrpy_replace(&cgrpy_address_type, Py_NewRef(address));
  for (int i = 0; i < cgrpy_num_enums; i++)
    cgrpy_replace(&cgrpy_members[i], Py_XNewRef(PyDict_GetItemString(members, cgrpy_enums[i])));
  Py_RETURN_NONE;
}

PyMODINIT_FUNC PyInit__cgr(void) {
  static PyMethodDef methods[] = {
    { "_register", module_register, METH_VARARGS, NULL },
    { "_finish_work", cgrpy_finish_work, METH_NOARGS, NULL },
    { NULL, NULL, 0, NULL },
  };
  static struct PyModuleDef definition = { PyModuleDef_HEAD_INIT, "cgr._cgr", NULL, -1, methods, NULL, NULL, NULL, NULL };
  PyObject *module = PyModule_Create(&definition);
  if (module == NULL)
    return NULL;
  if (PyModule_AddFunctions(module, cgrpy_functions) < 0 || cgrpy_add_structs(module) < 0 || cgrpy_add_handles(module) < 0 ||
      cgrpy_add_buffers(module) < 0)
    Py_CLEAR(module);
  return module;
}
