/* One public header, first in the translation unit, and included again. */
#include CGR_TEST_HEADER
#include CGR_TEST_HEADER

int CGR_TEST_FUNCTION(void);

int CGR_TEST_FUNCTION(void) {
#if CGR_VERSION != CGR_VERSION_MAJOR * 10000 + CGR_VERSION_MINOR * 100 + CGR_VERSION_PATCH
#error "the version is no number"
#endif
  const cgr_status status = CGR_OK;
  return cgr_version() == CGR_VERSION && status == CGR_OK;
}
