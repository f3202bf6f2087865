// The interface as text: one line per entry, sorted, so that a diff of the list shows what has changed.
#pragma once

#include <string>

#include "tests/abi/interface.h"

namespace cgr_test {

std::string WriteList(const Interface &interface);

// Throws std::runtime_error for a line that it does not know.
Interface ReadList(const std::string &text);

} // namespace cgr_test
