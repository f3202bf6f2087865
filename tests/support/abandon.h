// Steps that are abandoned, at one place after another.
#pragma once

#include "tests/support/tables.h"

namespace cgr_test {

// `abandon(items, k)` prepares and launches a step that is abandoned at place k; false if there is no such place and the step is
// good. Each step carries new pages and a new batch, is tried twice and is then run to completion: nothing may be lost. Returns
// the number of places.
template <class Abandon> int32_t AbandonEverywhere(Engine &engine, Abandon abandon) {
  int32_t a = engine.Start(5, 1), b = engine.Start(16, 2), k = 0;
  for (bool fails = true; fails && !::testing::Test::HasFatalFailure(); k++) {
    SCOPED_TRACE("at place " + std::to_string(k));
    engine.Reserve(a, engine.requests[a]->num_tokens + 40);
    int32_t fresh = engine.Open();
    engine.Reserve(fresh, 20);
    std::vector<Item> items = engine.Decode({ b });
    items.push_back(Engine::Chunk(fresh, 20, k));
    items.push_back({ a, { 7, 8 } });
    for (int n = 0; n < 2 && fails; n++)
      fails = abandon(items, k);
    if (fails)
      engine.PrepareAndLaunch(items);
    engine.CheckAll();
    ExpectTables(engine);
    engine.Step(engine.Decode({ a, b, fresh }));
    ExpectTables(engine);
    engine.Close(fresh);
    engine.SetLength(a, 5);
  }
  return k - 1;
}

} // namespace cgr_test
