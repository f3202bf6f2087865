// What has changed between a kept interface and another.
//
// A program compiled against older headers runs with a newer libcgr.so of the same SONAME. So, while the SONAME stays:
// - a function stays, exported under its version node, with its prototype; functions, types and callbacks may be added;
// - an enumerator keeps its value, and others may be added; one whose name ends with COUNT_ counts them, and may grow;
// - a struct whose first field is `size` may grow at its end, up to 4096 bytes; any other keeps its size;
// - a field keeps its name, type and place. A new one begins where the kept struct ended (older programs leave padding in a hole
//   undefined) or takes the place of a field named `reserved`, which older programs leave 0;
// - a parameter of a function, not of a callback, may become a pointer to const;
// - a macro keeps its text, which is in programs; what an INIT macro sets may grow with its struct, a LIST may have new entries
// at
//   its end, and others may be added;
// - parameters may be renamed, but two parameters of one type do not change places.
// With another SONAME older programs do not start, and anything may change.
#pragma once

#include <string>
#include <vector>

#include "tests/abi/interface.h"

namespace cgr_test {

struct Change {
  bool breaks = false; // programs compiled earlier
  std::string text;    // "struct cgr_batch: lane was at 4 and is at 8"
};

std::vector<Change> Compare(const Interface &kept, const Interface &now);

} // namespace cgr_test
