/* What every header of cgr starts from: the rules of the interface, statuses, element types, the version.
 *
 * Rules that hold for all headers
 * - A function that can fail returns a cgr_status; the others return a name, a number or an address. Nothing aborts, exits, prints
 *   or throws. After a failure cgr_last_message names the function, the argument, what it got and what it expected. Addresses are
 *   taken on trust: a handle that was destroyed, or memory that does not exist, may crash, even with the validation layer. What
 *   begins in memory of cgr_memory_alloc must end in it: configurations, warm-ups, captures and self-tests check that;
 *   eager steps do over the layer.
 * - Sized structs. A struct whose first field is `size` may grow: new fields are added at the end. Initialise it with its _INIT
 *   macro, or as a binding for another language does: `size` is its size, in cgr_config `magic` is CGR_CONFIG_MAGIC and `version`
 *   CGR_HEADER_VERSION, and all else is zero. A shorter struct (an older caller) is completed with zeros. A longer one (a newer
 *   caller) is accepted if everything this library does not know is zero, and refused with CGR_ERROR_NEWER_STRUCT otherwise; one
 *   of more than 4096 bytes, or of a size that is no multiple of 8, is refused with CGR_ERROR_INVALID_STRUCT. An array of them is
 *   stepped through by the size of its first element, and an element of another size is refused. An output struct is filled as
 *   far as this library knows it and the caller has room; the rest stays as it is. Structs without `size` never grow.
 * - In every struct that is read, zero selects the default; a field without a default rejects zero. Fields named `reserved` are 0;
 *   in such a struct anything else is refused with CGR_ERROR_NEWER_STRUCT.
 * - A text is written as far as it fits into `capacity` bytes, a closing zero included; `*length` is the length of the whole text
 *   without that zero, so that a call with capacity 0 and `out` NULL asks for it. The next call may have more to write: steps have
 *   completed, and times get longer. A text is whole if *length < capacity.
 * - A function that enqueues work takes the stream as its last argument: one of cgr_stream_create, or a CUDA stream
 *   that the engine created. CUDA's default streams (NULL, legacy, per-thread) are refused: they belong to the calling thread's current
 *   device, not to a handle.
 * - Every prototype carries one line:  Threads · Capture · Sync · Alloc
 *     Threads  any: callable from any thread at any time; one: one thread at a time per object
 *     Capture  ok: legal while the calling thread captures a stream; no: refused or meaningless then; adds: adds nodes
 *     Sync     never: never waits for the device; may: may wait for it
 *     Alloc    never: allocates nothing; cold: may allocate memory of the host or the device
 */
#ifndef CGR_BASE_H
#define CGR_BASE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define CGR_API __attribute__((visibility("default")))
#else
#define CGR_API
#endif

/* Until 1.0 a runtime and this header must be of the same minor version; cgr_config.version carries it. */
#define CGR_VERSION_MAJOR 0
#define CGR_VERSION_MINOR 11
#define CGR_VERSION_PATCH 0
#define CGR_VERSION (CGR_VERSION_MAJOR * 10000 + CGR_VERSION_MINOR * 100 + CGR_VERSION_PATCH)
/* The same for bindings, whose generators see no macros; all other integer constants are enumerators too. */
enum { CGR_HEADER_VERSION = CGR_VERSION };

/* ---------------------------------------------------------------------------------------------------------------- status */

/* X(name, number, text). Numbers are never reused. */
#define CGR_STATUS_LIST(X)                                                                                          \
  X(CGR_OK, 0, "success")                                                                                           \
  X(CGR_NOT_READY, 1, "the step has not completed yet")                                                             \
  X(CGR_ERROR_NULL_POINTER, 2, "a required pointer is NULL")                                                        \
  X(CGR_ERROR_INVALID_STRUCT, 3, "a struct's size, magic or version is not a valid one")                            \
  X(CGR_ERROR_INVALID_ENUM, 4, "an enumerator or flag is not one this library knows")                               \
  X(CGR_ERROR_INVALID_ARGUMENT, 5, "an argument is out of its range")                                               \
  X(CGR_ERROR_PAGE_OUT_OF_RANGE, 6, "a page number is outside the pool or reserved")                                \
  X(CGR_ERROR_ROW_CLOSED, 7, "a request row is not open")                                                           \
  X(CGR_ERROR_ROW_REPEATED, 8, "a request row is in the batch twice")                                               \
  X(CGR_ERROR_TOO_MANY_REQUESTS, 9, "more requests than the configured limit")                                      \
  X(CGR_ERROR_TOO_MANY_TOKENS, 10, "more tokens than the configured limit")                                         \
  X(CGR_ERROR_SEQUENCE_TOO_LONG, 11, "a sequence would pass the longest that was configured")                       \
  X(CGR_ERROR_PAGES_MISSING, 12, "a row has no page for a token that the step needs")                               \
  X(CGR_ERROR_BUSY, 13, "the ring is full: a step in flight must complete first")                                   \
  X(CGR_ERROR_STATE, 14, "the call does not fit the state of the object")                                           \
  X(CGR_ERROR_UNSUPPORTED, 15, "this version or this device does not support what was asked")                       \
  X(CGR_ERROR_OUT_OF_MEMORY, 16, "no memory on the host or on the device")                                          \
  X(CGR_ERROR_STALE_GRAPH, 17, "a region that the graph holds has moved, or record has changed, since its capture") \
  X(CGR_ERROR_CAPTURE, 18, "a capture failed, or the call is illegal during capture")                               \
  X(CGR_ERROR_CALLBACK, 19, "a callback of the engine failed")                                                      \
  X(CGR_ERROR_FALLBACK, 20, "strict mode: no captured graph fits the step")                                         \
  X(CGR_ERROR_EXPIRED, 21, "the result of that step has been overwritten")                                          \
  X(CGR_ERROR_STEP, 22, "a guard on the device refused a part of the step")                                         \
  X(CGR_ERROR_DEVICE, 23, "a call of the device failed")                                                            \
  X(CGR_ERROR_DEAD, 24, "the device is lost: only reports and destroying still work")                               \
  X(CGR_ERROR_NEWER_STRUCT, 25, "a struct sets fields that this library does not know")                             \
  X(CGR_ERROR_CHANGES_PENDING, 26, "more changes are pending than the free ring slots hold: flush them")            \
  X(CGR_ERROR_SELF_TEST, 27, "a replay differs from the eager step")                                                \
  X(CGR_ERROR_AUDIT, 28, "a graph holds what a replay must not depend on")                                          \
  X(CGR_ERROR_RANK, 29, "another rank has ended or failed, or the ranks have parted")

