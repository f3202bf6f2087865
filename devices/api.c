/* The public functions of devices, memory, streams, events and work: validation with messages, one call of the device's table,
 * and the count of what is alive. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/choices.h"
#include "base/limits.h"
#include "base/sized.h"
#include "base/status.h"
#include "devices/allocations.h"
#include "devices/device.h"
#include "devices/error.h"
#include "devices/holders.h"

/* ------------------------------------------------------------------------------------------------------- validation */

static cgr_status check_device(const cgr_device *device, const char *function) {
  CGR__REQUIRE(device, function);
  if (device->magic == CGR__DEVICE_MAGIC)
    return CGR_OK;
  return cgr__fail(CGR_ERROR_INVALID_STRUCT, "%s: device has magic 0x%08x, expected 0x%08x: it is not open", function,
                   (unsigned)device->magic, (unsigned)CGR__DEVICE_MAGIC);
}

static _Thread_local int32_t step_depth; /* of functions of the engine's in steps that this thread is in */

void cgr__device_step_enter(void) { step_depth++; }

void cgr__device_step_leave(void) { step_depth--; }

static cgr_status check_outside_step(const char *function) {
  if (step_depth == 0)
    return CGR_OK;
  return cgr__fail(CGR_ERROR_STATE, "%s: called inside `record` or a call of a step, expected a call outside of it", function);
}

static cgr_status check_stream_argument(const cgr_device *device, cudaStream_t stream, const char *function) {
  CGR__TRY(check_device(device, function));
  if (!cgr__is_default_stream(stream))
    return CGR_OK;
  return cgr__fail(CGR_ERROR_INVALID_ARGUMENT,
                   "%s: stream is %s, expected one of cgr_stream_create, or another that is not a default stream", function,
                   stream ? "CUDA's default one" : "NULL");
}

/* A device says that an argument was bad, but not which one: the message lists the values of the possible ones and what was
 * expected of them. A layer's explanation takes the place of the latter. */
static cgr_status status_of_error(cgr_device *device, int error, const char *function, const char *values, const char *expected) {
  char what[320];
  if (error == CGR__DEVICE_OK)
    return CGR_OK;
  bool bad = error == CGR__DEVICE_INVALID && !(device->explain && device->explain(device));
  snprintf(what, sizeof what, "%s: %s%s%s", function, values, bad ? ", expected " : "", bad ? expected : "");
  return cgr__device_fail(device, error, what);
}

static cgr_status answer_stream(cgr_device *device, int error, const char *function, cudaStream_t stream) {
  char values[40];
  if (error == CGR__DEVICE_OK)
    return CGR_OK;
  snprintf(values, sizeof values, "stream is %p", (void *)stream);
  return status_of_error(device, error, function, values, "one of this device that has not been destroyed");
}

static cgr_status answer_event(cgr_device *device, int error, const char *function, const cgr_event *event, cudaStream_t stream) {
  char values[80];
  if (error == CGR__DEVICE_OK)
    return CGR_OK;
  snprintf(values, sizeof values, "event is %p and stream is %p", (const void *)event, (void *)stream);
  return status_of_error(device, error, function, values, "ones of this device that have not been destroyed");
}

/* `src` NULL: the function has none. */
static cgr_status answer_work(cgr_device *device, int error, const char *function, const void *dst, const void *src, size_t bytes,
                              cudaStream_t stream) {
  char source[40] = "", values[160];
  if (error == CGR__DEVICE_OK)
    return CGR_OK;
  if (src)
    snprintf(source, sizeof source, ", src is %p", src);
  snprintf(values, sizeof values, "dst is %p%s, bytes is %zu and stream is %p", dst, source, bytes, (void *)stream);
  return status_of_error(device, error, function, values,
                         "addresses that this device can access for all `bytes`, and one of its streams");
}

/* ------------------------------------------------------------------------------------------------- what is alive */

static void count_object(int32_t *kind, int32_t change) { __atomic_add_fetch(kind, change, __ATOMIC_RELAXED); }

static void count_made(int32_t *kind, int error) {
  if (error == CGR__DEVICE_OK)
    count_object(kind, 1);
}

/* A failure that may have taken effect has destroyed its object. */
static void count_destroyed(int32_t *kind, int error) {
  if (!cgr__device_did_nothing(error))
    count_object(kind, -1);
}

