// Writing the kept list anew, unless what has changed breaks older programs.
#ifndef CGR_TESTS_ABI_UPDATE_H
#define CGR_TESTS_ABI_UPDATE_H

#include <ostream>
#include <string>

#include "tests/abi/interface.h"

namespace cgr_test {

// Tells each change of `now` from the list at `path`, and writes it there. False, and the list stays as it is, if one breaks.
bool Update(const Interface &now, const std::string &path, std::ostream &out);

} // namespace cgr_test

#endif // CGR_TESTS_ABI_UPDATE_H
