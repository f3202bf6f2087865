// Rewrites the kept list, unless a change breaks older programs.
#pragma once

#include <ostream>
#include <string>

#include "tests/abi/interface.h"

namespace cgr_test {

// Reports each change from the list at `path` to `now`, and writes `now` there. If one breaks: false, and the list is kept.
bool Update(const Interface &now, const std::string &path, std::ostream &out);

} // namespace cgr_test
