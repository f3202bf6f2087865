#include "tests/abi/declarations.h"

#include <cctype>
#include <regex>
#include <set>
#include <sstream>
#include <stdexcept>

namespace cgr_test {
namespace {

struct Token {
  std::string text;
  std::string where; // "cgr.h:12"
};
using Tokens = std::vector<Token>;

bool IsWordByte(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '@'; }
bool IsWord(const Token &token) { return IsWordByte(token.text[0]); }

[[noreturn]] void Refuse(const Tokens &tokens, size_t at, const std::string &why) {
  std::string near;
  for (size_t i = at; i < tokens.size() && i < at + 8; i++)
    near += " " + tokens[i].text;
  throw std::runtime_error((tokens.empty() ? "" : tokens[std::min(at, tokens.size() - 1)].where + ": ") + why + ", at:" + near);
}

void Cut(const std::string &line, const std::string &where, Tokens *tokens) {
  for (size_t i = 0; i < line.size();) {
    size_t begin = i;
    if (std::isspace(static_cast<unsigned char>(line[i]))) {
      i++;
      continue;
    }
    if (line[i] == '"')
      i = line.find('"', i + 1) + 1;
    else if (IsWordByte(line[i]))
      while (i < line.size() && IsWordByte(line[i]))
        i++;
    else
      i++;
    tokens->push_back({ line.substr(begin, i - begin), where });
  }
}

// The preprocessor's line markers: # 12 "include/cgr/cgr.h"
Tokens TokensOf(const std::string &text, const std::string &folder) {
  Tokens tokens;
  std::istringstream lines(text);
  std::string file;
  int number = 0;
  for (std::string line; std::getline(lines, line); number++) {
    if (line[0] == '#') {
      size_t open = line.find('"');
      file = line.substr(open + 1, line.find('"', open + 1) - open - 1);
      number = std::stoi(line.substr(1)) - 1;
    } else if (file.rfind(folder, 0) == 0) {
      Cut(line, file.substr(folder.size()) + ":" + std::to_string(number), &tokens);
    }
  }
  return tokens;
}

size_t Closing(const Tokens &tokens, size_t open) {
  int depth = 0;
  for (size_t i = open; i < tokens.size(); i++) {
    const std::string &t = tokens[i].text;
    depth += t == "(" || t == "{" || t == "[" ? 1 : t == ")" || t == "}" || t == "]" ? -1 : 0;
    if (depth == 0)
      return i;
  }
  Refuse(tokens, open, "a bracket that is not closed");
}

// The first `what` from `at` on that is outside all brackets, or the end.
size_t FindOutside(const Tokens &tokens, size_t at, const std::string &what) {
  for (; at < tokens.size() && tokens[at].text != what; at++)
    if (tokens[at].text == "(" || tokens[at].text == "{" || tokens[at].text == "[")
      at = Closing(tokens, at);
  return at;
}

Tokens Slice(const Tokens &tokens, size_t begin, size_t end) {
  return Tokens(tokens.begin() + static_cast<long>(begin), tokens.begin() + static_cast<long>(end));
}

std::vector<Tokens> SplitAtCommas(const Tokens &tokens) {
  std::vector<Tokens> parts;
  for (size_t begin = 0; begin < tokens.size();) {
    size_t end = FindOutside(tokens, begin, ",");
    parts.push_back(Slice(tokens, begin, end));
    begin = end + 1;
  }
  return parts;
}

void RefuseWhatIsNotPlain(const Tokens &tokens) {
  static const std::set<std::string> words = { "static",   "inline",        "union",    "extern",   "volatile",      "restrict",
                                               "_Generic", "__extension__", "_Complex", "_Alignas", "__attribute__", "long" };
  for (size_t i = 0; i < tokens.size(); i++) {
    const std::string &t = tokens[i].text;
    if (words.count(t) || t == "{" || t == "." || t == ":" || t == "=")
      Refuse(tokens, i, t == ":" ? "a bit field" : t == "." ? "a variable number of arguments" : "more than a plain declaration");
  }
}

// Normalizes spaces, whatever the header's style.
std::string Join(const Tokens &tokens) {
  std::string text;
  for (size_t i = 0; i < tokens.size(); i++) {
    const std::string &t = tokens[i].text;
    const std::string before = i > 0 ? tokens[i - 1].text : "(";
    bool apart = IsWord(tokens[i]) || t == "*" || (t == "(" && before != "@");
    if (before == "," || (IsWordByte(before[0]) && apart))
      text += " ";
    text += t;
  }
  return text;
}

// How many words make up the type that the names of one declaration share.
size_t SharedWords(const Tokens &tokens) {
  size_t words = 0;
  while (words < tokens.size() && IsWord(tokens[words]))
    words++;
  bool pointer = words < tokens.size() && (tokens[words].text == "*" || tokens[words].text == "(");
  return pointer ? words : words - 1;
}

Member Declared(const Tokens &shared, Tokens declarator) {
  Member member;
  for (Token &token : declarator)
    if (IsWord(token) && token.text != "const") {
      member.name = token.text;
      token.text = "@";
      break;
    }
  if (member.name.empty())
    Refuse(shared, 0, "a declaration without a name");
  Tokens all = shared;
  all.insert(all.end(), declarator.begin(), declarator.end());
  member.type = Join(all);
  return member;
}

std::vector<Member> Variables(const Tokens &tokens) {
  RefuseWhatIsNotPlain(tokens);
  std::vector<Tokens> parts = SplitAtCommas(tokens);
  size_t words = SharedWords(tokens);
  if (words == 0 || words > tokens.size())
    Refuse(tokens, 0, "a declaration without a type");
  const Tokens shared = Slice(tokens, 0, words);
  parts[0] = Slice(parts[0], words, parts[0].size());
  std::vector<Member> members;
  for (const Tokens &part : parts)
    members.push_back(Declared(shared, part));
  return members;
}

size_t FirstBracket(const Tokens &tokens) {
  size_t open = 0;
  while (open < tokens.size() && tokens[open].text != "(")
    open++;
  return open;
}

void ReadParameters(const Tokens &tokens, Item *item) {
  if (tokens.size() == 1 && tokens[0].text == "void")
    return;
  for (const Tokens &parameter : SplitAtCommas(tokens))
    item->members.push_back(Variables(parameter)[0]);
}

Item Function(const Tokens &tokens) {
  Item item;
  item.kind = Kind::kFunction;
  RefuseWhatIsNotPlain(tokens);
  size_t open = FirstBracket(tokens);
  if (open < 2 || open == tokens.size() || Closing(tokens, open) != tokens.size() - 1)
    Refuse(tokens, 0, "neither a type nor a function");
  item.name = tokens[open - 1].text;
  Tokens result = Slice(tokens, 0, open - 1);
  result.push_back({ "@", tokens[open].where });
  item.type = Join(result);
  if (open + 2 == tokens.size())
    Refuse(tokens, 0, "a function without a prototype");
  ReadParameters(Slice(tokens, open + 1, tokens.size() - 1), &item);
  return item;
}

// result (*name)(parameters)
Item Callback(const Tokens &tokens) {
  size_t open = FirstBracket(tokens);
  if (open + 5 >= tokens.size() || tokens[open + 1].text != "*" || tokens[open + 3].text != ")")
    Refuse(tokens, 0, "not a pointer to a function");
  Tokens plain = Slice(tokens, 0, open);
  plain.push_back(tokens[open + 2]);
  plain.insert(plain.end(), tokens.begin() + static_cast<long>(open) + 4, tokens.end());
  Item item = Function(plain);
  item.kind = Kind::kCallback;
  return item;
}

class Reader {
public:
  explicit Reader(const Tokens &tokens) : tokens_(tokens) {}