static cgr_status check_nothing_alive(cgr_device *device) {
  const struct {
    int32_t *kind;
    const char *one, *many;
  } kinds[] = {
    { &device->live.runtimes, "runtime", "runtimes" },
    { &device->live.streams, "stream", "streams" },
    { &device->live.events, "event", "events" },
    { &device->live.allocations, "allocation", "allocations" },
  };
  char text[128] = "";
  int used = 0, total = 0;
  for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
    int alive = __atomic_load_n(kinds[i].kind, __ATOMIC_ACQUIRE);
    if (alive <= 0)
      continue;
    used += snprintf(text + used, sizeof text - (size_t)used, "%s%d %s", total ? ", " : "", alive,
                     alive == 1 ? kinds[i].one : kinds[i].many);
    total += alive;
  }
  if (total == 0)
    return CGR_OK;
  return cgr__fail(CGR_ERROR_STATE, "cgr_device_close: %s %s alive, expected none", text, total == 1 ? "is" : "are");
}

/* ---------------------------------------------------------------------------------------------------------- opening */

/* "cuda" or "cuda:" and a number without sign or leading zero. */
static bool parse_cuda(const char *name, int *ordinal) {
  *ordinal = 0;
  if (strncmp(name, "cuda", 4) != 0)
    return false;
  if (name[4] == '\0')
    return true;
  const char *digit = name + 5;
  if (name[4] != ':' || *digit == '\0' || (*digit == '0' && digit[1] != '\0'))
    return false;
  for (; *digit != '\0'; digit++) {
    if (*digit < '0' || *digit > '9' || *ordinal > 9999)
      return false;
    *ordinal = *ordinal * 10 + (*digit - '0');
  }
  return true;
}

static cgr_status read_config(const cgr_device_config *given, cgr_device_config *config) {
  static const cgr_device_config defaults = CGR_DEVICE_CONFIG_INIT;
  *config = defaults;
  if (!given)
    return CGR_OK;
  CGR__TRY(cgr__sized_read("cgr_device_open: config", "CGR_DEVICE_CONFIG_INIT", given, config, sizeof *config));
  CGR__TRY(cgr__check_choice("cgr_device_open", "config->host_schedule", &cgr__host_schedules, config->host_schedule));
  if (config->max_capability < 0)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT,
                     "cgr_device_open: config->max_capability is %d, expected 0 or a compute capability such as 90",
                     config->max_capability);
  if (config->reserved != 0)
    return cgr__fail(CGR_ERROR_NEWER_STRUCT, "cgr_device_open: config->reserved is %d, expected 0", config->reserved);
  if (config->layer && !config->layer->open)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT,
                     "cgr_device_open: config->layer has no function, expected a layer such as cgr_validation_layer()");
  return CGR_OK;
}

static cgr_status open_host(const cgr_device_config *config, cgr_device **device) {
  return cgr__device_fail(NULL, cgr__host_device_open(config, device), "cgr_device_open: the host device");
}

/* Why there is no such GPU. */
static cgr_status no_gpu(int ordinal, const struct cgr__gpus *probe) {
  char why[160];
  int have = probe->driver_version, want = probe->required_version, count = probe->num_devices;
  switch (probe->state) {
  case CGR__CUDA_NOT_BUILT:
    snprintf(why, sizeof why, "this build has no CUDA, expected \"host\"");
    break;
  case CGR__CUDA_NO_DRIVER:
    snprintf(why, sizeof why, "no driver was found (code %d), expected libcuda.so.1 of CUDA %d.%d or later", probe->raw,
             want / 1000, want % 1000 / 10);
    break;
  case CGR__CUDA_OLD_DRIVER:
    snprintf(why, sizeof why, "the driver is of CUDA %d.%d, expected %d.%d or later", have / 1000, have % 1000 / 10, want / 1000,
             want % 1000 / 10);
    break;
  case CGR__CUDA_BROKEN:
    snprintf(why, sizeof why, "the driver does not start (code %d)", probe->raw);
    break;
  case CGR__CUDA_NO_GPU:
    snprintf(why, sizeof why,
             "no GPU is visible (code %d), expected one that nvidia-smi lists and CUDA_VISIBLE_DEVICES does not hide",
             probe->raw);
    break;
  case CGR__CUDA_READY:
    snprintf(why, sizeof why, "there %s %d GPU%s, expected an ordinal below %d", count == 1 ? "is" : "are", count,
             count == 1 ? "" : "s", count);
    break;
  }
  cgr__set_device_code(probe->raw);
  return cgr__fail(CGR_ERROR_UNSUPPORTED, "cgr_device_open: name is cuda:%d: %s", ordinal, why);
}

