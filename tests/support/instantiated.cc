#include "tests/support/instantiated.h"

CGR_COMMON_TEMPLATES()
CGR_COMMON_COMPARISONS()
#if defined(CGR_TREES)
CGR_TREES()
#endif
