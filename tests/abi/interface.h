// The binary interface: what a program compiled against the headers and running with libcgr.so relies on.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace cgr_test {

// A field of a struct, an enumerator of an enum, a parameter of a function.
struct Member {
  std::string name;
  std::string type; // with '@' in place of the name: "const int32_t *@", "void *const @[2]"
  int64_t at = 0;   // offset of a field, value of an enumerator
  int64_t size = 0; // of a field, in bytes
};

enum class Kind { kConstant, kMacro, kOpaque, kAlias, kCallback, kEnum, kStruct, kFunction };

struct Item {
  Kind kind = Kind::kOpaque;
  std::string name;
  std::string type;  // of an alias; what a function or a callback returns; of a macro all after its name: "(x) text", " text"
  std::string node;  // of a function: its version in the library; "-": the library does not export it
  int64_t value = 0; // of a constant
  int64_t size = 0, align = 0;
  bool is_signed = false; // of an enum
  std::vector<Member> members;

  // Those whose first field is `size` may grow (base.h).
  bool IsSized() const { return kind == Kind::kStruct && !members.empty() && members[0].name == "size"; }
  const Member *Find(const std::string &member) const {
    auto at = std::find_if(members.begin(), members.end(), [&](const Member &m) { return m.name == member; });
    return at == members.end() ? nullptr : &*at;
  }
};

// An enumerator of an enum without a name counts as a constant.
struct Interface {
  std::string soname;
  std::map<std::string, Item> items;
  std::vector<std::string> undeclared; // exported, but in no header
};

// A type with the name put in its place.
inline std::string Spell(const std::string &type, const std::string &name) {
  std::string text = type;
  text.replace(text.find('@'), 1, name);
  text.erase(text.find_last_not_of(' ') + 1);
  return text;
}

inline std::string Parameters(const Item &function) {
  std::string text;
  for (const Member &parameter : function.members)
    text += (text.empty() ? "" : ", ") + Spell(parameter.type, parameter.name);
  return "(" + (text.empty() ? "void" : text) + ")";
}

} // namespace cgr_test