static cgr_status open_cuda(int ordinal, const cgr_device_config *config, cgr_device **device) {
  struct cgr__gpus probe = cgr__cuda_probe();
  if (ordinal >= probe.num_devices)
    return no_gpu(ordinal, &probe);
  return cgr__device_fail(NULL, cgr__cuda_device_open(ordinal, config, device), "cgr_device_open: the GPU");
}

static cgr_status open_by_name(const char *name, const cgr_device_config *config, cgr_device **device) {
  int ordinal = 0;
  if (!name)
    return cgr__cuda_device_count() > 0 ? open_cuda(0, config, device) : open_host(config, device);
  if (strcmp(name, "host") == 0)
    return open_host(config, device);
  if (parse_cuda(name, &ordinal))
    return open_cuda(ordinal, config, device);
  return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "cgr_device_open: name is \"%.40s\", expected \"host\", \"cuda\" or \"cuda:N\"",
                   name);
}

/* The layer's device takes the place of the inner one, which is closed if the layer does not open. */
static cgr_status put_layer(const cgr_device_config *config, cgr_device **device) {
  cgr_device *inner = *device, *layer = NULL;
  if (!config->layer)
    return CGR_OK;
  int error = config->layer->open(inner, config, &layer);
  *device = error == CGR__DEVICE_OK ? layer : NULL;
  if (error == CGR__DEVICE_OK)
    return CGR_OK;
  inner->ops->close(inner);
  return cgr__device_fail(NULL, error, "cgr_device_open: config->layer");
}

cgr_status cgr_device_open(const char *name, const cgr_device_config *config, cgr_device **device) {
  cgr_device_config filled;
  CGR__REQUIRE(device, "cgr_device_open");
  *device = NULL;
  CGR__TRY(check_outside_step("cgr_device_open"));
  cgr__set_device_code(0);
  CGR__TRY(read_config(config, &filled));
  CGR__TRY(open_by_name(name, &filled, device));
  return put_layer(&filled, device);
}

cgr_status cgr_device_close(cgr_device *device) {
  if (!device)
    return CGR_OK;
  CGR__TRY(check_device(device, "cgr_device_close"));
  CGR__TRY(check_outside_step("cgr_device_close"));
  CGR__TRY(check_nothing_alive(device));
  cgr__set_device_code(0);
  int error = device->ops->close(device);
  /* The device is gone, unless nothing was done. */
  return cgr__device_fail(cgr__device_did_nothing(error) ? device : NULL, error, "cgr_device_close");
}

cgr_status cgr_device_get_info(cgr_device *device, cgr_device_info *info) {
  cgr_device_info full = CGR_DEVICE_INFO_INIT;
  CGR__TRY(check_device(device, "cgr_device_get_info"));
  CGR__TRY(cgr__sized_check("cgr_device_get_info: info", "CGR_DEVICE_INFO_INIT", info));
  CGR__TRY(cgr__device_fail(device, device->ops->info(device, &full), "cgr_device_get_info"));
  cgr__sized_write(info, &full, sizeof full);
  return CGR_OK;
}

/* ------------------------------------------------------------------------------------------------------------ memory */

static cgr_status allocate_memory(cgr_device *device, size_t bytes, enum cgr__memory_kind kind, void **memory,
                                  const char *function) {
  char what[80];
  CGR__TRY(check_device(device, function));
  CGR__REQUIRE(memory, function);
  *memory = NULL;
  if (bytes == 0)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "%s: bytes is 0, expected at least 1", function);
  int error = device->ops->mem_alloc(device, bytes, kind, memory);
  count_made(&device->live.allocations, error);
  snprintf(what, sizeof what, "%s: bytes is %zu", function, bytes);
  return cgr__device_fail(device, error, what);
}

/* No runtime may use the memory. On a lost device none can. For an address that is not the beginning of an allocation the free
 * itself says what is wrong. */
static cgr_status check_unused(cgr_device *device, const void *memory, const char *function) {
  char what[80];
  const void *base;
  size_t bytes;
  cgr__use use;
  if (!cgr__holders_any())
    return CGR_OK;
  int error = device->ops->mem_find(device, memory, &base, &bytes);
  snprintf(what, sizeof what, "%s: looking for memory %p", function, memory);
  if (error != CGR__DEVICE_OK)
    return error == CGR__DEVICE_DEAD ? CGR_OK : cgr__device_fail(device, error, what);
  if (base != memory || !cgr__holders_find(base, bytes, &use))
    return CGR_OK;
  return cgr__fail(CGR_ERROR_STATE, "%s: memory %p %s, expected %s first", function, memory, use.what, use.until);
}

