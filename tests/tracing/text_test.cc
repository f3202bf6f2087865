// Text into a buffer: what fits is written, and the length is that of the whole text; escapes.
#include "tracing/text.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "cgr/cgr.h"
#include "cgr/names.h"
#include "tests/tracing/json_reader.h"
#include "tracing/json.h"

namespace cgr_test {
namespace {

std::string Written(void (*write)(cgr__text *, const char *), const std::string &what) {
  char out[4096];
  cgr__text text = cgr__text_begin(out, sizeof out);
  write(&text, what.c_str());
  EXPECT_LT(text.length, sizeof out);
  return std::string(out, text.length);
}

TEST(Text, WhatFitsIsWrittenAndTheRestCounted) {
  const std::string whole = "abcdefgh-12.034";
  for (size_t capacity = 0; capacity < 20; capacity++) {
    std::string out(24, '#');
    cgr__text text = cgr__text_begin(capacity > 0 ? &out[0] : nullptr, capacity);
    cgr__text_add(&text, "%s", "abcd");
    cgr__text_add_bytes(&text, "efgh", 4);
    cgr__text_add(&text, "%c", '-');
    cgr__text_add_decimal(&text, 12034, 3);
    EXPECT_EQ(text.length, whole.size());
    const size_t fits = capacity == 0 ? 0 : std::min(capacity - 1, whole.size());
    EXPECT_EQ(out.substr(0, fits), whole.substr(0, fits));
    if (capacity > 0) {
      EXPECT_EQ(out[fits], '\0');
    }
    EXPECT_EQ(out.substr(capacity), std::string(24 - capacity, '#')) << "nothing past the capacity";
  }
}

TEST(Text, JsonStringsAreReadBackAsTheyWere) {
  std::string all;
  for (int c = 1; c < 128; c++)
    all += char(c);
  const std::string utf8 = "\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80 \xed\x9f\xbf \xf4\x8f\xbf\xbf";
  for (const std::string &what : { std::string(), all, utf8 })
    EXPECT_EQ(JsonReader::Read(Written(cgr__text_add_json, what)).text, what);
}

TEST(Text, BytesThatAreNoUtf8AreReplacedOneByOne) {
  const std::string mark = "\xef\xbf\xbd";
  const struct {
    std::string given, read;
  } cases[] = {
    { "a\xff", "a" + mark },                           // no first byte
    { "\x80z", mark + "z" },                           // a later byte first
    { "\xc0\xaf", mark + mark },                       // a long form
    { "\xe0\x80\xaf", mark + mark + mark },            // another
    { "\xed\xa0\x80", mark + mark + mark },            // a surrogate
    { "\xf5\x80\x80\x80", mark + mark + mark + mark }, // past the last
    { "\xf4\x90\x80\x80", mark + mark + mark + mark }, // the same
    { "\xe2\x82", mark + mark },                       // cut off
  };
  for (const auto &c : cases) {
    EXPECT_EQ(JsonReader::Read(Written(cgr__text_add_json, c.given)).text, c.read);
    EXPECT_EQ(Written(cgr__text_add_label, c.given), "\"" + c.read + "\"");
  }
}

TEST(Text, LabelsAreEscaped) { EXPECT_EQ(Written(cgr__text_add_label, "a\"b\\c\nd\te"), "\"a\\\"b\\\\c\\nd\te\""); }

// The number whose name is the longest.
template <class Name> int Longest(int count, Name name) {
  int longest = 0;
  for (int i = 1; i < count; i++)
    longest = std::strlen(name(i)) > std::strlen(name(longest)) ? i : longest;
  return longest;
}

cgr_key LongestKey() {
  const int kind = Longest(CGR_KIND_FULL + 1, [](int i) { return cgr_graph_kind_name(cgr_graph_kind(i)); });
  return { kind, 0, 0, INT32_MIN, INT32_MIN, INT32_MIN, 0, UINT32_MAX, { 0, 0, 0, 0 } };
}

// The room kept for a dump holds the longest possible one.
TEST(Text, TheLongestRecordAndHeadFitIntoTheirRoom) {
  const int status = Longest(64, [](int i) { return cgr_status_name(cgr_status(i)); });
  const int guard = Longest(32, [](int i) { return cgr_guard_error_name(cgr_guard_error(i)); });
  size_t longest = 0;
  char out[CGR__JSON_HEAD_BYTES];
  cgr_flight_record r;
  std::memset(&r, 0xff, sizeof r);
  r.status = status;
  r.reason = Longest(CGR_REASON_COUNT_, [](int i) { return cgr_reason_name(cgr_reason(i)); });
  r.guard = { guard, INT32_MIN, INT32_MIN, 0, INT64_MIN };
  r.key = LongestKey();
  r.num_requests = r.num_tokens = INT32_MIN;
  r.completed = 0;
  for (r.outcome = CGR_FLIGHT_PREPARED; r.outcome <= CGR_FLIGHT_INTERNAL; r.outcome++)
    for (r.key_index = -1; r.key_index <= 0; r.key_index++) {
      cgr__text text = cgr__text_begin(out, sizeof out);
      cgr__json_record(&text, &r);
      EXPECT_NO_THROW(JsonReader::Read(std::string(out, text.length)));
      longest = std::max(longest, text.length + (r.key_index == 0 ? 9 : 0)); // of an index of ten digits
    }
  EXPECT_LT(longest + 4, size_t(CGR__JSON_RECORD_BYTES));
  EXPECT_GT(longest + 200, size_t(CGR__JSON_RECORD_BYTES)) << "far too much room";
  r.outcome = Longest(CGR_FLIGHT_INTERNAL + 1, [](int i) { return cgr_flight_outcome_name(cgr_flight_outcome(i)); });
  r.key_index = INT32_MIN;
  cgr__failure failure;
  std::memset(&failure, 0, sizeof failure);
  failure.seq = UINT64_MAX;
  failure.key = LongestKey();
  failure.status = status;
  failure.device_code = INT32_MIN;
  std::memset(failure.message, 1, sizeof failure.message - 1);
  const std::string name(64, '\x01');
  const cgr__dump_head head = { name.c_str(),    "host",    UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX,
                                failure.message, INT32_MIN, &failure,   UINT64_MAX, &r };
  cgr__text text = cgr__text_begin(out, sizeof out);
  cgr__json_head(&text, &head);
  EXPECT_LT(text.length + 64, sizeof out);
  EXPECT_NO_THROW(JsonReader::Read(std::string(out, text.length) + "}"));
}

} // namespace
} // namespace cgr_test
