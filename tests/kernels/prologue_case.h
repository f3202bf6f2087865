// Fixtures of the tests of the prologue: its kernels, limits, and rows that have pages and tokens.
#pragma once

#include <gtest/gtest.h>

#include "tests/support/step_case.h"

namespace cgr_test {

// The limits of a runtime.
inline StepLimits LargestLimits() {
  StepLimits limits = TwoGroups();
  limits.max_requests = limits.max_rows = CGR__MAX_REQUESTS;
  limits.max_tokens = 12000;
  limits.max_changes = 9000;
  limits.groups[0].num_pages = 100000;
  limits.groups[1].num_pages = 30000;
  return limits;
}

// Different pages for the first indexes of a row, in every group.
inline void AddPages(const StepLimits &limits, StagedStep *step, int32_t row, int32_t count) {
  for (size_t g = 0; g < limits.groups.size(); g++)
    for (int32_t p = 0; p < std::min(count, int32_t(limits.groups[g].stride)); p++)
      AddChange(step, PageChange(g), row, p, 8 + (row * 5 + p * 3) % 20);
}

// Every row has pages for all that it can have.
inline StepModel WithAllPages(const StepLimits &limits) {
  StepModel model(limits);
  for (size_t g = 0; g < limits.groups.size(); g++)
    for (int64_t at = 0; at < limits.max_rows * limits.groups[g].stride; at++)
      model.b->group[g].page_table[at] = int32_t(8 + at * 3 % (limits.groups[g].num_pages - 8));
  return model;
}

class PrologueTest : public KernelTest {
protected:
  void SetUp() override { Open({ &cgr__kernel_prologue, &cgr__kernel_fetch, &cgr__kernel_epilogue }); }
};

class KernelPrologue : public PrologueTest {
protected:
  // Rows 3, 5 and 2 have pages, and 40, 0 and 15 tokens; row 3 sampled 333 last.
  std::unique_ptr<StepPair> Prepared(const StepLimits &limits) {
    StepModel first(limits);
    first.b.state().padding_token = 7;
    first.b->row_last_tokens[3 * limits.token_stride] = 333;
    auto pair = std::make_unique<StepPair>(*bench_, limits, first);
    StagedStep step = pair->Step({}, {}, 2, 2);
    for (int32_t row : { 3, 5, 2 })
      AddPages(limits, &step, row, 5);
    AddChange(&step, CGR__CHANGE_COMPUTED, 3, 0, 40);
    AddChange(&step, CGR__CHANGE_COMPUTED, 2, 0, 15);
    pair->PrologueAndEpilogue(step);
    ExpectError(pair->error(), kNoError);
    return pair;
  }
};

} // namespace cgr_test
