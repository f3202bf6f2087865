#include "tests/abi/list.h"

#include <sstream>
#include <stdexcept>

#include "tests/abi/declarations.h"

namespace cgr_test {
namespace {

const char kHead[] =
    R"(# The binary interface of libcgr.so on 64-bit Linux, written by ./bazelw run //tests/abi:update, which refuses what breaks older
# programs. constant NAME VALUE (but for CGR_HEADER_VERSION, which is the version), macro NAME TEXT (no text where a struct or an enum
# of the list has it), enum NAME SIGN BYTES and under it each VALUE NAME, struct NAME BYTES ALIGNMENT and under it each OFFSET BYTES
# FIELD, function NODE PROTOTYPE with the version node of its symbol: - is in libcgr_validation alone.
)";

const std::map<Kind, std::string> &Words() {
  static const std::map<Kind, std::string> words = {
    { Kind::kConstant, "constant" }, { Kind::kMacro, "macro" }, { Kind::kOpaque, "opaque" }, { Kind::kAlias, "alias" },
    { Kind::kCallback, "callback" }, { Kind::kEnum, "enum" },   { Kind::kStruct, "struct" }, { Kind::kFunction, "function" },
  };
  return words;
}

void Write(const Item &item, std::ostream &out) {
  out << Words().at(item.kind) << " ";
  switch (item.kind) {
  case Kind::kConstant:
    out << item.name << " " << item.value;
    break;
  case Kind::kMacro:
    out << item.name << item.type;
    break;
  case Kind::kOpaque:
    out << item.name;
    break;
  case Kind::kAlias:
    out << Spell(item.type, item.name);
    break;
  case Kind::kCallback:
    out << Spell(item.type, "(*" + item.name + ")") << Parameters(item);
    break;
  case Kind::kEnum:
    out << item.name << (item.is_signed ? " signed " : " unsigned ") << item.size;
    for (const Member &member : item.members)
      out << "\n  " << member.at << " " << member.name;
    break;
  case Kind::kStruct:
    out << item.name << " " << item.size << " " << item.align;
    for (const Member &member : item.members)
      out << "\n  " << member.at << " " << member.size << " " << Spell(member.type, member.name);
    break;
  case Kind::kFunction:
    out << item.node << " " << Spell(item.type, item.name) << Parameters(item);
    break;
  }
  out << "\n";
}

std::string Rest(std::istringstream *words) {
  std::string rest;
  std::getline(*words >> std::ws, rest);
  return rest;
}

Item ReadItem(Kind kind, std::istringstream *words) {
  Item item;
  std::string sign, node;
  switch (kind) {
  case Kind::kConstant:
    *words >> item.name >> item.value;
    break;
  case Kind::kMacro: {
    const std::string rest = Rest(words);
    item.name = rest.substr(0, rest.find_first_of(" ("));
    item.type = rest.substr(item.name.size());
    break;
  }
  case Kind::kOpaque:
    *words >> item.name;
    break;
  case Kind::kAlias: {
    Member variable = ReadVariable(Rest(words));
    item.name = variable.name;
    item.type = variable.type;
    break;
  }
  case Kind::kCallback:
    item = ReadCallback(Rest(words));
    break;
  case Kind::kEnum:
    *words >> item.name >> sign >> item.size;
    item.is_signed = sign == "signed";
    break;
  case Kind::kStruct:
    *words >> item.name >> item.size >> item.align;
    break;
  case Kind::kFunction:
    *words >> node;
    item = ReadFunction(Rest(words));
    item.node = node;
    break;
  }
  item.kind = kind;
  return item;
}

void ReadMember(std::istringstream *words, Item *item) {
  Member member;
  if (item->kind == Kind::kStruct) {
    int64_t at = 0, size = 0;
    *words >> at >> size;
    member = ReadVariable(Rest(words));
    member.at = at;
    member.size = size;
  } else {
    *words >> member.at >> member.name;
  }
  item->members.push_back(member);
}

} // namespace

std::string WriteList(const Interface &interface) {
  std::ostringstream out;
  out << kHead << "soname " << interface.soname << "\n";
  for (const auto &[kind, word] : Words()) {
    out << "\n";
    for (const auto &[name, item] : interface.items)
      if (item.kind == kind)
        Write(item, out);
  }
  return out.str();
}

Interface ReadList(const std::string &text) {
  Interface interface;
  std::istringstream lines(text);
  Item *last = nullptr;
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line[0] == '#')
      continue;
    std::istringstream words(line);
    if (line[0] == ' ' && last != nullptr) {
      ReadMember(&words, last);
    } else {
      std::string word;
      words >> word;
      if (word == "soname") {
        words >> interface.soname;
        continue;
      }
      auto kind = std::find_if(Words().begin(), Words().end(), [&](const auto &entry) { return entry.second == word; });
      if (kind == Words().end())
        throw std::runtime_error("the list has a line that is none of its own: " + line);
      Item item = ReadItem(kind->first, &words);
      last = &(interface.items[item.name] = item);
    }
    if (words.fail())
      throw std::runtime_error("the list has a line that is cut off: " + line);
  }
  return interface;
}

} // namespace cgr_test
