/* The public functions of devices, memory and streams: validation with messages, then one call of the device's table. */
#include <stdbool.h>
#include <string.h>

#include "devices/device.h"
#include "devices/error.h"
#include "base/status.h"

#define HOST_CALL_MAX_ARGS 4096u

/* ------------------------------------------------------------------------------------------------------- validation */

static cgr_status check_device(const cgr_device *device, const char *function) {
  if (device == NULL)
    return cgr__fail(CGR_ERROR_NULL_POINTER, "%s: device is NULL, expected an open device", function);
  if (device->magic == CGR__DEVICE_MAGIC)
    return CGR_OK;
  return cgr__fail(CGR_ERROR_INVALID_STRUCT, "%s: device has magic 0x%08x, expected 0x%08x: it is not open", function,
                   (unsigned)device->magic, CGR__DEVICE_MAGIC);
}

static cgr_status check_stream(const cgr_device *device, cudaStream_t stream, const char *function) {
  cgr_status status = check_device(device, function);
  if (status != CGR_OK || !cgr__is_default_stream(stream))
    return status;
  return cgr__fail(CGR_ERROR_INVALID_ARGUMENT,
                   "%s: stream is %s, expected one of cgr_stream_create, or another that is not a default "
                   "stream",
                   function, stream ? "CUDA's default one" : "NULL");
}

static cgr_status check_pointer(const void *pointer, const char *argument, const char *function) {
  if (pointer != NULL)
    return CGR_OK;
  return cgr__fail(CGR_ERROR_NULL_POINTER, "%s: %s is NULL, expected an address", function, argument);
}

/* A struct may be shorter than ours (older caller) or longer (newer one) but holds at least its own size. */
static cgr_status check_size(uint32_t size, const char *argument, const char *function) {
  if (size >= sizeof size && size <= 4096)
    return CGR_OK;
  return cgr__fail(CGR_ERROR_INVALID_STRUCT, "%s: %s->size is %u, expected %u to 4096", function, argument, (unsigned)size,
                   (unsigned)sizeof size);
}

/* ------------------------------------------------------------------------------------------------------------ device */

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
  cgr_device_config filled = CGR_DEVICE_CONFIG_INIT;
  *config = filled;
  if (given == NULL)
    return CGR_OK;
  cgr_status status = check_size(given->size, "config", "cgr_device_open");
  if (status != CGR_OK)
    return status;
  memcpy(config, given, given->size < sizeof *config ? given->size : sizeof *config);
  config->size = (uint32_t)sizeof *config;
  if (config->host_schedule <= CGR_HOST_RANDOM)
    return CGR_OK;
  return cgr__fail(CGR_ERROR_INVALID_ENUM, "cgr_device_open: config->host_schedule is %u, expected 0 to %u, a cgr_host_schedule",
                   (unsigned)config->host_schedule, (unsigned)CGR_HOST_RANDOM);
}

static cgr_status open_host(const cgr_device_config *config, cgr_device **device) {
  int error = cgr__host_device_open(config, device);
  return error == CGR__DEVICE_OK ? CGR_OK : cgr__device_fail(NULL, error, "cgr_device_open: the host device");
}

static cgr_status open_cuda(int ordinal, cgr_device **device) {
  int count = cgr__cuda_device_count();
  if (ordinal >= count) {
    return cgr__fail(CGR_ERROR_UNSUPPORTED,
                     "cgr_device_open: name is cuda:%d, expected a number below %d, the GPUs that this "
                     "build can see on this machine",
                     ordinal, count);
  }
  int error = cgr__cuda_device_open(ordinal, device);
  return error == CGR__DEVICE_OK ? CGR_OK : cgr__device_fail(NULL, error, "cgr_device_open: the CUDA device");
}

cgr_status cgr_device_open(const char *name, const cgr_device_config *config, cgr_device **device) {
  cgr_device_config filled;
  int ordinal;
  cgr_status status = check_pointer(device, "device", "cgr_device_open");
  if (status != CGR_OK)
    return status;
  *device = NULL;
  status = read_config(config, &filled);
  if (status != CGR_OK)
    return status;
  if (name == NULL)
    return cgr__cuda_device_count() > 0 ? open_cuda(0, device) : open_host(&filled, device);
  if (strcmp(name, "host") == 0)
    return open_host(&filled, device);
  if (parse_cuda(name, &ordinal))
    return open_cuda(ordinal, device);
  return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "cgr_device_open: name is \"%.40s\", expected \"host\", \"cuda\" or \"cuda:N\"",
                   name);
}

cgr_status cgr_device_close(cgr_device *device) {
  if (device == NULL)
    return CGR_OK;
  cgr_status status = check_device(device, "cgr_device_close");
  if (status != CGR_OK)
    return status;
  int error = device->ops->close(device);
  return error == CGR__DEVICE_OK ? CGR_OK : cgr__device_fail(NULL, error, "cgr_device_close");
}