static cgr_status release_memory(cgr_device *device, enum cgr__memory_kind kind, void *memory, const char *function) {
  char values[40];
  CGR__TRY(check_device(device, function));
  if (!memory)
    return CGR_OK;
  const bool other = device->allocations && cgr__allocations_is_other(device->allocations, memory, kind);
  if (!other) /* else nothing is freed, whoever uses it */
    CGR__TRY(check_unused(device, memory, function));
  int error = device->ops->mem_free(device, memory, kind);
  count_destroyed(&device->live.allocations, error);
  snprintf(values, sizeof values, "memory is %p", memory);
  if (other)
    return status_of_error(device, error, function, values,
                           kind == CGR__MEMORY_PINNED
                               ? "pinned memory: this is device memory, which cgr_memory_free frees"
                               : "device memory: this is pinned memory, which cgr_memory_free_pinned frees");
  return status_of_error(device, error, function, values,
                         kind == CGR__MEMORY_PINNED ? "an address that this device gave as pinned memory and has not got back"
                                                    : "an address that this device gave as device memory and has not got back");
}

cgr_status cgr_memory_alloc(cgr_device *device, size_t bytes, void **memory) {
  return allocate_memory(device, bytes, CGR__MEMORY_DEVICE, memory, "cgr_memory_alloc");
}

cgr_status cgr_memory_free(cgr_device *device, void *memory) {
  return release_memory(device, CGR__MEMORY_DEVICE, memory, "cgr_memory_free");
}

cgr_status cgr_memory_alloc_pinned(cgr_device *device, size_t bytes, void **memory) {
  return allocate_memory(device, bytes, CGR__MEMORY_PINNED, memory, "cgr_memory_alloc_pinned");
}

cgr_status cgr_memory_free_pinned(cgr_device *device, void *memory) {
  return release_memory(device, CGR__MEMORY_PINNED, memory, "cgr_memory_free_pinned");
}

/* ------------------------------------------------------------------------------------------------ streams and events */

/* A runtime's own streams look like an engine's, and an engine sees them in `record`. So the streams that an engine has made are
 * kept in a list, and no others are destroyed for it. */
static pthread_mutex_t streams_lock = PTHREAD_MUTEX_INITIALIZER;

static int32_t stream_place(const struct cgr__device_streams *s, cudaStream_t stream) {
  int32_t i = 0;
  while (i < s->count && s->made[i] != stream)
    i++;
  return i;
}

static bool is_made(cgr_device *device, cudaStream_t stream) {
  pthread_mutex_lock(&streams_lock);
  bool is = stream_place(&device->streams, stream) < device->streams.count;
  pthread_mutex_unlock(&streams_lock);
  return is;
}

static bool keep_stream(cgr_device *device, cudaStream_t stream) {
  struct cgr__device_streams *s = &device->streams;
  pthread_mutex_lock(&streams_lock);
  cudaStream_t *made = realloc(s->made, ((size_t)s->count + 1) * sizeof *made);
  if (made) {
    s->made = made;
    s->made[s->count++] = stream;
  }
  pthread_mutex_unlock(&streams_lock);
  return made != NULL;
}

static void drop_stream(cgr_device *device, cudaStream_t stream) {
  struct cgr__device_streams *s = &device->streams;
  pthread_mutex_lock(&streams_lock);
  s->made[stream_place(s, stream)] = s->made[s->count - 1];
  if (--s->count == 0) {
    free(s->made);
    s->made = NULL;
  }
  pthread_mutex_unlock(&streams_lock);
}

cgr_status cgr_stream_create(cgr_device *device, cudaStream_t *stream) {
  CGR__TRY(check_device(device, "cgr_stream_create"));
  CGR__REQUIRE(stream, "cgr_stream_create");
  *stream = NULL;
  int error = device->ops->stream_create(device, CGR__STREAM_NORMAL, stream);
  if (error == CGR__DEVICE_OK && !keep_stream(device, *stream)) {
    (void)device->ops->stream_destroy(device, *stream);
    *stream = NULL;
    return cgr__fail(CGR_ERROR_OUT_OF_MEMORY, "cgr_stream_create: no host memory for the list of streams");
  }
  count_made(&device->live.streams, error);
  return cgr__device_fail(device, error, "cgr_stream_create");
}