  std::map<std::string, Item> Read() {
    while (at_ < tokens_.size())
      if (Take("typedef"))
        Typedef();
      else if (Take("enum"))
        Enum(Item());
      else
        Prototype();
    return items_;
  }

private:
  bool Take(const std::string &word) {
    bool taken = at_ < tokens_.size() && tokens_[at_].text == word;
    at_ += taken;
    return taken;
  }
  void Need(const std::string &word) {
    if (!Take(word))
      Refuse(tokens_, at_, "expected " + word);
  }
  std::string Word() {
    if (at_ >= tokens_.size() || !IsWord(tokens_[at_]))
      Refuse(tokens_, at_, "expected a name");
    return tokens_[at_++].text;
  }
  Tokens UpTo(const std::string &end) {
    size_t begin = at_;
    at_ = FindOutside(tokens_, at_, end) + 1;
    if (at_ > tokens_.size())
      Refuse(tokens_, begin, "no " + end);
    return Slice(tokens_, begin, at_ - 1);
  }
  void Add(const Item &item) {
    // A type may be declared before it is defined.
    auto known = items_.find(item.name);
    if (known != items_.end() && known->second.kind != Kind::kOpaque)
      Refuse(tokens_, at_ - 1, "a second " + item.name);
    items_[item.name] = item;
  }

