/* What the parts of the extension share. The stable ABI of Python 3.11 is the first with the buffer protocol. */
#ifndef CGR_BINDINGS_PYTHON_CORE_H
#define CGR_BINDINGS_PYTHON_CORE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>

#include "cgr/bindings.h"
#include "generated.h" /* indices of types, texts of the headers */

/* *at becomes `with`, which it takes over. */
static inline void cgrpy_replace(PyObject **at, PyObject *with) {
  PyObject *before = *at;
  *at = with;
  Py_XDECREF(before);
}

/* ------------------------------------------------------------------------------------------------------------- structs */

typedef enum cgrpy_kind {
  CGRPY_INT,      /* a signed integer of `bytes` */
  CGRPY_UINT,     /* an unsigned one */
  CGRPY_FLOAT,    /* float or double */
  CGRPY_INTS,     /* an array of integers inside the struct: signed, */
  CGRPY_UINTS,    /* or not */
  CGRPY_CHARS,    /* a text inside the struct */
  CGRPY_TEXT,     /* const char * */
  CGRPY_DATA,     /* a pointer to numbers, or to anything */
  CGRPY_ARRAYS,   /* a pointer to several of these, each of which may be NULL */
  CGRPY_STRUCT,   /* a struct inside the struct */
  CGRPY_STRUCTS,  /* a pointer to structs: one, or as many as `count` says */
  CGRPY_DEVICE,   /* cgr_device * */
  CGRPY_STREAM,   /* cudaStream_t */
  CGRPY_CALLABLE, /* a function; what is called is kept, and the pointer is set for the call */
  CGRPY_OBJECT,   /* an object of Python's that C passes on; the pointer is not read */
  CGRPY_VALIDATE  /* of cgr_device_config.layer: a bool, the validation layer or none */
} cgrpy_kind;

typedef struct cgrpy_field {
  const char *name;
  cgrpy_kind kind;
  uint32_t offset, bytes;                /* in the struct; of one number of CGRPY_INTS and CGRPY_DATA (0: of anything) */
  int dims[2];                           /* of CGRPY_INTS; 0: none */
  int type;                              /* index of the struct of CGRPY_STRUCT and _STRUCTS; of CGRPY_DATA the kind of numbers */
  int keep;                              /* index of what keeps a pointer's memory, -1: none */
  int enumeration;                       /* index into cgrpy_enums, -1: plain numbers */
  bool writable;                         /* what the pointer points to is written */
  bool host;                             /* it points to memory of the host, also in what cgr returns */
  bool address;                          /* of what it points to the address alone matters: it may be in a GPU's memory */
  bool strided;                          /* it is the first element of an array with strides, which other fields tell */
  uint32_t count;                        /* 1 + offset of the int32_t that counts the elements; 0: none */
  int64_t (*length)(const void *fields); /* elements that a call reads or writes; NULL: not known */
  const char *doc;
} cgrpy_field;

typedef struct cgrpy_struct {
  const char *name; /* "cgr.Batch" */
  const char *doc;
  uint32_t size;
  int init; /* cgr_struct, -1: zeros */
  int num_fields, num_keeps;
  const cgrpy_field *fields;
  PyMethodDef *methods;
} cgrpy_struct;

/* A struct, or `count` of them in a row. `owner` NULL: data and keeps are its own. */
typedef struct cgrpy_object {
  PyObject_HEAD const cgrpy_struct *info;
  char *data;
  PyObject **keeps;  /* [count][num_keeps] */
  PyObject *owner;   /* the object that this is a part of */
  PyObject *runtime; /* of a step, result or view: whose it is */
  Py_ssize_t count;
  enum { CGRPY_OWN, CGRPY_LENT, CGRPY_TAKEN_BACK } lent; /* its arrays are cgr's, during a call */
} cgrpy_object;

extern const cgrpy_struct cgrpy_structs[]; /* generated, as the next three */
extern const int cgrpy_num_structs;
extern PyObject *cgrpy_types[];         /* of cgrpy_structs */
extern const char *const cgrpy_enums[]; /* names of the classes */
extern const int cgrpy_num_enums;
extern PyObject *cgrpy_members[]; /* of each: {value: member} */
extern PyMethodDef cgrpy_functions[];
extern PyMethodDef cgrpy_device_methods[], cgrpy_runtime_methods[], cgrpy_recorder_methods[];

