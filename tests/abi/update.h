// Rewrites the kept list, unless a change breaks older programs.
#ifndef CGR_TESTS_ABI_UPDATE_H
#define CGR_TESTS_ABI_UPDATE_H

#include <ostream>
#include <string>

#include "tests/abi/interface.h"

namespace cgr_test {

// Reports each change from the list at `path` to `now`, and writes `now` there. If one breaks: false, and the list is kept.
bool Update(const Interface &now, const std::string &path, std::ostream &out);

} // namespace cgr_test

#endif // CGR_TESTS_ABI_UPDATE_H