typedef enum cgr_status {
#define CGR_STATUS_ENUM(name, number, text) name = number,
  CGR_STATUS_LIST(CGR_STATUS_ENUM)
#undef CGR_STATUS_ENUM
  CGR_STATUS_MAX_ = 0x7fffffff
} cgr_status;

/* Name ("CGR_ERROR_BUSY") and text of a status; static storage, never NULL.
 * Threads any · Capture ok · Sync never · Alloc never */
CGR_API const char *cgr_status_name(cgr_status status);
CGR_API const char *cgr_status_text(cgr_status status);

/* The message of the last call that failed on this thread; "" if none has. Valid until the next failure on this thread.
 * A poll (timeout_ms 0) that answers CGR_NOT_READY leaves it as it was.
 * Threads any · Capture ok · Sync never · Alloc never */
CGR_API const char *cgr_last_message(void);

/* The code of the device's own API (a CUresult or cudaError_t) behind the last CGR_ERROR_DEVICE, CGR_ERROR_CAPTURE or
 * CGR_ERROR_DEAD on this thread; 0 if there was none.
 * Threads any · Capture ok · Sync never · Alloc never */
CGR_API int cgr_last_device_code(void);

/* CGR_VERSION of the library that was linked, and how it was built ("cgr 0.11.0, with CUDA 13.0 and NVTX").
 * Threads any · Capture ok · Sync never · Alloc never */
CGR_API int cgr_version(void);
CGR_API const char *cgr_build_info(void);

/* ----------------------------------------------------------------------------------------------------------------- types */

typedef enum cgr_log_level { CGR_LOG_ERROR = 1, CGR_LOG_WARNING = 2, CGR_LOG_INFO = 3 } cgr_log_level;
typedef void (*cgr_log_function)(void *context, cgr_log_level level, const char *message);

typedef enum cgr_dtype {
  CGR_DTYPE_NONE = 0,
  CGR_DTYPE_FP32 = 1,
  CGR_DTYPE_FP16 = 2,
  CGR_DTYPE_BF16 = 3,
  CGR_DTYPE_FP8_E4M3 = 4,
  CGR_DTYPE_I8 = 5,
  CGR_DTYPE_I32 = 6,
  CGR_DTYPE_I64 = 7,
  CGR_DTYPE_FP8_E5M2 = 8,
  CGR_DTYPE_U8 = 9,
  /* Two elements to a byte, the one with the even number in its low four bits. Strides count elements, as of every dtype: 32 of
   * them are 16 bytes. Only for what engines' own kernels read or write: caches (cgr_kv_view), and results of fp4_e2m1
   * (cgr_layer.out_dtype). */
  CGR_DTYPE_FP4_E2M1 = 10,
  CGR_DTYPE_I4 = 11
} cgr_dtype;

/* Bytes of one element; 0 for an unknown dtype, and for those of 4 bits.
 * Threads any · Capture ok · Sync never · Alloc never */
CGR_API size_t cgr_dtype_size(cgr_dtype dtype);

/* Bits of one element, 4 .. 64; 0 for an unknown dtype.
 * Threads any · Capture ok · Sync never · Alloc never */
CGR_API size_t cgr_dtype_bits(cgr_dtype dtype);

/* A reason why something cannot be done, or something that a test of graphs has found. */
typedef struct cgr_finding {
  int32_t status;   /* cgr_status that the call would return for it alone */
  int32_t layer;    /* index into cgr_config.layers, or -1 */
  int32_t group;    /* index into cgr_config.groups, or -1 */
  int32_t reserved;
  char field[48];   /* "max_tokens", "layers[3].head_dim"; of a self-test or an audit the graph, as "full 8r 8t q1 v0": kind, padded
                       requests and tokens, query length (0: mixed) and variant of its key */
  char text[192];   /* what it is and what was expected */
} cgr_finding;

#ifdef __cplusplus
}
#endif
#endif