int cgrpy_add_structs(PyObject *module);
PyObject *cgrpy_new(int type, PyObject *runtime);
PyObject *cgrpy_new_array(int type, Py_ssize_t count, PyObject *runtime);
PyObject *cgrpy_list(PyObject *array); /* the structs of one, each by itself */
PyObject *cgrpy_copy(PyObject *object);
PyObject *cgrpy_copy_whole(PyObject *object); /* also of the structs that it points to */
int cgrpy_init(int type, void *data);         /* of one, as its _INIT macro */
/* A borrowed object of this type; None gives NULL if that is allowed. */
bool cgrpy_is(PyObject *object, int type, bool optional, const char *name, cgrpy_object **out);
/* Whether the arrays are as long as the other fields say. */
bool cgrpy_check(cgrpy_object *object);
bool cgrpy_check_host(cgrpy_object *object);          /* and in the host's memory */
bool cgrpy_check_on(bool host, cgrpy_object *object); /* the latter if `host`: of a device that computes there */
bool cgrpy_check_caches(const cgrpy_object *config);  /* whether the arrays of its layers hold the pages of their groups */
/* A new list of a sequence's items; `items` says of what. */
PyObject *cgrpy_sequence(PyObject *object, const char *name, const char *items);
/* A new array of copies of a sequence's structs. */
PyObject *cgrpy_array_of(PyObject *sequence, int type, const char *name);

static inline void *cgrpy_fields(cgrpy_object *object) { return object != NULL ? object->data : NULL; }
PyObject *cgrpy_member(int enumeration, long long value);

/* ------------------------------------------------------------------------------------------------------------- handles */

typedef enum cgrpy_handle_kind {
  CGRPY_HANDLE_DEVICE,
  CGRPY_HANDLE_STREAM,
  CGRPY_HANDLE_EVENT,
  CGRPY_HANDLE_MEMORY,
  CGRPY_HANDLE_RUNTIME,
  CGRPY_HANDLE_RECORDER,
  CGRPY_NUM_HANDLES
} cgrpy_handle_kind;

/* What `create` of a backend has made: kept until cgr ends it, or until the runtime lets go of what it calls. */
typedef struct cgrpy_state {
  struct cgrpy_state *next;
  PyObject *object; /* NULL: let go of */
} cgrpy_state;

enum { CGRPY_FUNCTIONS = 9 };

/* What cgr calls: Python functions, kept as long as the handle. */
typedef struct cgrpy_binding {
  struct cgrpy_binding *next;
  struct cgrpy_handle *handle; /* a runtime or device; borrowed */
  PyObject *functions[CGRPY_FUNCTIONS];
  cgrpy_state *states;
  bool memory; /* it keeps what graphs read, and calls nothing */
} cgrpy_binding;

typedef struct cgrpy_handle {
  PyObject_HEAD cgrpy_handle_kind kind;
  struct cgrpy_handle *after, **at; /* in the list of all */
  void *pointer;                    /* NULL: closed */
  struct cgrpy_handle *parent;      /* whose close waits for this one's: device of a stream, ... */
  Py_ssize_t pins;                  /* children and views that need it */
  Py_ssize_t deferred;              /* of a device: runtimes that are closed but pinned */
  Py_ssize_t users;                 /* calls under way without the GIL */
  unsigned long thread;             /* of the last of them */
  bool closing;                     /* closed for Python, but pinned */
  bool borrowed;                    /* not to be destroyed: a runtime's own device */
  bool pinned_memory, on_host;      /* of memory; of a device, and what is made from it */
  size_t bytes;                     /* of memory */
  PyObject *config;                 /* a runtime's, for what it keeps alive */
  cgrpy_binding *bindings;
  PyObject *record; /* the last binding of a capture is of this function */
  cgrpy_binding *record_binding;
  PyObject *calls;             /* {(function, arguments, types): itself}: what graphs call */
  struct cgrpy_handle *stream; /* of a runtime's last launch, which must outlive its steps */
  bool launched;               /* a runtime has, on that stream or on another library's */
  cgr_mark last;               /* of its last launch */
  bool plans_on_host;          /* a runtime calls Python in the midst of a prepare */
  bool capturing;              /* of a recorder */
  int32_t stream_ordinal;
} cgrpy_handle;

extern PyTypeObject *cgrpy_handle_types[CGRPY_NUM_HANDLES];
int cgrpy_add_handles(PyObject *module);
/* The handle if it is open, of the kind, and not in use by another thread; else NULL with an exception. */
cgrpy_handle *cgrpy_open(PyObject *object, cgrpy_handle_kind kind, const char *name);
/* The same for calls that any thread may make at any time. */
cgrpy_handle *cgrpy_open_any(PyObject *object, cgrpy_handle_kind kind, const char *name);
cgrpy_handle *cgrpy_handle_new(cgrpy_handle_kind kind, void *pointer, cgrpy_handle *parent);
void cgrpy_pin(cgrpy_handle *handle);
void cgrpy_unpin(cgrpy_handle *handle); /* the last one of a closed handle ends it */
cgrpy_binding *cgrpy_bind(cgrpy_handle *handle);
void cgrpy_unbind(cgrpy_handle *handle, cgrpy_binding *binding);
PyObject *cgrpy_device_of(cgrpy_handle *runtime);

