/* What dlpack.h of DLPack 1.3 declares, as far as it is used here. Versions with the same major number only add to it. */
#ifndef CGR_BINDINGS_PYTHON_DLPACK_H
#define CGR_BINDINGS_PYTHON_DLPACK_H

#include <stdint.h>

enum { DL_CPU = 1, DL_CUDA = 2, DL_CUDA_HOST = 3, DL_CUDA_MANAGED = 13 }; /* devices */
enum { DL_INT = 0, DL_UINT = 1, DL_FLOAT = 2 };                           /* codes of dtypes */
enum { DL_MAJOR = 1, DL_MINOR = 3, DL_READ_ONLY = 1 };

typedef struct dl_tensor {
  void *data;
  int32_t device_type, device_id;
  int32_t ndim;
  uint8_t code, bits;
  uint16_t lanes;
  int64_t *shape, *strides; /* in elements; strides NULL: dense */
  uint64_t byte_offset;
} dl_tensor;

typedef struct dl_managed {
  dl_tensor tensor;
  void *context;
  void (*deleter)(struct dl_managed *self);
} dl_managed;

typedef struct dl_versioned {
  uint32_t major, minor;
  void *context;
  void (*deleter)(struct dl_versioned *self);
  uint64_t flags;
  dl_tensor tensor;
} dl_versioned;

/* The functions of a type of tensors, in its attribute __dlpack_c_exchange_api__: a capsule "dlpack_exchange_api". 0: done; else
 * there is an exception, except of allocate, which calls fail. None orders streams. */
typedef struct dl_exchange {
  uint32_t major, minor;
  struct dl_exchange *older; /* NULL: none */
  int (*allocate)(dl_tensor *like, dl_versioned **out, void *context,
                  void (*fail)(void *, const char *kind, const char *message));
  int (*give)(void *object, dl_versioned **out);
  int (*take)(dl_versioned *tensor, void **out);
  int (*view)(void *object, dl_tensor *out); /* good as long as the object; may be NULL */
  int (*stream)(int32_t device_type, int32_t device_id, void **out);
} dl_exchange;

#endif
