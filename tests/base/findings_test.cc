// Findings: all are counted, those that fit are written, and creation fails with the first.
#include <cstring>
#include <string>
#include <vector>

#include "base/findings.h"
#include "tests/support/expect.h"

namespace {

using cgr_test::ExpectMessage;

struct Found {
  std::vector<cgr_finding> out;
  cgr__findings findings;

  // One finding beyond `capacity`, to check that it stays untouched.
  explicit Found(int32_t capacity) : out(static_cast<size_t>(capacity) + 1) {
    memset(out.data(), 0x5a, out.size() * sizeof out[0]);
    cgr__findings_init(&findings, out.data(), capacity);
  }
  void ExpectUntouched(size_t from) const {
    const unsigned char *byte = reinterpret_cast<const unsigned char *>(out.data() + from);
    for (size_t i = 0; i < (out.size() - from) * sizeof out[0]; i++)
      ASSERT_EQ(byte[i], 0x5a) << "finding " << from + i / sizeof out[0];
  }
};

void FindThree(cgr__findings *findings) {
  cgr__findings_add(findings, CGR_ERROR_UNSUPPORTED, "max_tokens", "is %d, expected %d", 1, 2);
  findings->layer = 3;
  findings->group = 1;
  cgr__findings_add(findings, CGR_ERROR_INVALID_ENUM, "layers[3].dtype", "is %d, expected a cgr_dtype", 99);
  findings->layer = findings->group = -1;
  cgr__findings_add(findings, CGR_ERROR_NULL_POINTER, "groups", "is NULL, expected %d groups", 1);
}

TEST(Findings, AreWrittenInTheirOrder) {
  Found found(3);
  FindThree(&found.findings);
  EXPECT_EQ(found.findings.count, 3);
  const cgr_finding *out = found.out.data();
  EXPECT_EQ(out[0].status, CGR_ERROR_UNSUPPORTED);
  EXPECT_STREQ(out[0].field, "max_tokens");
  EXPECT_STREQ(out[0].text, "is 1, expected 2");
  EXPECT_EQ(out[0].layer, -1);
  EXPECT_EQ(out[0].group, -1);
  EXPECT_EQ(out[1].status, CGR_ERROR_INVALID_ENUM);
  EXPECT_STREQ(out[1].field, "layers[3].dtype");
  EXPECT_EQ(out[1].layer, 3);
  EXPECT_EQ(out[1].group, 1);
  EXPECT_EQ(out[2].status, CGR_ERROR_NULL_POINTER);
  EXPECT_EQ(out[2].layer, -1);
  for (int i = 0; i < 3; i++)
    EXPECT_EQ(out[i].reserved, 0);
  found.ExpectUntouched(3);
}

TEST(Findings, BeyondTheCapacityAreCountedAlone) {
  for (int32_t capacity : { 0, 1, 2 }) {
    Found found(capacity);
    FindThree(&found.findings);
    EXPECT_EQ(found.findings.count, 3);
    found.ExpectUntouched(static_cast<size_t>(capacity));
    ExpectMessage(cgr__findings_status(&found.findings, "create"), CGR_ERROR_UNSUPPORTED,
                  { "create", "max_tokens is 1, expected 2" });
  }
}

TEST(Findings, NeedNoArray) {
  for (int32_t capacity : { 0, 5, -1 }) {
    cgr__findings findings;
    cgr__findings_init(&findings, nullptr, capacity);
    FindThree(&findings);
    EXPECT_EQ(findings.count, 3);
    EXPECT_EQ(cgr__findings_status(&findings, "create"), CGR_ERROR_UNSUPPORTED);
  }
}

// Where the other findings can be seen: in what the failing function returned, or elsewhere.
TEST(Findings, TheMessageTellsHowManyMoreThereAreAndWhere) {
  Found found(1);
  FindThree(&found.findings);
  cgr__findings_status(&found.findings, "create");
  EXPECT_NE(std::string(cgr_last_message()).find(" (and 2 more)"), std::string::npos) << cgr_last_message();
  found.findings.see = "elsewhere";
  cgr__findings_status(&found.findings, "create");
  EXPECT_NE(std::string(cgr_last_message()).find(" (and 2 more: see elsewhere)"), std::string::npos) << cgr_last_message();
}

TEST(Findings, ANegativeCapacityIsNone) {
  Found found(0);
  cgr__findings_init(&found.findings, found.out.data(), -1);
  FindThree(&found.findings);
  EXPECT_EQ(found.findings.count, 3);
  found.ExpectUntouched(0);
}

TEST(Findings, NoneIsOkAndLeavesTheMessage) {
  Found found(1);
  cgr__fail(CGR_ERROR_STATE, "from before");
  EXPECT_EQ(cgr__findings_status(&found.findings, "create"), CGR_OK);
  EXPECT_STREQ(cgr_last_message(), "from before");
  found.ExpectUntouched(0);
}

TEST(Findings, MessageTellsHowManyMoreThereAre) {
  Found found(1);
  for (int32_t count = 1; count <= 4; count++) {
    cgr__findings_add(&found.findings, CGR_ERROR_INVALID_ARGUMENT, "max_rows", "is %d", count);
    ExpectMessage(cgr__findings_status(&found.findings, "create"), CGR_ERROR_INVALID_ARGUMENT, { "create: max_rows is 1" });
    bool told = std::string(cgr_last_message()).find("more") != std::string::npos;
    EXPECT_EQ(told, count > 1) << cgr_last_message();
    if (told)
      ExpectMessage(CGR_OK, CGR_OK, { "(and " + std::to_string(count - 1) + " more" });
  }
}

TEST(Findings, TakeOverAFailureWithItsMessage) {
  Found found(1);
  cgr_status status = cgr__fail(CGR_ERROR_NEWER_STRUCT, "layers[2]: size is 900");
  cgr__findings_add_failure(&found.findings, status, "layers[2]");
  EXPECT_EQ(found.out[0].status, CGR_ERROR_NEWER_STRUCT);
  EXPECT_STREQ(found.out[0].field, "layers[2]");
  EXPECT_STREQ(found.out[0].text, "size is 900");
  ExpectMessage(cgr__findings_status(&found.findings, "create"), CGR_ERROR_NEWER_STRUCT, { "create: layers[2] size is 900" });
  Found other(1);
  cgr__fail(CGR_ERROR_DEVICE, "layers[20]: is another");
  cgr__findings_add_failure(&other.findings, CGR_ERROR_DEVICE, "layers[2]");
  EXPECT_STREQ(other.out[0].text, "layers[20]: is another");
}

// For a finding about the whole, the message begins with its field anyway.
TEST(Findings, OfTheWholeDoNotRepeatIt) {
  Found found(1);
  cgr__findings_add(&found.findings, CGR_ERROR_INVALID_ARGUMENT, "config", "would be too large");
  ExpectMessage(cgr__findings_status(&found.findings, "create: config"), CGR_ERROR_INVALID_ARGUMENT,
                { "create: config: would be too large" });
}

TEST(Findings, LongFieldsAndTextsAreCut) {
  Found found(2);
  std::string field(200, 'f'), text(600, 't');
  cgr__findings_add(&found.findings, CGR_ERROR_STATE, field.c_str(), "%s", text.c_str());
  cgr__fail(CGR_ERROR_STATE, "%s", text.c_str());
  cgr__findings_add_failure(&found.findings, CGR_ERROR_STATE, field.c_str());
  for (int i = 0; i < 2; i++) {
    EXPECT_EQ(found.out[i].field, field.substr(0, sizeof found.out[i].field - 1));
    EXPECT_EQ(found.out[i].text, text.substr(0, sizeof found.out[i].text - 1));
  }
  found.ExpectUntouched(2);
}

} // namespace