static inline void *cgrpy_pointer(const cgrpy_handle *handle) { return handle != NULL ? handle->pointer : NULL; }

PyObject *cgrpy_finish_work(PyObject *module, PyObject *unused); /* before the interpreter exits */
bool cgrpy_may_call(void);                                       /* whether this thread may call Python */
bool cgrpy_may_launch(void);                                     /* if not, there is an exception */

/* A stream of cgr's or of another library; `handle` NULL: it is another's. */
typedef struct cgrpy_stream {
  cgrpy_handle *handle;
  cudaStream_t stream;
} cgrpy_stream;

/* ----------------------------------------------------------------------------------------------------------------- calls */

/* What a call without the GIL uses. */
typedef struct cgrpy_call {
  cgrpy_handle *used[3];
  PyThreadState *state;
} cgrpy_call;

void cgrpy_release_gil(cgrpy_call *call, cgrpy_handle *a, cgrpy_handle *b);
void cgrpy_take_gil(cgrpy_call *call);

/* Fills out[] by position and name; the first `required` must be there. `name` is the function's. */
bool cgrpy_arguments(const char *name, const char *const *names, int required, PyObject *const *args, Py_ssize_t nargs,
                     PyObject *keywords, PyObject **out);
PyObject *cgrpy_index(PyObject *object, const char *name); /* a new int */
bool cgrpy_i32(PyObject *object, const char *name, int32_t *out);
bool cgrpy_u32(PyObject *object, const char *name, uint32_t *out);
bool cgrpy_u64(PyObject *object, const char *name, uint64_t *out);
bool cgrpy_double(PyObject *object, const char *name, double *out);
bool cgrpy_to_stream(PyObject *object, cgrpy_stream *out);
bool cgrpy_mark(PyObject *object, cgr_mark *out);

/* Raises what a callback of this thread has raised, or a CgrError. Returns NULL. */
PyObject *cgrpy_raise(cgr_status status);
PyObject *cgrpy_raise_findings(cgr_status status, PyObject *findings);
PyObject *cgrpy_text(cgr_status (*write)(void *context, char *out, size_t capacity, size_t *length), void *context);
enum { CGRPY_FINDINGS = 256 }; /* of one call, at most */
PyObject *cgrpy_findings(const cgr_finding *findings, int32_t count);

/* --------------------------------------------------------------------------------------------------------------- buffers */

/* Kinds of numbers; a field's `type`. */
enum { CGRPY_ANY = 0, CGRPY_SIGNED = 1, CGRPY_UNSIGNED = 2, CGRPY_REAL = 3 };

/* Memory of an argument: of the host by the buffer protocol, or at an address. bytes -1: not known. */
typedef struct cgrpy_data {
  void *pointer;
  Py_ssize_t bytes;
  Py_ssize_t item; /* bytes of an element; 0: not known, 1 may be anything */
  bool on_device;  /* of a GPU: not for what the host reads */
  bool listed;     /* it was a list or tuple, which no one fills later: it has as many elements as are read */
  Py_buffer view;  /* view.obj NULL: none */
  PyObject *kept;
  PyObject *capsule; /* of DLPack, whose memory it may be; NULL: none */
} cgrpy_data;

bool cgrpy_to_data(PyObject *object, int numbers, int bytes, bool writable, const char *name, cgrpy_data *out);
/* The first element of what may have strides: their owner says where the others are. `bytes` is how far they reach. */
bool cgrpy_to_base(PyObject *object, bool writable, const char *name, cgrpy_data *out);
static inline bool cgrpy_given(const cgrpy_data *data) { return data->kept != NULL || data->view.obj != NULL; } /* not None */
void cgrpy_data_end(cgrpy_data *data);
/* Whether there are so many elements; else an exception. */
bool cgrpy_holds(const cgrpy_data *data, int64_t elements, int bytes, const char *name);
bool cgrpy_holds_on_host(const cgrpy_data *data, int64_t elements, int bytes, const char *name);
/* Whether the elements are as large as those of the cgr_dtype. */
bool cgrpy_fits(const cgrpy_data *data, int32_t dtype, const char *name);
bool cgrpy_holds_all(const cgrpy_data *data, int64_t elements, int bytes, const char *name); /* and no more, in a list */
PyObject *cgrpy_hold(cgrpy_data *data);                                                      /* takes it over */
const cgrpy_data *cgrpy_held(PyObject *hold);
PyObject *cgrpy_address(const void *pointer);
/* A memoryview of the host's memory, which pins the handle; NULL: the memory is copied. */
PyObject *cgrpy_view(cgrpy_handle *pinned, const void *pointer, char format, int bytes, const int64_t *shape, int dims);
bool cgrpy_is_array_of(PyObject *object, const cgrpy_handle *runtime);
/* Lets what is kept for a runtime's graphs not keep the runtime itself, whose memory lives as long as they do. */
void cgrpy_forget_arrays_of(PyObject *kept, const cgrpy_handle *runtime);
/* A cgr.Array of the runtime's bytes. */
PyObject *cgrpy_bytes_array(cgrpy_handle *runtime, void *pointer, uint64_t bytes);
/* A memoryview of the runtime's memory, for a call; and whether nothing has been kept of it, when the call ends. */
PyObject *cgrpy_lend(cgrpy_handle *runtime, void *pointer, char format, int bytes, int64_t count, bool writable,
                     PyObject **array);