cgr_status cgr_device_get_info(cgr_device *device, cgr_device_info *info) {
  cgr_device_info full = CGR_DEVICE_INFO_INIT;
  cgr_status status = check_device(device, "cgr_device_get_info");
  if (status == CGR_OK)
    status = check_pointer(info, "info", "cgr_device_get_info");
  if (status == CGR_OK)
    status = check_size(info->size, "info", "cgr_device_get_info");
  if (status != CGR_OK)
    return status;
  int error = device->ops->info(device, &full);
  if (error != CGR__DEVICE_OK)
    return cgr__device_fail(device, error, "cgr_device_get_info");
  full.size = info->size;
  memcpy(info, &full, info->size < sizeof full ? info->size : sizeof full);
  return CGR_OK;
}

/* ------------------------------------------------------------------------------------------------------------ memory */

static cgr_status allocate(cgr_device *device, size_t bytes, enum cgr__memory_kind kind, void **memory, const char *function) {
  cgr_status status = check_device(device, function);
  if (status == CGR_OK)
    status = check_pointer(memory, "memory", function);
  if (status != CGR_OK)
    return status;
  *memory = NULL;
  if (bytes == 0)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "%s: bytes is 0, expected at least 1", function);
  return cgr__device_fail(device, device->ops->mem_alloc(device, bytes, kind, memory), function);
}

static cgr_status release(cgr_device *device, enum cgr__memory_kind kind, void *memory, const char *function) {
  cgr_status status = check_device(device, function);
  if (status != CGR_OK || memory == NULL)
    return status;
  return cgr__device_fail(device, device->ops->mem_free(device, memory, kind), function);
}

cgr_status cgr_memory_alloc(cgr_device *device, size_t bytes, void **memory) {
  return allocate(device, bytes, CGR__MEMORY_DEVICE, memory, "cgr_memory_alloc");
}

cgr_status cgr_memory_free(cgr_device *device, void *memory) {
  return release(device, CGR__MEMORY_DEVICE, memory, "cgr_memory_free");
}

cgr_status cgr_memory_alloc_pinned(cgr_device *device, size_t bytes, void **memory) {
  return allocate(device, bytes, CGR__MEMORY_PINNED, memory, "cgr_memory_alloc_pinned");
}

cgr_status cgr_memory_free_pinned(cgr_device *device, void *memory) {
  return release(device, CGR__MEMORY_PINNED, memory, "cgr_memory_free_pinned");
}

/* ------------------------------------------------------------------------------------------------- streams and work */

cgr_status cgr_stream_create(cgr_device *device, cudaStream_t *stream) {
  cgr_status status = check_device(device, "cgr_stream_create");
  if (status == CGR_OK)
    status = check_pointer(stream, "stream", "cgr_stream_create");
  if (status != CGR_OK)
    return status;
  *stream = NULL;
  return cgr__device_fail(device, device->ops->stream_create(device, stream), "cgr_stream_create");
}

cgr_status cgr_stream_destroy(cgr_device *device, cudaStream_t stream) {
  cgr_status status = check_device(device, "cgr_stream_destroy");
  if (status != CGR_OK)
    return status;
  if (stream == NULL) {
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "cgr_stream_destroy: stream is NULL, expected one of cgr_stream_create");
  }
  return cgr__device_fail(device, device->ops->stream_destroy(device, stream), "cgr_stream_destroy");
}

cgr_status cgr_stream_synchronize(cgr_device *device, cudaStream_t stream) {
  cgr_status status = check_stream(device, stream, "cgr_stream_synchronize");
  if (status != CGR_OK)
    return status;
  return cgr__device_fail(device, device->ops->stream_sync(device, stream), "cgr_stream_synchronize");
}

cgr_status cgr_copy(cgr_device *device, void *dst, const void *src, size_t bytes, cudaStream_t stream) {
  cgr_status status = check_stream(device, stream, "cgr_copy");
  if (status != CGR_OK || bytes == 0)
    return status;
  status = check_pointer(dst, "dst", "cgr_copy");
  if (status == CGR_OK)
    status = check_pointer(src, "src", "cgr_copy");
  if (status != CGR_OK)
    return status;
  return cgr__device_fail(device, device->ops->copy(device, dst, src, bytes, stream), "cgr_copy");
}

cgr_status cgr_fill(cgr_device *device, void *dst, int byte, size_t bytes, cudaStream_t stream) {
  cgr_status status = check_stream(device, stream, "cgr_fill");
  if (status != CGR_OK || bytes == 0)
    return status;
  status = check_pointer(dst, "dst", "cgr_fill");
  if (status != CGR_OK)
    return status;
  return cgr__device_fail(device, device->ops->fill(device, dst, byte, bytes, stream), "cgr_fill");
}

cgr_status cgr_launch_host(cgr_device *device, cgr_host_function function, const void *args, size_t args_size,
                           cudaStream_t stream) {
  cgr_status status = check_stream(device, stream, "cgr_launch_host");
  if (status != CGR_OK)
    return status;
  if (function == NULL) {
    return cgr__fail(CGR_ERROR_NULL_POINTER, "cgr_launch_host: function is NULL, expected a function");
  }
  if (args_size > HOST_CALL_MAX_ARGS) {
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "cgr_launch_host: args_size is %zu, expected at most %u bytes", args_size,
                     HOST_CALL_MAX_ARGS);
  }
  if (args_size != 0)
    status = check_pointer(args, "args", "cgr_launch_host");
  if (status != CGR_OK)
    return status;
  return cgr__device_fail(device, device->ops->host_call(device, function, args, args_size, stream), "cgr_launch_host");
}
