// Text into a buffer: what fits is there, the length is that of all; escapes.
#include "tracing/text.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "cgr/cgr.h"
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
    cgr__text_add(&text, "%s-", "efgh");
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
    { "\xf4\x90\x80\x80", mark + mark + mark + mark }, // likewise
    { "\xe2\x82", mark + mark },                       // cut off
  };
  for (const auto &c : cases) {
    EXPECT_EQ(JsonReader::Read(Written(cgr__text_add_json, c.given)).text, c.read);
    EXPECT_EQ(Written(cgr__text_add_label, c.given), "\"" + c.read + "\"");
  }
}

TEST(Text, LabelsAreEscaped) { EXPECT_EQ(Written(cgr__text_add_label, "a\"b\\c\nd\te"), "\"a\\\"b\\\\c\\nd\te\""); }

// The room that is kept for a dump holds the longest that there can be.
TEST(Text, TheLongestRecordAndHeadFitIntoTheirRoom) {
  cgr_flight_record r;
  std::memset(&r, 0xff, sizeof r);
  r.outcome = CGR_FLIGHT_ABANDONED;
  r.reason = CGR_REASON_CAPTURE_FAILED;
  r.status = CGR_ERROR_TOO_MANY_REQUESTS;
  r.guard = { CGR_GUARD_SEQUENCE, INT32_MIN, INT32_MIN, 0, INT64_MIN };
  r.key = { CGR_KIND_PIECEWISE, 0, 0, INT32_MIN, INT32_MIN, INT32_MIN, 0, UINT32_MAX, { 0, 0, 0, 0 } };
  r.key_index = r.num_requests = r.num_tokens = INT32_MIN;
  char out[CGR__JSON_HEAD_BYTES];
  cgr__text text = cgr__text_begin(out, sizeof out);
  cgr__json_record(&text, &r);
  EXPECT_NO_THROW(JsonReader::Read(std::string(out, text.length)));
  EXPECT_LT(text.length + 4, size_t(CGR__JSON_RECORD_BYTES));
  EXPECT_GT(text.length + 200, size_t(CGR__JSON_RECORD_BYTES)) << "far too much room";
  cgr__failure failure = { UINT64_MAX, CGR_ERROR_TOO_MANY_REQUESTS, INT32_MIN, {} };
  std::memset(failure.message, 1, sizeof failure.message - 1);
  const std::string name(64, '\x01');
  const cgr__dump_head head = { name.c_str(), "host",          UINT64_MAX, UINT64_MAX, UINT64_MAX,
                                UINT64_MAX,   failure.message, INT32_MIN,  &failure };
  text = cgr__text_begin(out, sizeof out);
  cgr__json_head(&text, &head);
  EXPECT_LT(text.length + 64, sizeof out);
  EXPECT_NO_THROW(JsonReader::Read(std::string(out, text.length) + "}"));
}

} // namespace
} // namespace cgr_test
