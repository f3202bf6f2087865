// What functions take of an enum, or as flags: all that it has, and a refusal lists it by name.
#include "base/choices.h"

#include <string>

#include "tests/support/expect.h"

namespace {

using cgr_test::ExpectMessage;
using cgr_test::Words;

struct Case {
  const cgr__choices *choices;
  const char *type;
  int count;
  bool is_part; // another enumerator follows that these functions do not take
};

const Case kCases[] = {
  { &cgr__dtypes, "cgr_dtype", 11, false },
  { &cgr__kv_layouts, "cgr_kv_layout", 2, false },
  { &cgr__graph_kinds, "cgr_graph_kind", 3, false },
  { &cgr__graph_modes, "cgr_graph_mode", 6, false },
  { &cgr__graph_supports, "cgr_graph_support", 5, false },
  { &cgr__wait_modes, "cgr_wait_mode", 4, false },
  { &cgr__timing_modes, "cgr_timing_mode", 3, false },
  { &cgr__host_schedules, "cgr_host_schedule", 4, false },
  { &cgr__dimensions, "cgr_dimension", 3, false },
  { &cgr__dimensions_of_steps, "cgr_dimension", 2, true },
  { &cgr__sources, "cgr_source", 2, false },
  { &cgr__fa3_layouts, "cgr_fa3_layout", 2, false },
  { &cgr__flashmla_layouts, "cgr_flashmla_layout", 2, false },
  { &cgr__flashinfer_layouts, "cgr_flashinfer_layout", 2, false },
  { &cgr__attention_flags, "CGR_ATTENTION_*", 4, false },
  { &cgr__transform_flags, "CGR_TRANSFORM_*", 2, false },
  { &cgr__layer_flags, "CGR_LAYER_*", 3, false },
  { &cgr__value_flags, "CGR_VALUES_*", 1, false },
  { &cgr__backend_flags, "CGR_BACKEND_*", 6, false },
  { &cgr__abilities, "CGR_ABILITY_*", 14, false },
  { &cgr__planned_bits, "CGR_PLANNED_*", 7, false },
  { &cgr__request_flags, "CGR_REQUEST_*", 1, false },
  { &cgr__capture_flags, "CGR_CAPTURE_*", 1, false },
};

class Choices : public ::testing::TestWithParam<Case> {
protected:
  const cgr__choices *choices() const { return GetParam().choices; }
  int64_t After(int64_t value) const { return choices()->flags ? 2 * value : value + 1; }
};

TEST_P(Choices, AreAllThatHaveAName) {
  const cgr__choices *c = choices();
  EXPECT_STREQ(c->type, GetParam().type);
  int count = 0;
  for (int64_t value = c->first; value <= c->last; value = After(value), count++) {
    EXPECT_STRNE(c->name(value), "unknown") << value;
    EXPECT_TRUE(cgr__is_choice(c, value)) << value;
  }
  EXPECT_EQ(count, GetParam().count);
  EXPECT_EQ(std::string(c->name(After(c->last))) == "unknown", !GetParam().is_part);
  EXPECT_FALSE(cgr__is_choice(c, After(c->last)));
}

TEST_P(Choices, OfFlagsMayBeNoneOrAll) {
  const cgr__choices *c = choices();
  if (!c->flags)
    GTEST_SKIP() << "an enum";
  EXPECT_TRUE(cgr__is_choice(c, 0));
  EXPECT_TRUE(cgr__is_choice(c, 2 * c->last - 1));
  EXPECT_FALSE(cgr__is_choice(c, c->first | INT64_MIN));
}

TEST_P(Choices, AreListedByARefusal) {
  const cgr__choices *c = choices();
  Words names = { GetParam().type, "f: x is " };
  for (int64_t value = c->first; value <= c->last; value = After(value))
    names.push_back(c->name(value));
  for (int64_t bad : { After(c->last), int64_t{ INT32_MIN }, int64_t{ INT32_MAX } }) {
    ExpectMessage(cgr__check_choice("f", "x", c, bad), CGR_ERROR_INVALID_ENUM, names);
    EXPECT_EQ(std::string(cgr_last_message()).back(), ')') << "cut off: " << cgr_last_message();
  }
  EXPECT_EQ(cgr__check_choice("f", "x", c, c->first), CGR_OK);
  EXPECT_EQ(cgr__check_choice("f", "x", c, c->last), CGR_OK);
}

INSTANTIATE_TEST_SUITE_P(Base, Choices, ::testing::ValuesIn(kCases),
                         [](const auto &made) { return "of_" + std::to_string(made.index); });

} // namespace
