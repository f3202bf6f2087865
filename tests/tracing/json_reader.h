// A strict JSON reader: RFC 8259 and nothing else.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace cgr_test {

struct Json {
  enum Kind { kNull, kBool, kNumber, kString, kArray, kObject } kind = kNull;
  std::string text; // of a string, decoded; of a number or a truth value, as it stands
  std::vector<Json> items;
  std::map<std::string, Json> members;

  bool Has(const std::string &name) const { return members.count(name) != 0; }
  const Json &operator[](const std::string &name) const {
    if (!Has(name))
      throw std::runtime_error("no member " + name);
    return members.at(name);
  }
  uint64_t Number() const {
    return kind == kNumber ? std::strtoull(text.c_str(), nullptr, 10) : throw std::runtime_error("no number");
  }
};

// What a member must be: a number, null, or the text of anything else.
struct JsonWant {
  template <class T, std::enable_if_t<std::is_integral<T>::value, int> = 0>
  JsonWant(T number) : is_number(true), text(std::to_string(number)) {}
  JsonWant(std::nullptr_t) : is_null(true) {}
  JsonWant(const std::string &of) : text(of) {}
  JsonWant(const char *of) : text(of) {}
  bool is_number = false, is_null = false;
  std::string text;
};

// Each of the members is as it must be.
inline void ExpectMembers(const Json &json, const std::vector<std::pair<std::string, JsonWant>> &members) {
  for (const auto &[name, want] : members) {
    const Json &got = json[name];
    EXPECT_EQ(got.text, want.text) << name;
    EXPECT_EQ(got.kind == Json::kNull, want.is_null) << name;
    EXPECT_TRUE(!want.is_number || got.kind == Json::kNumber) << name << " is no number";
  }
}

// Throws std::runtime_error if the text is not JSON.
class JsonReader {
public:
  static Json Read(const std::string &text) {
    JsonReader reader(text);
    Json value = reader.Value();
    reader.Space();
    return reader.at_ == text.size() ? value : throw std::runtime_error("something follows");
  }

private:
  explicit JsonReader(const std::string &text) : text_(text) {}
  char Peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  [[noreturn]] void Fail(const std::string &what) const {
    throw std::runtime_error(what + " at " + std::to_string(at_) + ": " + text_.substr(at_, 40));
  }
  void Space() {
    while (at_ < text_.size() && std::string(" \t\r\n").find(text_[at_]) != std::string::npos)
      at_++;
  }
  bool Take(const std::string &word) {
    if (text_.compare(at_, word.size(), word) != 0)
      return false;
    at_ += word.size();
    return true;
  }
  void Need(const std::string &word) {
    Space();
    if (!Take(word))
      Fail("expected " + word);
  }
  Json Value() {
    Space();
    Json value;
    if (Take("null"))
      return value;
    if (Peek() == '"') {
      value.kind = Json::kString;
      value.text = String();
    } else if (Peek() == '{') {
      value.kind = Json::kObject;
      Object(&value);
    } else if (Peek() == '[') {
      value.kind = Json::kArray;
      Array(&value);
    } else if (Peek() == 't' || Peek() == 'f') {
      value.kind = Json::kBool;
      value.text = Peek() == 't' ? "true" : "false";
      Need(value.text);
    } else {
      value.kind = Json::kNumber;
      value.text = NumberText();
    }
    return value;
  }
  void Object(Json *value) {
    Need("{");
    for (Space(); Peek() != '}'; Space()) {
      if (!value->members.empty())
        Need(",");
      Space();
      const std::string name = String();
      Need(":");
      if (!value->members.emplace(name, Value()).second)
        Fail("twice: " + name);
    }
    Need("}");
  }
  void Array(Json *value) {
    Need("[");
    for (Space(); Peek() != ']'; Space()) {
      if (!value->items.empty())
        Need(",");
      value->items.push_back(Value());
    }
    Need("]");
  }
  std::string NumberText() {
    const size_t begin = at_;
    auto digits = [this] {
      size_t count = 0;
      for (; Peek() >= '0' && Peek() <= '9'; at_++)
        count++;
      return count;
    };
    Take("-");
    const size_t first = at_, whole = digits();
    if (whole == 0 || (whole > 1 && text_[first] == '0'))
      Fail("no number");
    if (Take(".") && digits() == 0)
      Fail("no fraction");
    return text_.substr(begin, at_ - begin);
  }
  unsigned Hex4() {
    unsigned code = 0;
    for (int i = 0; i < 4; i++, at_++) {
      const size_t digit = std::string("0123456789abcdef").find(Peek());
      if (digit == std::string::npos || Peek() == '\0')
        Fail("no hex digit");
      code = code * 16 + unsigned(digit);
    }
    return code;
  }
  std::string String() {
    std::string value;
    if (!Take("\""))
      Fail("expected a string");
    while (!Take("\"")) {
      const unsigned char c = static_cast<unsigned char>(Peek());
      if (at_ >= text_.size() || c < 0x20)
        Fail("bare control character, or no end");
      at_++;
      if (c != '\\') {
        value += char(c);
        continue;
      }
      const size_t plain = std::string("\"\\/bfnrt").find(Peek());
      if (Take("u")) {
        const unsigned code = Hex4();
        value += code < 0x80 ? std::string(1, char(code)) : code == 0xfffd ? "\xef\xbf\xbd" : throw std::runtime_error("code");
      } else if (plain != std::string::npos && Peek() != '\0') {
        value += "\"\\/\b\f\n\r\t"[plain];
        at_++;
      } else {
        Fail("bad escape");
      }
    }
    return value;
  }

  const std::string &text_;
  size_t at_ = 0;
};

} // namespace cgr_test
