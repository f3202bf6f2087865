#include "tests/abi/compare.h"

namespace cgr_test {
namespace {

const char *Word(Kind kind) {
  switch (kind) {
  case Kind::kConstant:
    return "constant ";
  case Kind::kMacro:
    return "macro ";
  case Kind::kOpaque:
  case Kind::kAlias:
    return "type ";
  case Kind::kCallback:
    return "callback ";
  case Kind::kEnum:
    return "enum ";
  case Kind::kStruct:
    return "struct ";
  case Kind::kFunction:
    return "function ";
  }
  return "";
}

std::string Was(int64_t before, int64_t after) { return " was " + std::to_string(before) + " and is " + std::to_string(after); }

bool EndsWith(const std::string &text, const std::string &end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

// A pointer to non-const has become a pointer to const: as a parameter it is passed the same way and accepts all it accepted.
bool BecomesConst(const std::string &before, const std::string &after) {
  return before.size() > 2 && before.find_first_of("*([") == before.size() - 2 && after == "const " + before;
}

bool IsReserved(const Member &field) { return field.name.rfind("reserved", 0) == 0; }

// Compares an item with the item of the same name.
class Pair {
public:
  Pair(const Item &kept, const Item &now, std::vector<Change> *changes) : kept_(kept), now_(now), changes_(changes) {}

  void Compare() {
    if (kept_.kind != now_.kind)
      return Tell(kept_.kind != Kind::kOpaque || now_.kind != Kind::kStruct, "is another kind of thing");
    switch (kept_.kind) {
    case Kind::kConstant:
      if (kept_.value != now_.value)
        Breaks("the value" + Was(kept_.value, now_.value));
      break;
    case Kind::kMacro:
      if (IsLongerList())
        Grows("has new entries at its end");
      else if (kept_.type != now_.type)
        Breaks("was " + kept_.name + kept_.type + " and is " + now_.name + now_.type);
      break;
    case Kind::kOpaque:
      break;
    case Kind::kAlias:
      if (kept_.type != now_.type)
        Breaks("was " + Spell(kept_.type, "") + " and is " + Spell(now_.type, ""));
      break;
    case Kind::kEnum:
      Enum();
      break;
    case Kind::kStruct:
      Struct();
      break;
    case Kind::kFunction:
      Symbol();
      [[fallthrough]];
    case Kind::kCallback:
      Prototype();
      break;
    }
  }

private:
  void Tell(bool breaks, const std::string &text) {
    changes_->push_back({ breaks, Word(kept_.kind) + kept_.name + ": " + text });
  }
  void Breaks(const std::string &text) { Tell(true, text); }
  void Grows(const std::string &text) { Tell(false, text); }

  bool IsLongerList() const {
    return EndsWith(kept_.name, "_LIST") && now_.type.size() > kept_.type.size() &&
           now_.type.compare(0, kept_.type.size() + 3, kept_.type + " X(") == 0;
  }

  void Enum() {
    if (kept_.size != now_.size)
      Breaks("the size" + Was(kept_.size, now_.size));
    if (kept_.is_signed != now_.is_signed)
      Breaks("has become " + std::string(now_.is_signed ? "signed" : "unsigned"));
    for (const Member &value : kept_.members) {
      const Member *same = now_.Find(value.name);
      if (same == nullptr)
        Breaks(value.name + " is gone");
      else if (same->at != value.at)
        Tell(!EndsWith(value.name, "COUNT_") || same->at < value.at, value.name + Was(value.at, same->at));
    }
    for (const Member &value : now_.members)
      if (kept_.Find(value.name) == nullptr)
        Grows(value.name + " is new");
  }

  void Struct() {
    if (kept_.align != now_.align)
      Breaks("the alignment" + Was(kept_.align, now_.align));
    if (kept_.IsSized() != now_.IsSized())
      Breaks("the first field was " + kept_.members[0].name + " and is " + now_.members[0].name);
    if (now_.size < kept_.size || (now_.size > kept_.size && !kept_.IsSized()))
      Breaks("the size" + Was(kept_.size, now_.size) +
             (kept_.IsSized() ? "" : ", of a struct that cannot grow: it has no `size`"));
    else if (now_.size > kept_.size)
      Tell(now_.size > 4096, "the size" + Was(kept_.size, now_.size) + (now_.size > 4096 ? ", more than readers accept" : ""));
    for (const Member &field : kept_.members)
      if (!IsReserved(field))
        Field(field);
    for (const Member &field : now_.members)
      if (kept_.Find(field.name) == nullptr)
        NewField(field);
  }

  void Field(const Member &field) {
    const Member *same = now_.Find(field.name);
    if (same == nullptr)
      return Breaks(field.name + " is gone");
    if (same->at != field.at)
      Breaks(field.name + " was at " + std::to_string(field.at) + " and is at " + std::to_string(same->at));
    if (same->type != field.type)
      Breaks(field.name + " was " + Spell(field.type, "") + " and is " + Spell(same->type, ""));
    else if (same->size != field.size)
      Breaks(field.name + ": the size" + Was(field.size, same->size));
  }

  void NewField(const Member &field) {
    const int64_t end = field.at + field.size;
    bool was_reserved = std::any_of(kept_.members.begin(), kept_.members.end(), [&](const Member &old) {
      return IsReserved(old) && old.at <= field.at && end <= old.at + old.size;
    });
    if (was_reserved)
      Grows(field.name + " takes the place of a reserved field");
    else if (field.at >= kept_.size)
      Grows(field.name + " is new");
    else
      Breaks(field.name + " is new at " + std::to_string(field.at) + ", inside of the " + std::to_string(kept_.size) +
             " bytes of older programs, where they leave anything");
  }

  void Symbol() {
    if (kept_.node == now_.node)
      return;
    if (now_.node == "-")
      Breaks("the library does not export it any more");
    else if (kept_.node == "-")
      Grows("the library exports it");
    else
      Breaks("its version node was " + kept_.node + " and is " + now_.node);
  }

  void Prototype() {
    auto names = [](const Item &item) {
      std::vector<std::string> all;
      for (const Member &parameter : item.members)
        all.push_back(parameter.name);
      return all;
    };
    const std::string change =
        " was " + Spell(kept_.type, "") + Parameters(kept_) + " and is " + Spell(now_.type, "") + Parameters(now_);
    std::vector<std::string> before = names(kept_), after = names(now_);
    bool becomes_const = false;
    if (kept_.type != now_.type || before.size() != after.size())
      return Breaks("the prototype" + change);
    for (size_t i = 0; i < before.size(); i++) {
      const std::string &was = kept_.members[i].type, &is = now_.members[i].type;
      if (was != is && !(kept_.kind == Kind::kFunction && BecomesConst(was, is)))
        return Breaks("the prototype" + change);
      becomes_const = becomes_const || was != is;
    }
    if (becomes_const)
      Grows("a parameter points to const, the prototype" + change);
    if (before == after)
      return;
    // A name that now belongs to another parameter.
    bool moved = false;
    for (size_t i = 0; i < before.size(); i++)
      moved = moved || (before[i] != after[i] && std::count(before.begin(), before.end(), after[i]) > 0);
    if (moved)
      Breaks("parameters have changed places, the prototype" + change);
    else
      Grows("names of parameters have changed, the prototype" + change);
  }

  const Item &kept_, &now_;
  std::vector<Change> *changes_;
};

} // namespace

std::vector<Change> Compare(const Interface &kept, const Interface &now) {
  std::vector<Change> changes;
  for (const auto &[name, item] : kept.items)
    if (now.items.count(name) == 0)
      changes.push_back({ true, Word(item.kind) + name + " is gone" });
    else
      Pair(item, now.items.at(name), &changes).Compare();
  for (const auto &[name, item] : now.items)
    if (kept.items.count(name) == 0)
      changes.push_back({ false, Word(item.kind) + name + " is new" });
  if (kept.soname == now.soname)
    return changes;
  for (Change &change : changes)
    change.breaks = false;
  changes.insert(changes.begin(), { false, "the SONAME was " + kept.soname + " and is " + now.soname });
  return changes;
}

} // namespace cgr_test
