// One public header, first in the translation unit, and included again; in C++.
#include CGR_TEST_HEADER
#include CGR_TEST_HEADER

extern "C" int CGR_TEST_FUNCTION();

int CGR_TEST_FUNCTION() {
  const cgr_status status = CGR_OK;
  return cgr_version() == CGR_VERSION && status == CGR_OK;
}
