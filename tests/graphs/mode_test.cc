// The graph mode that an engine gets: what it asked for, lowered to what its attention can do.
#include <gtest/gtest.h>

#include <string>

#include "cgr/names.h"
#include "graphs/graphs.h"

namespace {

struct Lowered {
  cgr_graph_mode mode;
  std::string reason;
};

Lowered Lower(cgr_graph_mode mode, cgr_graph_support support) {
  const char *reason = nullptr;
  cgr_graph_mode lowered = cgr__mode_lower(mode, support, &reason);
  EXPECT_NE(reason, nullptr);
  return { lowered, reason != nullptr ? reason : "" };
}

// What a mode becomes, by support: DEFAULT, NEVER, UNIFORM_SINGLE_TOKEN_DECODE, UNIFORM_BATCH, ALWAYS; its kinds of keys, as
// (uniform query lengths, everything else).
struct Row {
  cgr_graph_mode mode;
  cgr_graph_mode lowered[5];
  cgr_graph_kind uniform, mixed;
};
constexpr cgr_graph_mode kNone = CGR_MODE_NONE, kPieces = CGR_MODE_PIECEWISE, kFull = CGR_MODE_FULL,
                         kDecode = CGR_MODE_FULL_DECODE_ONLY, kBoth = CGR_MODE_FULL_AND_PIECEWISE;
const Row kRows[] = {
  { CGR_MODE_DEFAULT, { kFull, kPieces, kBoth, kBoth, kFull }, CGR_KIND_NONE, CGR_KIND_NONE }, // none has it in the end
  { kNone, { kNone, kNone, kNone, kNone, kNone }, CGR_KIND_NONE, CGR_KIND_NONE },
  { kPieces, { kPieces, kPieces, kPieces, kPieces, kPieces }, CGR_KIND_PIECEWISE, CGR_KIND_PIECEWISE },
  { kFull, { kFull, kPieces, kBoth, kBoth, kFull }, CGR_KIND_FULL, CGR_KIND_FULL },
  { kDecode, { kDecode, kPieces, kDecode, kDecode, kDecode }, CGR_KIND_FULL, CGR_KIND_NONE },
  { kBoth, { kBoth, kPieces, kBoth, kBoth, kBoth }, CGR_KIND_FULL, CGR_KIND_PIECEWISE },
};

cgr_graph_mode Named(cgr_graph_mode mode, cgr_graph_support support) {
  bool always = support == CGR_SUPPORT_DEFAULT || support == CGR_SUPPORT_ALWAYS;
  return mode != CGR_MODE_DEFAULT ? mode : always ? CGR_MODE_FULL : CGR_MODE_FULL_AND_PIECEWISE;
}

TEST(Mode, KindsOfKeysAreWhatTheModeSays) {
  for (const Row &row : kRows)
    if (row.mode != CGR_MODE_DEFAULT) {
      EXPECT_EQ(cgr__mode_uniform_kind(row.mode), row.uniform) << cgr_graph_mode_name(row.mode);
      EXPECT_EQ(cgr__mode_mixed_kind(row.mode), row.mixed) << cgr_graph_mode_name(row.mode);
    }
}

TEST(Mode, IsLoweredToWhatIsPossible) {
  for (const Row &row : kRows)
    for (int support = CGR_SUPPORT_DEFAULT; support <= CGR_SUPPORT_ALWAYS; support++)
      EXPECT_EQ(Lower(row.mode, static_cast<cgr_graph_support>(support)).mode, row.lowered[support])
          << cgr_graph_mode_name(row.mode) << ", " << cgr_graph_support_name(static_cast<cgr_graph_support>(support));
}

TEST(Mode, AReasonIsGivenExactlyWhenItIsLowered) {
  for (int mode = CGR_MODE_DEFAULT; mode <= CGR_MODE_FULL_AND_PIECEWISE; mode++)
    for (int support = CGR_SUPPORT_DEFAULT; support <= CGR_SUPPORT_ALWAYS; support++) {
      auto m = static_cast<cgr_graph_mode>(mode);
      auto s = static_cast<cgr_graph_support>(support);
      SCOPED_TRACE(std::string(cgr_graph_mode_name(m)) + ", " + cgr_graph_support_name(s));
      Lowered lowered = Lower(m, s);
      cgr_graph_mode asked = Named(m, s);
      EXPECT_EQ(lowered.reason.empty(), lowered.mode == asked) << lowered.reason;
      if (lowered.reason.empty())
        continue;
      const char *to = lowered.mode == CGR_MODE_PIECEWISE ? "to PIECEWISE" : "to FULL_AND_PIECEWISE";
      EXPECT_NE(lowered.reason.find(to), std::string::npos) << lowered.reason;
    }
}

TEST(Mode, AttentionThatCannotBeCapturedIsTheReason) {
  for (cgr_graph_mode mode : { CGR_MODE_DEFAULT, CGR_MODE_FULL, CGR_MODE_FULL_DECODE_ONLY, CGR_MODE_FULL_AND_PIECEWISE })
    EXPECT_NE(Lower(mode, CGR_SUPPORT_NEVER).reason.find("CGR_SUPPORT_NEVER"), std::string::npos) << cgr_graph_mode_name(mode);
}

} // namespace
