#include "devices/cuda/driver.h"

#include <cuda_runtime_api.h>
#include <pthread.h>
#include <string.h>

#include "base/limits.h"
#include "devices/device.h"

#define SIGNATURES 12040          /* the CUDA version that driver.h takes them from */
#define OPTIONAL_SIGNATURES 13010 /* and those that a driver may lack */

CGR__CACHE_LINE struct cgr__cuda_functions cgr__cu;

struct entry {
  const char *symbol;
  size_t offset;
};

#define FUNCTION(name, signature) { "cu" #name, offsetof(struct cgr__cuda_functions, name) },
static const struct entry functions[] = { CGR__CUDA_FUNCTIONS(FUNCTION) };
static const struct entry optional_functions[] = { CGR__CUDA_OPTIONAL_FUNCTIONS(FUNCTION) };
#undef FUNCTION

static int look_up_symbol(const char *symbol, unsigned int version, void **function) {
  enum cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
  cudaError_t raw = cudaGetDriverEntryPointByVersion(symbol, function, version, cudaEnableDefault, &result);
#else
  (void)version;
  cudaError_t raw = cudaGetDriverEntryPoint(symbol, function, cudaEnableDefault, &result);
#endif
  if (raw != cudaSuccess)
    return (int)raw;
  return result == cudaDriverEntryPointSuccess && *function ? 0 : (int)CUDA_ERROR_NOT_FOUND;
}

static int look_up_entry(const struct entry *entry, unsigned int version) {
  void *function = NULL;
  int raw = look_up_symbol(entry->symbol, version, &function);
  if (raw == 0)
    memcpy((unsigned char *)&cgr__cu + entry->offset, &function, sizeof function);
  return raw;
}

static int look_up_all(int driver_version) {
  int raw = 0;
  for (size_t i = 0; i < sizeof functions / sizeof functions[0] && raw == 0; i++)
    raw = look_up_entry(&functions[i], SIGNATURES);
  bool has_optional = raw == 0 && driver_version >= OPTIONAL_SIGNATURES;
  for (size_t i = 0; i < sizeof optional_functions / sizeof optional_functions[0] && has_optional; i++)
    (void)look_up_entry(&optional_functions[i], OPTIONAL_SIGNATURES);
  return raw;
}

static struct cgr__gpus found;

static enum cgr__cuda_state find_driver(void) {
  /* The runtime inside this build requires a driver of its own major version. */
  int major = CUDART_VERSION / 1000 * 1000;
  found.required_version = major > SIGNATURES ? major : SIGNATURES;
  found.raw = (int)cudaDriverGetVersion(&found.driver_version);
  if (found.raw != 0 || found.driver_version == 0) {
    found.raw = found.raw ? found.raw : (int)cudaErrorInsufficientDriver; /* the runtime's answer to everything from here on */
    return CGR__CUDA_NO_DRIVER;
  }
  if (found.driver_version < found.required_version)
    return CGR__CUDA_OLD_DRIVER;
  found.raw = look_up_all(found.driver_version); /* answers that there is no device if every GPU is hidden */
  if (found.raw == 0)
    found.raw = (int)cgr__cu.Init(0);
  if (found.raw == 0)
    found.raw = (int)cgr__cu.DeviceGetCount(&found.num_devices);
  if (found.raw == CUDA_ERROR_NO_DEVICE || (found.raw == 0 && found.num_devices == 0))
    return CGR__CUDA_NO_GPU;
  if (found.raw == CUDA_ERROR_STUB_LIBRARY)
    return CGR__CUDA_NO_DRIVER;
  return found.raw == 0 ? CGR__CUDA_READY : CGR__CUDA_BROKEN;
}

static void find_once(void) {
  found.state = find_driver();
  if (found.state != CGR__CUDA_READY)
    found.num_devices = 0;
}

struct cgr__gpus cgr__cuda_probe(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, find_once);
  return found;
}
