// Pages that the windows and chunks of every layer have passed are neither read nor needed: an engine gives them back, other
// requests get them, and no result shows it.
#include "cgr/names.h"
#include "tests/support/groups_case.h"
#include "tests/support/seed.h"
#include "tests/support/tables.h"

namespace cgr_test {
namespace {

const int32_t kPage = 16;

std::vector<LayerOptions> Layers(const std::vector<std::pair<int32_t, int32_t>> &kinds) {
  std::vector<LayerOptions> layers;
  for (const auto &[window, chunk] : kinds) {
    layers.push_back({ 4, 2 });
    layers.back().kind.window_left = window;
    layers.back().kind.chunk = chunk;
  }
  return layers;
}

// Window and chunk of each layer, and how the engine runs.
struct Kind {
  std::vector<std::pair<int32_t, int32_t>> layers;
  cgr_graph_mode mode;
};
const Kind kKinds[] = { { { { 1, 0 } }, CGR_MODE_FULL },
                        { { { kPage - 1, 0 } }, CGR_MODE_PIECEWISE },
                        { { { kPage, 0 } }, CGR_MODE_NONE },
                        { { { kPage + 1, 0 } }, CGR_MODE_FULL_AND_PIECEWISE },
                        { { { 3 * kPage + 5, 0 } }, CGR_MODE_FULL },
                        { { { 0, kPage } }, CGR_MODE_PIECEWISE },
                        { { { 0, 2 * kPage + 8 } }, CGR_MODE_FULL },
                        { { { kPage, 0 }, { 2 * kPage + 1, 0 } }, CGR_MODE_FULL_DECODE_ONLY },
                        { { { 20, 0 }, { 0, 3 * kPage } }, CGR_MODE_FULL } };

std::string Name(const Kind &kind) {
  std::string text = cgr_graph_mode_name(kind.mode);
  for (const auto &[window, chunk] : kind.layers)
    text += " " + std::to_string(window) + "/" + std::to_string(chunk);
  return text;
}

class WindowPages : public OverDevices {
protected:
  EngineOptions Options(const Kind &kind) {
    EngineOptions options = AttentionOptionsFor(GetParam(), Layers(kind.layers));
    options.mode = kind.mode, options.max_seq_len = 192, options.num_pages = 100;
    return options;
  }
  // The emulated device takes every thread of a GPU in turn: of the cases of a test it takes every other one.
  bool Takes(size_t n) const { return !GetParam().IsEmulated() || n % 2 == 0; }
  static std::unique_ptr<Engine> Make(const EngineOptions &options) { return MakeCaptured(options); }
};

// One engine gives back the pages it can before every step; from then on they hold NaN or belong to another request. The other
// engine keeps all pages. Every result is right, and the same bit for bit.
TEST_P(WindowPages, ThatAreGivenBackDoNotShow) {
  const uint64_t seed = Seed();
  SCOPED_TRACE(Repeat(seed));
  for (const Kind &kind : kKinds)
    for (bool standing : { false, true }) {
      if (!Takes(size_t(&kind - kKinds) + standing))
        continue;
      SCOPED_TRACE(Name(kind) + (standing ? ", standing" : ", whole"));
      Random random(seed);
      EngineOptions options = Options(kind);
      std::unique_ptr<Engine> keeps = Make(options);
      keeps->check_outputs = false; // each is compared with that of the other engine, which is checked
      options.num_pages = 44;       // four rows with all their pages would need 50
      std::unique_ptr<Engine> gives = Make(options);
      int32_t dropped = 0;
      for (int n = 0; n < 70 && !HasFailure(); n++) {
        SCOPED_TRACE("step " + std::to_string(n));
        std::vector<int32_t> rows = gives->Rows();
        for (int32_t row : rows)
          for (Engine *engine : { gives.get(), keeps.get() })
            if (engine->requests[row]->num_tokens > 150) {
              const std::vector<int32_t> members = engine->StandingRows();
              if (std::count(members.begin(), members.end(), row) > 0)
                CGR_ASSERT_OK(cgr_standing_remove(engine->rt, nullptr, row));
              engine->Close(row);
            }
        while (gives->Rows().size() < 4)
          ASSERT_EQ(gives->Open(), keeps->Open());
        std::vector<std::pair<int32_t, int32_t>> chunks;
        for (int32_t row : gives->Rows())
          if (!random.OneIn(6))
            chunks.push_back({ row, random.OneIn(3) ? random.Pick32(1, 15) : 1 });
        for (const auto &[row, r] : gives->requests)
          dropped -= r->first_page;
        gives->GiveBack();
        for (const auto &[row, r] : gives->requests)
          dropped += r->first_page;
        if (n % 3 == 0)
          gives->PoisonUnowned(std::numeric_limits<double>::quiet_NaN());
        for (Engine *engine : { gives.get(), keeps.get() }) {
          std::vector<Item> items = engine->Chunks(chunks);
          ASSERT_NO_FATAL_FAILURE(standing ? engine->StepStanding(items) : engine->Step(items));
        }
        for (size_t c = 0; c < kind.layers.size(); c++) {
          ASSERT_EQ(gives->Out(int32_t(c), gives->step.num_tokens), keeps->Out(int32_t(c), keeps->step.num_tokens)) << c;
          ASSERT_EQ(gives->Lse(int32_t(c), gives->step.num_tokens), keeps->Lse(int32_t(c), keeps->step.num_tokens)) << c;
        }
      }
      EXPECT_GT(dropped, 10);
    }
}

// With steps in flight, a page goes to another request as soon as the last step that could see it has completed.
TEST_P(WindowPages, GoToOthersWhileStepsRun) {
  const int32_t windows[] = { 1, kPage, kPage + 1, 40 };
  for (const int32_t &window : windows) {
    if (!Takes(size_t(&window - windows)))
      continue;
    SCOPED_TRACE(window);
    EngineOptions options = Options({ { { window, 0 }, { 0, kPage } }, CGR_MODE_FULL });
    options.feed = Feed::kNodes, options.num_pages = 40;
    std::unique_ptr<Engine> engine = Make(options);
    std::vector<int32_t> rows;
    for (int i = 0; i < 4; i++)
      rows.push_back(engine->Start(3 + 5 * i, i));
    for (int n = 0; n < 130 && !HasFailure(); n++) {
      engine->GiveBack();
      if (engine->NumInFlight() == 3 || (engine->NumInFlight() > 0 && engine->FreePages() < 8))
        engine->CheckOne();
      ASSERT_NO_FATAL_FAILURE(engine->PrepareAndLaunch(engine->Decode(rows)));
    }
    engine->CheckAll();
    ExpectTables(*engine);
  }
}

// One page fewer is refused, by name; once the page is back, the step is good.
TEST_P(WindowPages, AreNeededFromTheFirstTokenSeenOn) {
  for (const Kind &kind : kKinds) {
    SCOPED_TRACE(Name(kind));
    std::unique_ptr<Engine> engine = Make(Options(kind));
    for (int32_t length : { 15, 16, 17, 47, 48, 49, 64, 101 }) {
      SCOPED_TRACE(length);
      int32_t row = engine->Open();
      for (int32_t at = 0; at < length; at += 40)
        ASSERT_NO_FATAL_FAILURE(engine->Step(engine->Chunks({ { row, std::min(length - at, 40) } })));
      engine->Reserve(row, length + 1);
      const int32_t needed = engine->FirstSeen(length) / kPage, page = engine->requests[row]->pages[size_t(needed)];
      const std::string name = "row " + std::to_string(row), from = "from page " + std::to_string(needed) + " on";
      if (needed + 1 < int32_t(engine->requests[row]->pages.size())) {
        CGR_ASSERT_OK(cgr_request_drop_pages(engine->rt, row, 0, 0, needed + 1));
        for (const std::vector<int32_t> &tokens : { std::vector<int32_t>{ 3 }, std::vector<int32_t>{ 3, 4, 5 } })
          ExpectMessage(engine->Prepare({ { row, tokens } }), CGR_ERROR_PAGES_MISSING, { name, "group 0", from });
        ExpectMessage(cgr_request_set_length(engine->rt, row, length), CGR_ERROR_PAGES_MISSING, { name, "group 0", from });
        CGR_ASSERT_OK(cgr_request_set_pages(engine->rt, row, 0, needed, &page, 1));
      } else if (needed > 0) {
        CGR_ASSERT_OK(cgr_request_drop_pages(engine->rt, row, 0, 0, needed));
      }
      engine->requests[row]->first_page = needed; // those before it are lost to this engine
      ASSERT_NO_FATAL_FAILURE(engine->Step(engine->Decode({ row })));
      engine->Close(row);
    }
  }
}

// Setting a row back to a length at which windows reached further back.
TEST_P(WindowPages, AreNeededAgainAtAShorterLength) {
  std::unique_ptr<Engine> engine = Make(Options({ { { 20, 0 } }, CGR_MODE_FULL }));
  int32_t row = engine->Start(60, 1), spare = engine->Start(1, 2);
  const std::vector<int32_t> pages = engine->requests[row]->pages;
  CGR_ASSERT_OK(cgr_request_drop_pages(engine->rt, row, 0, 0, 2)); // the test keeps them as they are
  ExpectMessage(cgr_request_set_length(engine->rt, row, 50), CGR_ERROR_PAGES_MISSING,
                { "row " + std::to_string(row), "num_tokens is 50", "pages 2 .. 3 of group 0", "from page 1 on" });
  ASSERT_NO_FATAL_FAILURE(engine->Step(engine->Decode({ spare })));
  CGR_ASSERT_OK(cgr_request_set_pages(engine->rt, row, 0, 1, &pages[1], 1));
  engine->SetLength(row, 50);
  engine->requests[row]->first_page = 1;
  engine->requests[row]->pages[0] = -1;
  for (int n = 0; n < 3; n++)
    ASSERT_NO_FATAL_FAILURE(engine->Step(engine->Chunks({ { row, 1 }, { spare, 1 } })));
}

// The engine's own table may hold anything before the window; within it a guard reports an entry that is not a page.
TEST_P(WindowPages, OfTheEnginesTableMayBeAnything) {
  for (const Kind &kind : kKinds) {
    if (!Takes(size_t(&kind - kKinds) + 1))
      continue;
    SCOPED_TRACE(Name(kind));
    EngineOptions options = Options(kind);
    options.engine_table = true;
    std::unique_ptr<Engine> engine = Make(options);
    int32_t row = engine->Start(50, 1), other = engine->Start(20, 2);
    const int32_t garbage[] = { INT32_MAX, -1, 1, INT32_MIN, options.num_pages };
    for (int n = 0; n < 60 && !HasFailure(); n++) {
      for (int32_t r : { row, other })
        for (int32_t i = 0; i < engine->FirstSeen(engine->requests[r]->num_tokens) / kPage; i++)
          engine->SetTable(r, i, garbage[(n + i) % 5]);
      ASSERT_NO_FATAL_FAILURE(engine->Step(engine->Chunks({ { row, 1 }, { other, n % 4 == 0 ? 3 : 1 } })));
    }
    EXPECT_EQ(engine->guard_errors, 0u);
    const int32_t tokens = engine->requests[row]->num_tokens, first = engine->FirstSeen(tokens) / kPage;
    if (first < tokens / kPage) {
      engine->SetTable(row, first, INT32_MAX);
      ASSERT_NO_FATAL_FAILURE(engine->Step(engine->Chunks({ { row, 1 } })));
      EXPECT_EQ(engine->guard_errors, 1u);
    }
  }
}

// Two groups: each gives back what its own layers have passed; a group with a layer that sees everything gives back nothing.
TEST_P(WindowPages, OfEachGroupByItsOwnLayers) {
  using groups::Layer;
  const int32_t kBf16 = CGR_DTYPE_BF16;
  const std::vector<LayerOptions> narrow = { Layer(0, 2, 2, 64, kBf16, 20), Layer(1, 4, 1, 64, kBf16),
                                             Layer(0, 4, 2, 64, kBf16, 33) },
                                  wide = { Layer(0, 2, 2, 64, kBf16), Layer(1, 4, 1, 64, kBf16, 0, 64),
                                           Layer(0, 2, 1, 64, kBf16, 5) },
                                  both = { Layer(0, 2, 2, 64, kBf16, 17), Layer(1, 4, 1, 64, kBf16, 30) };
  const uint64_t seed = Seed();
  SCOPED_TRACE(Repeat(seed));
  size_t cases = 0;
  for (const auto &layers : { narrow, wide, both })
    for (bool engine_table : { false, true }) {
      if (!Takes(cases++ / 2 + engine_table))
        continue;
      SCOPED_TRACE(engine_table ? "the engine's table" : "the library's");
      EngineOptions options = groups::OptionsFor(GetParam(), CGR_MODE_FULL, seed, layers);
      options.groups[1].engine_table = engine_table;
      std::unique_ptr<Engine> gives = Make(options);
      options.mode = CGR_MODE_NONE;
      std::unique_ptr<Engine> keeps = Make(options);
      keeps->check_outputs = false;
      int32_t rows[2];
      for (int32_t &row : rows) {
        row = gives->Open();
        ASSERT_EQ(keeps->Open(), row);
      }
      for (int n = 0; n < 40 && !HasFailure(); n++) {
        gives->GiveBack();
        gives->PoisonUnowned(std::numeric_limits<double>::quiet_NaN());
        for (Engine *engine : { gives.get(), keeps.get() }) {
          ASSERT_NO_FATAL_FAILURE(
              engine->Step(engine->Chunks({ { rows[0], n % 5 == 0 ? 12 : 1 }, { rows[1], n % 7 == 2 ? 20 : 1 } })));
          ASSERT_NO_FATAL_FAILURE(groups::ExpectBuffers(*engine));
        }
        ASSERT_NO_FATAL_FAILURE(groups::ExpectSameBits(*gives, *keeps, gives->step.num_tokens));
      }
      for (int32_t g = 0; g < 2; g++) {
        bool all = false;
        for (const LayerOptions &l : layers)
          all = all || (l.group == g && l.kind.window_left == 0 && l.kind.chunk == 0);
        EXPECT_EQ(gives->requests[rows[1]]->Of(size_t(g)).first_page > 0, !all) << "group " << g;
      }
    }
}

CGR_INSTANTIATE_OVER_FEW_DEVICES(WindowPages);

} // namespace
} // namespace cgr_test
