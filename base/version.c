/* The version, and how the library was built. */
#include "cgr/base.h"

int cgr_version(void) { return CGR_VERSION; }

/* The build tells which CUDA toolkit it used, and whether it had NVTX. */
#ifndef CGR_BUILT_WITH
#define CGR_BUILT_WITH "without CUDA"
#endif
#ifndef CGR_BUILT_NVTX
#define CGR_BUILT_NVTX ""
#endif
#define TEXT(number) TEXT_OF(number)
#define TEXT_OF(number) #number
const char *cgr_build_info(void) {
  return "cgr " TEXT(CGR_VERSION_MAJOR) "." TEXT(CGR_VERSION_MINOR) "." TEXT(
      CGR_VERSION_PATCH) ", " CGR_BUILT_WITH CGR_BUILT_NVTX;
}