  void Typedef() {
    bool is_enum = at_ + 2 < tokens_.size() && tokens_[at_].text == "enum" && tokens_[at_ + 2].text == "{";
    bool is_struct = at_ + 2 < tokens_.size() && tokens_[at_].text == "struct" && IsWord(tokens_[at_ + 1]);
    if (is_enum) {
      at_++;
      Item item;
      item.name = Word();
      Enum(item);
    } else if (is_struct && tokens_[at_ + 2].text == "{") {
      Struct();
    } else if (is_struct && tokens_[at_ + 2].text == tokens_[at_ + 1].text) {
      Item item;
      item.name = tokens_[at_ + 1].text;
      at_ += 3;
      Need(";");
      Add(item);
    } else {
      Other();
    }
  }
  void Enum(Item item) {
    item.kind = Kind::kEnum;
    Need("{");
    while (!Take("}")) {
      Member member;
      member.name = Word();
      if (Take("="))
        while (at_ < tokens_.size() && tokens_[at_].text != "," && tokens_[at_].text != "}")
          at_++;
      item.members.push_back(member);
      Take(",");
    }
    if (!item.name.empty()) {
      Need(item.name);
      Add(item);
    }
    Need(";");
    if (!item.name.empty())
      return;
    for (const Member &member : item.members) {
      Item constant;
      constant.kind = Kind::kConstant;
      constant.name = member.name;
      Add(constant);
    }
  }
  void Struct() {
    Item item;
    at_++;
    item.kind = Kind::kStruct;
    item.name = Word();
    Need("{");
    while (!Take("}"))
      for (const Member &member : Variables(UpTo(";")))
        item.members.push_back(member);
    Need(item.name);
    Need(";");
    Add(item);
  }
  // typedef result (*name)(parameters), or another name for a type.
  void Other() {
    Tokens tokens = UpTo(";");
    Item item;
    if (FirstBracket(tokens) < tokens.size()) {
      item = Callback(tokens);
    } else {
      Member member = Variables(tokens)[0];
      item.kind = Kind::kAlias;
      item.name = member.name;
      item.type = member.type;
    }
    Add(item);
  }
  void Prototype() {
    // CGR_API
    if (Take("__attribute__"))
      at_ = Closing(tokens_, at_) + 1;
    Add(Function(UpTo(";")));
  }

  const Tokens tokens_;
  size_t at_ = 0;
  std::map<std::string, Item> items_;
};

Tokens CutAll(const std::string &text) {
  Tokens tokens;
  Cut(text, text, &tokens);
  return tokens;
}

} // namespace

std::map<std::string, Item> ReadDeclarations(const std::string &text, const std::string &folder) {
  return Reader(TokensOf(text, folder)).Read();
}

std::map<std::string, Item> ReadMacros(const std::string &text) {
  std::map<std::string, Item> items;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::smatch found;
    if (!std::regex_match(line, found, std::regex("#define (CGR_\\w+)(.*)")))
      continue;
    Item item;
    item.kind = Kind::kMacro;
    item.name = found[1];
    item.type = found[2];
    const bool is_guard = std::regex_match(line, std::regex("#define \\w+_H *"));
    if (is_guard || item.name == "CGR_API" || item.name.rfind("CGR_VERSION", 0) == 0)
      continue;
    if (std::regex_match(item.name, std::regex("\\w+_INIT|CGR_STATUS_LIST")))
      item.type = "";
    items[item.name] = item;
  }
  return items;
}

Item ReadFunction(const std::string &text) { return Function(CutAll(text)); }
Item ReadCallback(const std::string &text) { return Callback(CutAll(text)); }
Member ReadVariable(const std::string &text) { return Variables(CutAll(text))[0]; }

} // namespace cgr_test