cgr_status cgr_stream_destroy(cgr_device *device, cudaStream_t stream) {
  CGR__TRY(check_stream_argument(device, stream, "cgr_stream_destroy"));
  if (step_depth > 0)
    return cgr__fail(
        CGR_ERROR_STATE,
        "cgr_stream_destroy: stream is %p, called inside `record` or a call of a step, expected a call outside of it",
        (void *)stream);
  if (!is_made(device, stream))
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT,
                     "cgr_stream_destroy: stream is %p, expected one that cgr_stream_create made for this device and that has "
                     "not been destroyed",
                     (void *)stream);
  int error = device->ops->stream_destroy(device, stream);
  if (!cgr__device_did_nothing(error))
    drop_stream(device, stream);
  count_destroyed(&device->live.streams, error);
  return answer_stream(device, error, "cgr_stream_destroy", stream);
}

cgr_status cgr_stream_synchronize(cgr_device *device, cudaStream_t stream) {
  CGR__TRY(check_stream_argument(device, stream, "cgr_stream_synchronize"));
  return answer_stream(device, device->ops->stream_sync(device, stream), "cgr_stream_synchronize", stream);
}

cgr_status cgr_event_create(cgr_device *device, cgr_event **event) {
  CGR__TRY(check_device(device, "cgr_event_create"));
  CGR__REQUIRE(event, "cgr_event_create");
  *event = NULL;
  int error = device->ops->event_create(device, event);
  count_made(&device->live.events, error);
  return cgr__device_fail(device, error, "cgr_event_create");
}

cgr_status cgr_event_destroy(cgr_device *device, cgr_event *event) {
  char values[40];
  CGR__TRY(check_device(device, "cgr_event_destroy"));
  CGR__REQUIRE(event, "cgr_event_destroy");
  int error = device->ops->event_destroy(device, event);
  count_destroyed(&device->live.events, error);
  snprintf(values, sizeof values, "event is %p", (void *)event);
  return status_of_error(device, error, "cgr_event_destroy", values, "one of this device that has not been destroyed");
}

cgr_status cgr_event_record(cgr_device *device, cgr_event *event, cudaStream_t stream) {
  CGR__TRY(check_stream_argument(device, stream, "cgr_event_record"));
  CGR__REQUIRE(event, "cgr_event_record");
  return answer_event(device, device->ops->event_record(device, event, stream), "cgr_event_record", event, stream);
}

cgr_status cgr_event_wait(cgr_device *device, cgr_event *event, cudaStream_t stream) {
  CGR__TRY(check_stream_argument(device, stream, "cgr_event_wait"));
  CGR__REQUIRE(event, "cgr_event_wait");
  return answer_event(device, device->ops->event_wait(device, event, stream), "cgr_event_wait", event, stream);
}

/* -------------------------------------------------------------------------------------------------------------- work */

cgr_status cgr_copy(cgr_device *device, void *dst, const void *src, size_t bytes, cudaStream_t stream) {
  CGR__TRY(check_stream_argument(device, stream, "cgr_copy"));
  if (bytes == 0)
    return CGR_OK;
  CGR__REQUIRE(dst, "cgr_copy");
  CGR__REQUIRE(src, "cgr_copy");
  return answer_work(device, device->ops->copy(device, dst, src, bytes, stream), "cgr_copy", dst, src, bytes, stream);
}

cgr_status cgr_fill(cgr_device *device, void *dst, int byte, size_t bytes, cudaStream_t stream) {
  CGR__TRY(check_stream_argument(device, stream, "cgr_fill"));
  if (bytes == 0)
    return CGR_OK;
  CGR__REQUIRE(dst, "cgr_fill");
  return answer_work(device, device->ops->fill(device, dst, (unsigned char)byte, 1, bytes, stream), "cgr_fill", dst, NULL, bytes,
                     stream);
}

cgr_status cgr_launch_host(cgr_device *device, cgr_host_function function, const void *args, size_t args_size,
                           cudaStream_t stream) {
  CGR__TRY(check_stream_argument(device, stream, "cgr_launch_host"));
  if (!function)
    return cgr__fail(CGR_ERROR_NULL_POINTER, "cgr_launch_host: function is NULL, expected a function");
  if (args_size > CGR__MAX_CALL_ARGS)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "cgr_launch_host: args_size is %zu, expected at most %d bytes", args_size,
                     CGR__MAX_CALL_ARGS);
  if (args_size != 0)
    CGR__REQUIRE(args, "cgr_launch_host");
  return answer_stream(device, device->ops->host_call(device, function, args, args_size, stream), "cgr_launch_host", stream);
}
