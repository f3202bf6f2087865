// The graph mode that an engine gets: what it asked for, lowered to what its attention and this version can do.
#include <gtest/gtest.h>

#include <set>
#include <string>

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

// What a mode asks for, as (uniform query lengths, everything else).
struct Pair {
  cgr_graph_kind uniform, other;
};
Pair AskedBy(cgr_graph_mode mode) {
  switch (mode) {
  case CGR_MODE_NONE:
    return { CGR_KIND_NONE, CGR_KIND_NONE };
  case CGR_MODE_PIECEWISE:
    return { CGR_KIND_PIECEWISE, CGR_KIND_PIECEWISE };
  case CGR_MODE_FULL:
    return { CGR_KIND_FULL, CGR_KIND_FULL };
  case CGR_MODE_FULL_DECODE_ONLY:
    return { CGR_KIND_FULL, CGR_KIND_NONE };
  case CGR_MODE_DEFAULT:
  case CGR_MODE_FULL_AND_PIECEWISE:
    return { CGR_KIND_FULL, CGR_KIND_PIECEWISE };
  }
  return {};
}

bool IsAlways(cgr_graph_support support) { return support == CGR_SUPPORT_DEFAULT || support == CGR_SUPPORT_ALWAYS; }

cgr_graph_mode Named(cgr_graph_mode mode, cgr_graph_support support) {
  return mode != CGR_MODE_DEFAULT ? mode : IsAlways(support) ? CGR_MODE_FULL : CGR_MODE_FULL_AND_PIECEWISE;
}

// This version captures no pieces; FULL graphs of mixed batches need attention that can always be captured.
cgr_graph_mode Possible(Pair asked, cgr_graph_support support) {
  if (asked.uniform != CGR_KIND_FULL || support == CGR_SUPPORT_NEVER)
    return CGR_MODE_NONE;
  return asked.other == CGR_KIND_FULL && IsAlways(support) ? CGR_MODE_FULL : CGR_MODE_FULL_DECODE_ONLY;
}

TEST(Mode, KindsOfKeysAreWhatTheModeSays) {
  for (cgr_graph_mode mode : { CGR_MODE_NONE, CGR_MODE_FULL, CGR_MODE_FULL_DECODE_ONLY }) {
    EXPECT_EQ(cgr__mode_uniform_kind(mode), AskedBy(mode).uniform) << cgr_graph_mode_name(mode);
    EXPECT_EQ(cgr__mode_mixed_kind(mode), AskedBy(mode).other) << cgr_graph_mode_name(mode);
  }
}

TEST(Mode, IsLoweredToWhatIsPossible) {
  for (int mode = CGR_MODE_DEFAULT; mode <= CGR_MODE_FULL_AND_PIECEWISE; mode++)
    for (int support = CGR_SUPPORT_DEFAULT; support <= CGR_SUPPORT_ALWAYS; support++) {
      auto m = static_cast<cgr_graph_mode>(mode);
      auto s = static_cast<cgr_graph_support>(support);
      SCOPED_TRACE(std::string(cgr_graph_mode_name(m)) + ", " + cgr_graph_support_name(s));
      EXPECT_EQ(Lower(m, s).mode, Possible(AskedBy(Named(m, s)), s));
    }
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
      const char *to = lowered.mode == CGR_MODE_NONE ? "to NONE" : "to FULL_DECODE_ONLY";
      EXPECT_NE(lowered.reason.find(to), std::string::npos) << lowered.reason;
    }
}

TEST(Mode, AttentionThatCannotBeCapturedIsTheReason) {
  for (cgr_graph_mode mode : { CGR_MODE_DEFAULT, CGR_MODE_FULL, CGR_MODE_FULL_DECODE_ONLY, CGR_MODE_FULL_AND_PIECEWISE })
    EXPECT_NE(Lower(mode, CGR_SUPPORT_NEVER).reason.find("CGR_SUPPORT_NEVER"), std::string::npos) << cgr_graph_mode_name(mode);
}

} // namespace
