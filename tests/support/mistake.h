// Tables of mistakes: each row changes one thing of what is valid otherwise, and says how that is refused.
#pragma once

#include <functional>

#include "tests/support/expect.h"

namespace cgr_test {

// Statuses, as short as tables need them.
constexpr cgr_status kArgument = CGR_ERROR_INVALID_ARGUMENT, kEnum = CGR_ERROR_INVALID_ENUM, kNull = CGR_ERROR_NULL_POINTER,
                     kStruct = CGR_ERROR_INVALID_STRUCT, kNewer = CGR_ERROR_NEWER_STRUCT, kUnsupported = CGR_ERROR_UNSUPPORTED;

template <class T> struct Mistake {
  cgr_status status;
  std::string says; // parts of the message: see PartsOf
  std::function<void(T &)> change;
  const char *note = ""; // what `says` does not tell
};

// "layer is 2 ... 2 configured": what a message has, with anything in place of the " ... ".
inline Words PartsOf(const std::string &says) {
  const std::string gap = " ... ";
  Words parts;
  size_t at = 0;
  for (size_t end; (end = says.find(gap, at)) != std::string::npos; at = end + gap.size())
    parts.push_back(says.substr(at, end - at));
  parts.push_back(says.substr(at));
  return parts;
}

// `says` with the value in place of each #.
inline std::string WithValue(std::string says, int64_t value) {
  for (size_t at; (at = says.find('#')) != std::string::npos;)
    says.replace(at, 1, std::to_string(value));
  return says;
}

// Each row's change of `good()` is refused: `refused` makes the calls.
template <class T, class Good, class Refused>
void EachMistake(const std::vector<Mistake<T>> &rows, const Good &good, const Refused &refused) {
  for (const Mistake<T> &row : rows) {
    SCOPED_TRACE("row " + std::to_string(&row - rows.data()) + ": " + row.says + " " + row.note);
    T changed = good();
    row.change(changed);
    refused(changed, row);
  }
}

} // namespace cgr_test
