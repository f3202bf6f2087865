// Memory that a live runtime uses is not freed: its layers, its own memory, and what graphs that can be replayed hold, whether
// or not it is in a region. Stale graphs do not count. A refusal names what it is, and changes nothing.
#include <array>
#include <atomic>
#include <map>
#include <set>
#include <thread>

#include "tests/support/refused.h"
#include "tests/support/seed.h"

namespace cgr_test {
namespace {

std::string Hex(const void *memory) {
  char text[32];
  snprintf(text, sizeof text, "%p", memory);
  return text;
}

class MemoryInUse : public ThreeRequests {
protected:
  void SetUpOnDevice() override {
    Make([](EngineOptions &) {});
  }
  template <class Change> void Make(Change change) {
    EngineOptions options = OptionsFor(GetParam());
    options.layers[0].kind.sinks = { 0.5f, -1.0f };
    options.layers[1].kind.alibi_slopes = { 0.5f, 0.25f };
    options.engine_table = true;
    change(options);
    ThreeRequests::Make(options);
  }
  void FreeRefused(void *memory, const Words &words, bool pinned = false) {
    Words all = { pinned ? "cgr_memory_free_pinned: memory " : "cgr_memory_free: memory ", Hex(memory) };
    all.insert(all.end(), words.begin(), words.end());
    Refused(CGR_ERROR_STATE, all, [&] { return Free(memory, pinned); });
  }
  cgr_status Free(void *memory, bool pinned = false) {
    return pinned ? cgr_memory_free_pinned(engine_->dev, memory) : cgr_memory_free(engine_->dev, memory);
  }
  void *Alloc(bool pinned = false) {
    void *memory = nullptr;
    CGR_EXPECT_OK(pinned ? cgr_memory_alloc_pinned(engine_->dev, 256, &memory) : cgr_memory_alloc(engine_->dev, 256, &memory));
    return memory;
  }
  // All keys anew, with something enqueued before the model.
  void CaptureWith(std::function<cgr_status(cgr_recorder *, const cgr_record_info &)> first) {
    engine_->hook = [first](cgr_recorder *recorder, const cgr_record_info &info, int32_t at) {
      return at == 0 && info.capturing ? first(recorder, info) : CGR_OK;
    };
    CGR_ASSERT_OK(cgr_runtime_release_graphs(engine_->rt, 0, nullptr));
    CGR_ASSERT_OK(engine_->Capture());
    engine_->hook = nullptr;
  }
};

TEST_P(MemoryInUse, WhatARuntimeIsMadeOfIsNamed) {
  const cgr_config config = engine_->Config();
  const Words until = { "of a live runtime", "expected cgr_runtime_destroy first" };
  auto named = [&](const char *what) {
    Words words = until;
    words.push_back(std::string("holds ") + what);
    return words;
  };
  FreeRefused(engine_->caches.memory(), named("layers[0].k "));
  FreeRefused(engine_->tables[0], named("groups[0].page_table "));
  FreeRefused(const_cast<float *>(config.layers[0].sinks), named("layers[0].sinks "));
  FreeRefused(const_cast<float *>(config.layers[1].alibi_slopes), named("layers[1].alibi_slopes "));
  CGR_ASSERT_OK(cgr_runtime_release_graphs(engine_->rt, 0, nullptr));
  FreeRefused(engine_->caches.memory(), named("layers[0].k ")); // whatever becomes of the graphs
  CGR_ASSERT_OK(engine_->Capture());
}

// Also when another device of the process is asked to free it, or the free is of the other kind.
TEST_P(MemoryInUse, MemoryThatTheEngineSuppliedIsNamed) {
  Engine owner(OptionsFor(GetParam()));
  cgr_memory_sizes sizes = CGR_MEMORY_SIZES_INIT;
  cgr_config config = owner.Config();
  CGR_ASSERT_OK(cgr_runtime_memory(&config, &sizes));
  void *device = nullptr, *pinned = nullptr;
  CGR_ASSERT_OK(cgr_memory_alloc(engine_->dev, sizes.device_bytes, &device));
  CGR_ASSERT_OK(cgr_memory_alloc_pinned(engine_->dev, sizes.pinned_bytes, &pinned));
  config.device_memory = device, config.device_memory_size = sizes.device_bytes;
  config.pinned_memory = pinned, config.pinned_memory_size = sizes.pinned_bytes;
  cgr_runtime *runtime = nullptr;
  CGR_ASSERT_OK(cgr_runtime_create(&config, &runtime)); // on the owner's device
  FreeRefused(device, { "holds device_memory of a live runtime", "cgr_runtime_destroy" });
  FreeRefused(pinned, { "holds pinned_memory of a live runtime", "cgr_runtime_destroy" }, true);
  CGR_ASSERT_OK(cgr_runtime_destroy(runtime));
  CGR_EXPECT_OK(Free(device));
  CGR_EXPECT_OK(Free(pinned, true));
}

TEST_P(MemoryInUse, WhatAttentionCallsNameIsHeld) {
  const Words words = { "is held by 4 graphs of a live runtime that can be replayed",
                        "expected cgr_runtime_release_graphs first" };
  std::set<void *> memory;
  for (int32_t l = 0; l < engine_->state.num_layers; l++)
    for (const cgr_view &view : engine_->state.layer[l].in)
      memory.insert(view.data);
  for (int32_t c = 0; c < engine_->state.num_calls; c++)
    for (const cgr_view *view : { &engine_->state.call[c].attention.out, &engine_->state.call[c].attention.lse })
      memory.insert(view->data);
  memory.erase(nullptr);
  EXPECT_GE(memory.size(), 10u);
  for (void *each : memory)
    FreeRefused(each, words);
}

TEST_P(MemoryInUse, WhatKernelsAndCopiesHoldIsHeld) {
  void *device = Alloc(), *pinned = Alloc(true), *inside = static_cast<char *>(device) + 128;
  CaptureWith([&](cgr_recorder *, const cgr_record_info &info) {
    return info.num_requests == 4 ? cgr_copy(engine_->dev, inside, pinned, 64, info.stream) : CGR_OK;
  });
  FreeRefused(device, { "is held by 1 graph of a live runtime" });
  FreeRefused(pinned, { "is held by 1 graph of a live runtime" }, true);
  CGR_ASSERT_OK(cgr_runtime_enable_graphs(engine_->rt, 0));
  FreeRefused(device, { "is held by 1 graph of a live runtime" }); // they may be switched on again
  CGR_ASSERT_OK(cgr_runtime_enable_graphs(engine_->rt, 1));
  CGR_ASSERT_OK(cgr_runtime_release_graphs(engine_->rt, 0, nullptr));
  CGR_EXPECT_OK(Free(device));
  CGR_EXPECT_OK(Free(pinned, true));
  CGR_ASSERT_OK(engine_->Capture());
}

cgr_status CallNothing(cgr_recorder *, const void *) { return CGR_OK; }

TEST_P(MemoryInUse, ArgumentsOfCallsAtBreaksAreHeld) {
  Make([](EngineOptions &options) { options.mode = CGR_MODE_PIECEWISE; });
  struct Args {
    int64_t number;
    void *memory;
  } args = { 7, Alloc() };
  CaptureWith([&](cgr_recorder *recorder, const cgr_record_info &) {
    return cgr_record_call(recorder, CallNothing, &args, sizeof args);
  });
  FreeRefused(args.memory, { "is held by", "graphs of a live runtime" });
  CaptureWith([](cgr_recorder *, const cgr_record_info &) { return CGR_OK; });
  CGR_EXPECT_OK(Free(args.memory));
}

// The way of docs/capture.md. A step that has been prepared with such a graph is refused, too, and goes on.
TEST_P(MemoryInUse, ARegionIsMovedOrUnregisteredBeforeItsMemoryIsFreed) {
  for (bool moves : { true, false }) {
    void *old = Alloc(), *fresh = Alloc();
    int32_t region = NewRegion(engine_->rt, old, 256);
    const Words words = { "holds region " + std::to_string(region) + ", which 4 graphs of a live runtime hold",
                          "expected cgr_region_move, cgr_region_unregister or cgr_runtime_release_graphs first" };
    FreeRefused(old, words);
    CGR_ASSERT_OK(engine_->Prepare(engine_->Decode(rows_)));
    EXPECT_EQ(engine_->step.key.kind, CGR_KIND_FULL);
    FreeRefused(old, words);
    CGR_ASSERT_OK(engine_->Launch());
    engine_->CheckAll();
    if (moves)
      CGR_ASSERT_OK(cgr_region_move(engine_->rt, region, fresh, 256));
    else
      CGR_ASSERT_OK(cgr_region_unregister(engine_->rt, region));
    CGR_EXPECT_OK(Free(old));
    CGR_ASSERT_OK(engine_->Capture());
    if (moves)
      FreeRefused(fresh, words);
    if (moves)
      CGR_ASSERT_OK(cgr_region_unregister(engine_->rt, region));
    CGR_EXPECT_OK(Free(fresh));
    CGR_ASSERT_OK(engine_->Capture());
  }
}

// What is wrong first is the function: no release of graphs would help.
TEST_P(MemoryInUse, AFreeAsTheOtherKindNamesTheFunctionThatFrees) {
  Make([](EngineOptions &options) { options.validation = false; }); // it would answer itself
  void *held = Alloc(), *held_pinned = Alloc(true), *plain = Alloc(), *plain_pinned = Alloc(true);
  cgr_device *dev = engine_->dev;
  CaptureWith([&](cgr_recorder *, const cgr_record_info &info) {
    cgr_status status = cgr_fill(dev, held, 0, 256, info.stream);
    return status == CGR_OK ? cgr_copy(dev, held_pinned, held, 256, info.stream) : status;
  });
  auto other = [&](void *memory, bool pinned, const Words &words) {
    Words all = { pinned ? "cgr_memory_free: memory is " : "cgr_memory_free_pinned: memory is ", Hex(memory) };
    all.insert(all.end(), words.begin(), words.end());
    Refused(CGR_ERROR_INVALID_ARGUMENT, all, [&] { return Free(memory, !pinned); });
  };
  for (void *memory : { held, plain, static_cast<void *>(engine_->caches.memory()) })
    other(memory, false, { "expected pinned memory: this is device memory, which cgr_memory_free frees" });
  for (void *memory : { held_pinned, plain_pinned })
    other(memory, true, { "expected device memory: this is pinned memory, which cgr_memory_free_pinned frees" });
  FreeRefused(held, { "release" });
  FreeRefused(held_pinned, { "release" }, true);
  CGR_EXPECT_OK(Free(plain));
  CGR_EXPECT_OK(Free(plain_pinned, true));
  CGR_ASSERT_OK(cgr_runtime_release_graphs(engine_->rt, 0, nullptr));
  CGR_EXPECT_OK(Free(held));
  CGR_EXPECT_OK(Free(held_pinned, true));
  CGR_ASSERT_OK(engine_->Capture());
}

TEST_P(MemoryInUse, AddressesThatAreNoAllocationAreRefusedAsBefore) {
  Make([](EngineOptions &options) { options.validation = false; }); // it would answer itself
  char on_stack[64];
  for (void *memory : { static_cast<void *>(on_stack), static_cast<void *>(static_cast<char *>(engine_->caches.memory()) + 256) })
    Refused(CGR_ERROR_INVALID_ARGUMENT, { Hex(memory), "has not got back" }, [&] { return Free(memory); });
  CGR_EXPECT_OK(Free(nullptr));
}

// ---------------------------------------------------------------------------------------------------------------- random

// Blocks come and go, some of them regions, and graphs hold some of them. The model says which.
class Traffic {
public:
  Traffic(Engine *engine, Random *random) : engine_(engine), random_(random) {
    for (Slot &slot : slots_)
      slot.memory = Alloc();
  }
  void Register(size_t s) {
    if (slots_[s].region < 0)
      CGR_ASSERT_OK(cgr_region_register(engine_->rt, slots_[s].memory, 256, &slots_[s].region));
  }
  void Unregister(size_t s) {
    if (slots_[s].region >= 0)
      CGR_ASSERT_OK(cgr_region_unregister(engine_->rt, slots_[s].region));
    slots_[s].region = -1;
  }
  void Move(size_t s) {
    slots_[s].memory = Alloc();
    if (slots_[s].region >= 0)
      CGR_ASSERT_OK(cgr_region_move(engine_->rt, slots_[s].region, slots_[s].memory, 256));
  }
  void Capture() {
    const uint32_t used = uint32_t(random_->Pick(0, 63));
    const bool names = random_->OneIn(2);
    engine_->hook = [this, used, names](cgr_recorder *recorder, const cgr_record_info &info, int32_t at) {
      return at == 0 && info.capturing ? Enqueue(recorder, info, used >> (info.num_requests % 3), names) : CGR_OK;
    };
    CGR_ASSERT_OK(engine_->Capture());
    engine_->hook = nullptr;
  }
  void TryToFree() {
    if (blocks_.empty())
      return;
    auto block = std::next(blocks_.begin(), random_->Pick(0, int64_t(blocks_.size()) - 1));
    void *memory = *block;
    const bool current = std::any_of(slots_.begin(), slots_.end(), [&](const Slot &s) { return s.memory == memory; });
    if (IsHeld(memory)) {
      refused++;
      ExpectMessage(cgr_memory_free(engine_->dev, memory), CGR_ERROR_STATE, { "cgr_memory_free: memory " + Hex(memory) });
      return;
    }
    if (current)
      return; // the next capture needs it
    freed++;
    CGR_ASSERT_OK(cgr_memory_free(engine_->dev, memory));
    blocks_.erase(block);
  }
  void FreeAll() {
    for (size_t s = 0; s < slots_.size(); s++)
      Unregister(s);
    CGR_ASSERT_OK(cgr_runtime_release_graphs(engine_->rt, 0, nullptr));
    for (void *memory : blocks_)
      CGR_EXPECT_OK(cgr_memory_free(engine_->dev, memory));
  }
  int refused = 0, freed = 0;

private:
  struct Slot {
    void *memory = nullptr;
    int32_t region = -1;
  };
  struct Graph {
    bool named = false;
    std::set<void *> memory;
    std::set<int32_t> regions;
  };
  void *Alloc() {
    void *memory = nullptr;
    CGR_EXPECT_OK(cgr_memory_alloc(engine_->dev, 256, &memory));
    blocks_.insert(memory);
    return memory;
  }
  cgr_status Enqueue(cgr_recorder *recorder, const cgr_record_info &info, uint32_t used, bool names) {
    Graph graph;
    cgr_status status = CGR_OK;
    for (size_t s = 0; s < slots_.size() && status == CGR_OK; s++) {
      if (!(used >> s & 1))
        continue;
      status = cgr_fill(engine_->dev, static_cast<char *>(slots_[s].memory) + 8 * s, 0, 64, info.stream);
      graph.memory.insert(slots_[s].memory);
      if (status != CGR_OK || !names || slots_[s].region < 0)
        continue;
      status = cgr_record_use(recorder, slots_[s].region);
      graph.named = true;
      graph.regions.insert(slots_[s].region);
    }
    graphs_[info.num_requests] = graph;
    return status;
  }
  bool IsHeld(void *memory) {
    for (int32_t i = 0; i < cgr_test::NumKeys(engine_->rt); i++) {
      const cgr_graph_stats stats = engine_->GraphStats(i);
      const Graph &graph = graphs_[stats.key.num_requests];
      if (stats.state != CGR_GRAPH_READY)
        continue;
      if (graph.memory.count(memory))
        return true;
      for (const Slot &slot : slots_)
        if (slot.memory == memory && slot.region >= 0 && (!graph.named || graph.regions.count(slot.region)))
          return true;
    }
    return false;
  }
  Engine *engine_;
  Random *random_;
  std::array<Slot, 6> slots_;
  std::set<void *> blocks_;
  std::map<int32_t, Graph> graphs_;
};

TEST_P(MemoryInUse, FreesAreRefusedExactlyWhileAGraphHoldsTheMemoryAtRandom) {
  SeededRandom random;
  CGR_ASSERT_OK(cgr_runtime_release_graphs(engine_->rt, 0, nullptr));
  Traffic traffic(engine_.get(), &random);
  for (int n = 0; n < 400 && !HasFailure(); n++) {
    const size_t s = size_t(random.Pick(0, 5));
    switch (random.Pick(0, 11)) {
    case 0:
      traffic.Register(s);
      break;
    case 1:
      traffic.Unregister(s);
      break;
    case 2:
      traffic.Move(s);
      break;
    case 3:
      traffic.Capture();
      break;
    case 4:
      engine_->Step(engine_->Decode({ rows_[0], rows_[s % 2 + 1] }));
      break;
    case 5:
      if (random.OneIn(8))
        CGR_ASSERT_OK(cgr_runtime_release_graphs(engine_->rt, 0, nullptr));
      break;
    default:
      traffic.TryToFree();
      break;
    }
  }
  traffic.FreeAll();
  EXPECT_GT(traffic.refused, 20);
  EXPECT_GT(traffic.freed, 5);
  CGR_ASSERT_OK(engine_->Capture());
}

// Another thread may free memory while this one moves regions, captures and makes steps.
TEST_P(MemoryInUse, AnyThreadMayFree) {
  std::atomic<bool> stop{ false };
  std::atomic<int> freed{ 0 };
  int32_t region = -1;
  void *memory = Alloc();
  CGR_ASSERT_OK(cgr_region_register(engine_->rt, memory, 256, &region));
  std::thread other([&] {
    while (!stop) {
      void *mine = nullptr;
      CGR_EXPECT_OK(cgr_memory_alloc(engine_->dev, 64, &mine));
      CGR_EXPECT_OK(cgr_memory_free(engine_->dev, mine));
      CGR_EXPECT(CGR_ERROR_STATE, cgr_memory_free(engine_->dev, engine_->caches.memory()));
      freed++;
    }
  });
  for (int n = 0; n < 20 || freed < 20; n++) {
    int32_t more = NewRegion(engine_->rt, memory, 64);
    CGR_EXPECT_OK(cgr_region_move(engine_->rt, region, memory, 256));
    CGR_EXPECT_OK(cgr_region_unregister(engine_->rt, more));
    CGR_EXPECT_OK(engine_->Capture());
    const bool was_set = n > 0 && n % 40 == 0; // then no step has sampled the next tokens
    engine_->Step(was_set ? engine_->Chunks({ { rows_[0], 1 }, { rows_[1], 1 }, { rows_[2], 1 } }) : engine_->Decode(rows_));
    CGR_EXPECT(CGR_ERROR_STATE, Free(memory));
    if (n % 3 == 2)
      CGR_EXPECT_OK(cgr_runtime_release_graphs(engine_->rt, 0, nullptr));
    if (n % 40 == 39)
      engine_->SetLength(rows_[0], 5), engine_->SetLength(rows_[1], 17), engine_->SetLength(rows_[2], 31);
  }
  stop = true;
  other.join();
  CGR_EXPECT_OK(cgr_region_unregister(engine_->rt, region));
  CGR_EXPECT_OK(Free(memory));
  CGR_EXPECT_OK(engine_->Capture());
}

CGR_INSTANTIATE_OVER_DEVICES(MemoryInUse);

} // namespace
} // namespace cgr_test