bool cgrpy_take_back(PyObject *array, PyObject *view); /* references to both go */
PyObject *cgrpy_buffer_array(PyObject *self, PyObject *unused);
/* Whether it is a cgr.Array; then either *out is its memory or there is an exception. */
bool cgrpy_array_data(PyObject *object, int numbers, int bytes, const char *name, cgrpy_data *out);
int cgrpy_add_array(PyObject *module);
PyObject *cgrpy_memory_array(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *keywords);
extern PyTypeObject *cgrpy_array_type;
int cgrpy_add_buffers(PyObject *module);

/* ------------------------------------------------------------------------------------------------------------- callbacks */

extern PyObject *cgrpy_error; /* cgr.CgrError, and cgr.Address */
extern PyObject *cgrpy_address_type;

/* Of the recorder under way in this thread, if it is one of this GPU; NULL: there is none. */
cudaStream_t cgrpy_recorded_stream(int32_t ordinal);
bool cgrpy_take_pending(void); /* whether an exception of a callback is now raised */
/* The first exception of the device's host functions since the last look: whether it is now raised. It is reported otherwise. */
bool cgrpy_take_failure(const cgr_device *device);
bool cgrpy_take_failure_of(const cgrpy_handle *runtime); /* of its device */
void cgrpy_report_failure(const cgr_device *device);     /* NULL: of every device */
void cgrpy_forget_pending(void);
/* A copy of the config with its callbacks bound to the handle, which may be that of the call alone. */
bool cgrpy_bind_config(cgrpy_handle *handle, cgrpy_object *config, cgr_config *out, cgr_backend *backends);
bool cgrpy_bind_device_config(cgrpy_handle *handle, cgrpy_object *config, cgr_device_config *out);
void cgrpy_bindings_end(cgrpy_handle *handle);
void cgrpy_set_stream(cgrpy_handle *runtime, cgrpy_handle *stream);

/* What a field keeps: a callable, a device, an array of structs; or NULL. */
PyObject *cgrpy_kept(const cgrpy_object *object, const char *field);
/* What one of the arrays of CGRPY_ARRAYS keeps, borrowed; NULL: there is none. */
PyObject *cgrpy_one_of(PyObject *arrays, Py_ssize_t at);

/* Keeps what a stream reads later until it has, or as long as a graph holds it. Takes the objects over; returns None. */
PyObject *cgrpy_keep_until(cgrpy_handle *device, cudaStream_t stream, PyObject *const *objects, int count);
PyObject *cgrpy_keep_recorded(cgrpy_handle *recorder, PyObject *object);

PyObject *cgrpy_py_capture(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *keywords);
PyObject *cgrpy_py_warmup(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *keywords);
PyObject *cgrpy_py_estimate_capture(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *keywords);
PyObject *cgrpy_py_launch_host(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *keywords);
PyObject *cgrpy_py_validate(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *keywords);
PyObject *cgrpy_py_runtime_memory(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *keywords);
PyObject *cgrpy_py_backend_ask(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *keywords);
PyObject *cgrpy_py_record_call(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *keywords);
PyObject *cgrpy_py_record_info(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *keywords);
/* Lets go of the states of backends that plan, after their `destroy` if it is to be called. */
void cgrpy_drop_states(cgrpy_binding *binding, bool call);

/* -------------------------------------------------------------------------------------------------------------- the step */

PyObject *cgrpy_py_prepare(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *keywords);
PyObject *cgrpy_py_launch(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *keywords);
PyObject *cgrpy_py_cancel(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *keywords);
PyObject *cgrpy_py_wait(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *keywords);
PyObject *cgrpy_py_prepare_wait(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *keywords);
PyObject *cgrpy_py_requests_set_pages(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *keywords);
PyObject *cgrpy_py_requests_drop_pages(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *keywords);
PyObject *cgrpy_py_cascade_build(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *keywords);
PyObject *cgrpy_py_set_data(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *keywords);
PyObject *cgrpy_step_launch(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *keywords);
PyObject *cgrpy_step_cancel(PyObject *self, PyObject *unused);
PyObject *cgrpy_step_wait(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *keywords);

#endif
