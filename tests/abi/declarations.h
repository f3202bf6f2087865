// A reader of the public headers that knows only plain declarations, as generators of bindings do: enums, structs, opaque types,
// pointers to functions, prototypes. It refuses anything else by name.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tests/abi/interface.h"

namespace cgr_test {

// Everything that `text`, preprocessed C, declares in files below `folder`. Sizes, offsets and values are left 0. Throws
// std::runtime_error for what it does not know.
std::map<std::string, Item> ReadDeclarations(const std::string &text, const std::string &folder);

// The macros that programs use, from the preprocessor's list of all macros (-dM). Excludes those that differ in each version
// (CGR_VERSION...), guards, and CGR_API, which says how the headers themselves are compiled. For an INIT macro and
// CGR_STATUS_LIST, the name alone: a struct or an enum of the list has what they hold, and they grow with it.
std::map<std::string, Item> ReadMacros(const std::string &text);

// One declaration without its semicolon: "cgr_status cgr_copy(void *dst, size_t bytes)", "int32_t rows[2]".
Item ReadFunction(const std::string &text);
Item ReadCallback(const std::string &text);
Member ReadVariable(const std::string &text);

} // namespace cgr_test
