// What tests of calls inside `record` (a merge, a measure) share: what graphs hold, and a launch that fails. Whoever includes
// this links devices/shims.
#pragma once

#include <string>
#include <vector>

#include "devices/shims/fault.h"
#include "tests/support/refused.h"

namespace cgr_test {

// A region that begins at an address.
struct RecordedRegion {
  const void *base;
  int32_t index = -1;
};

// How many graphs are stale once the region has moved.
inline int StaleAfterMove(Engine &engine, const RecordedRegion &region) {
  int stale = 0;
  CGR_EXPECT_OK(cgr_region_move(engine.rt, region.index, region.base, 4));
  for (int32_t i = 0; i < NumKeys(engine.rt); i++)
    stale += engine.GraphStats(i).state == CGR_GRAPH_STALE;
  return stale;
}

// A graph whose `record` names another region still holds those of its call at these addresses, and no more.
inline void ExpectGraphsHold(Engine &engine, const std::vector<const void *> &addresses) {
  std::vector<RecordedRegion> held;
  RecordedRegion other = { engine.state.next_tokens }, named = { engine.state.token_table };
  for (const void *address : addresses)
    held.push_back({ address });
  for (RecordedRegion &region : held)
    CGR_ASSERT_OK(cgr_region_register(engine.rt, region.base, 4, &region.index));
  CGR_ASSERT_OK(cgr_region_register(engine.rt, other.base, 4, &other.index));
  CGR_ASSERT_OK(cgr_region_register(engine.rt, named.base, 4, &named.index));
  auto record = engine.hook;
  engine.hook = [&](cgr_recorder *recorder, const cgr_record_info &info, int32_t at) {
    return at == 0 ? cgr_record_use(recorder, named.index) : record(recorder, info, at);
  };
  CGR_ASSERT_OK(cgr_runtime_release_graphs(engine.rt, 0, nullptr));
  CGR_ASSERT_OK(engine.Capture());
  EXPECT_EQ(StaleAfterMove(engine, other), 0);
  for (const RecordedRegion &region : held) {
    EXPECT_EQ(StaleAfterMove(engine, region), NumKeys(engine.rt));
    CGR_ASSERT_OK(engine.Capture());
  }
  engine.hook = record;
}

// The device refuses the launch of `call`, which `record` makes at place `at`: the step ends with the cause in the message.
template <class Call>
void ExpectFailedLaunchTold(Engine &engine, cgr_device *faulty, int32_t row, int32_t at, const std::string &cause, Call call) {
  const auto record = engine.hook;
  int fails = 0;
  engine.hook = [&](cgr_recorder *recorder, const cgr_record_info &, int32_t place) {
    if (place != at)
      return CGR_OK;
    cgr__fault_plan plan = {};
    plan.op = CGR__OP_LAUNCH, plan.nth = 1, plan.error = CGR__DEVICE_FAILED;
    cgr__fault_set(faulty, &plan);
    const cgr_status status = call(recorder);
    cgr__fault_set(faulty, nullptr);
    ExpectMessage(status, CGR_ERROR_DEVICE, { cause });
    fails++;
    return CGR_OK; // although `record` ignores the failure
  };
  const cgr_key key = EagerKey(8, 16);
  CGR_ASSERT_OK(engine.Prepare(engine.Chunks({ { row, 4 } }), &key));
  ExpectMessage(engine.Launch(), CGR_ERROR_CALLBACK, { cause });
  EXPECT_EQ(fails, 1);
  engine.hook = record;
  engine.WaitForAll();
}

} // namespace cgr_test
