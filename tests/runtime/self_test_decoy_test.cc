// What only a decoy shows: a graph that lacks something whose result the engine's own memory, or its host code, still has from an
// eager step. In one graph, one piece, one layer, one variant alone. And engines that are right pass, whatever they keep.
#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "tests/support/found.h"
#include "tests/support/hash_engine.h"
#include "tests/support/modes.h"
#include "tests/support/seed.h"

namespace cgr_test {
namespace {

class SelfTestDecoy : public OverDevices {
protected:
  void Make(const HashOptions &options, HashEngine::Hook skip = nullptr) {
    engine_.reset();
    engine_ = std::make_unique<HashEngine>(GetParam(), options);
    engine_->skip = std::move(skip);
    CGR_ASSERT_OK(engine_->Capture());
  }
  Found Run(bool ranges = true) {
    Found found;
    found.status = engine_->SelfTest(uint32_t(Seed()), &found.findings, ranges);
    found.count = int32_t(found.findings.size());
    return found;
  }
  std::unique_ptr<HashEngine> engine_;
};

HashOptions Everything(cgr_graph_mode mode) {
  HashOptions o;
  o.mode = mode, o.chunks = o.groups = o.staged = o.branch = o.copies = o.state = o.call = o.variants = true;
  return o;
}

TEST_P(SelfTestDecoy, FindsNothingInEnginesThatAreRight) {
  for (cgr_graph_mode mode : { CGR_MODE_FULL, CGR_MODE_PIECEWISE, CGR_MODE_FULL_AND_PIECEWISE })
    for (int32_t rows : { 4, 5, 12 }) { // no rows for a decoy of its own, one, as many as it wants
      SCOPED_TRACE(std::string(cgr_graph_mode_name(mode)) + ", " + std::to_string(rows) + " rows");
      HashOptions options = Everything(mode);
      options.max_rows = rows;
      Make(options);
      for (int n = 0; n < 3; n++)
        ExpectNothing(Run());
    }
}

TEST_P(SelfTestDecoy, FindsNothingWithExactLengthsAndOneRow) {
  static const int32_t lens[] = { 1, 3 };
  HashOptions options = Everything(CGR_MODE_FULL_DECODE_ONLY);
  options.adjust = [](cgr_config *config) {
    config->attention_support = CGR_SUPPORT_UNIFORM_BATCH, config->query_lens = lens;
    config->num_query_lens = 2;
  };
  Make(options);
  ExpectNothing(Run());
  options = Everything(CGR_MODE_FULL);
  options.max_requests = options.max_rows = 1;
  static const int32_t one = 1;
  static const cgr_bucket mixed[] = { { 1, 1 }, { 7, 1 } };
  options.adjust = [](cgr_config *config) {
    config->decode_buckets = &one, config->num_decode_buckets = 1, config->mixed_buckets = mixed;
    config->num_mixed_buckets = 2;
  };
  Make(options);
  ExpectNothing(Run());
}

// Each operation of the engine's is skipped while it captures one graph.
TEST_P(SelfTestDecoy, FindsWhatIsSkippedInOneCapture) {
  for (cgr_graph_mode mode : { CGR_MODE_FULL, CGR_MODE_PIECEWISE }) {
    std::vector<std::pair<std::string, int>> names;
    Make(Everything(mode), [&](const std::string &name, int layer, const cgr_record_info &info) {
      if (info.capturing && info.key.query_len == 0 && info.key.variant == 5)
        names.push_back({ name, layer });
      return false;
    });
    ASSERT_GT(names.size(), 20u);
    for (const auto &skipped : names) {
      SCOPED_TRACE(skipped.first + " of layer " + std::to_string(skipped.second));
      CGR_ASSERT_OK(cgr_runtime_release_graphs(engine_->rt, 0, nullptr));
      int left_out = 0;
      engine_->skip = [&](const std::string &name, int layer, const cgr_record_info &info) {
        const bool here = info.capturing && info.key.query_len == 0 && info.key.variant == 5 && name == skipped.first &&
                          layer == skipped.second;
        return here && left_out++ == 0; // one of three that have the name
      };
      std::vector<cgr_key> keys;
      for (const cgr_key &key : engine_->Keys())
        if (key.query_len == 0)
          keys.push_back(key);
      CGR_ASSERT_OK(engine_->Capture(keys));
      EXPECT_GE(left_out, 1);
      const Found found = Run();
      EXPECT_EQ(found.status, CGR_ERROR_SELF_TEST);
      for (const cgr_finding &finding : found.findings)
        EXPECT_NE(std::string(finding.field).find(" q0 v5"), std::string::npos) << finding.field << ": " << finding.text;
    }
  }
}

// Host code that thinks it has done something already: for this size, for as many real requests, for this longest sequence, for
// a step like the one before; or in some capture.
TEST_P(SelfTestDecoy, FindsResultsThatHostCodeKeeps) {
  using Of = std::function<std::vector<int32_t>(const cgr_record_info &)>;
  const std::map<std::string, Of> caches = {
    { "size", [](const cgr_record_info &i) { return std::vector<int32_t>{ i.num_tokens }; } },
    { "key",
      [](const cgr_record_info &i) {
        return std::vector<int32_t>{ i.num_tokens, i.num_requests, int32_t(i.key.variant) };
      } },
    { "longest", [](const cgr_record_info &i) { return std::vector<int32_t>{ i.max_seq_len }; } },
    { "real counts",
      [](const cgr_record_info &i) {
        return std::vector<int32_t>{ i.real_tokens, i.real_requests };
      } },
    { "once", [](const cgr_record_info &) { return std::vector<int32_t>{}; } },
  };
  for (const auto &cache : caches)
    for (const char *what : { "embed", "up", "gather" }) {
      SCOPED_TRACE(cache.first + ", " + what);
      std::map<int, std::vector<int32_t>> last;
      std::map<int, bool> has;
      const bool once = cache.first == "once";
      HashOptions options = Everything(CGR_MODE_FULL);
      options.max_rows = options.max_requests; // no decoy of other rows
      Make(options, [&, once](const std::string &name, int layer, const cgr_record_info &info) {
        if (name != what || (once && !info.capturing))
          return false;
        if (!once && info.capturing) // eager steps alone do it
          return true;
        const std::vector<int32_t> now = cache.second(info);
        const bool same = has[layer] && last[layer] == now;
        has[layer] = true;
        last[layer] = now;
        return same;
      });
      EXPECT_EQ(Run().status, CGR_ERROR_SELF_TEST);
    }
}

// Host code between pieces runs in replays, too. There it may think that nothing has changed since a step of as many requests, or
// tokens, or of this longest sequence.
TEST_P(SelfTestDecoy, FindsResultsThatCallsBetweenPiecesKeep) {
  using Of = std::function<int32_t(const cgr_record_info &)>;
  const std::map<std::string, Of> caches = {
    { "requests", [](const cgr_record_info &i) { return i.real_requests; } },
    { "tokens", [](const cgr_record_info &i) { return i.real_tokens; } },
    { "longest", [](const cgr_record_info &i) { return i.max_seq_len; } },
  };
  static const cgr_bucket mixed[] = { { 16, 4 } };
  for (const auto &cache : caches) {
    SCOPED_TRACE(cache.first);
    HashOptions options;
    options.mode = CGR_MODE_PIECEWISE, options.call = true, options.max_rows = 3 * options.max_requests;
    options.adjust = [](cgr_config *config) { // one graph, whose case no other's comes close to
      config->max_tokens = 16, config->mixed_buckets = mixed, config->num_mixed_buckets = 1;
    };
    std::map<int, int32_t> last;
    Make(options, [&](const std::string &name, int layer, const cgr_record_info &info) {
      if (name != "called")
        return false;
      const int32_t now = cache.second(info), before = std::exchange(last[layer], now);
      return now == before;
    });
    for (int n = 0; n < 5; n++)
      EXPECT_EQ(Run().status, CGR_ERROR_SELF_TEST);
  }
}

// Data that is never varied hides what depends on it, and the log says which buffers' it is, once a test.
TEST_P(SelfTestDecoy, VariesStagedDataAndNamesWhatItDoesNot) {
  HashOptions options;
  options.staged = true;
  const auto skip = [](const std::string &name, int layer, const cgr_record_info &info) {
    return info.capturing && name == "gather" && layer == 1;
  };
  Make(options, skip);
  ExpectNothing(Run(false));
  ASSERT_EQ(engine_->logs.size(), 1u);
  EXPECT_NE(engine_->logs[0].find("extra, adapters, of rows"), std::string::npos) << engine_->logs[0];
  engine_->logs.clear();
  EXPECT_EQ(Run().status, CGR_ERROR_SELF_TEST);
  EXPECT_TRUE(engine_->logs.empty());
  engine_->skip = nullptr;
}

// The number after these words; 0: they are not there.
int32_t NumberAfter(const std::string &text, const std::string &words) {
  const size_t at = text.find(words);
  return at == std::string::npos ? 0 : std::atoi(text.c_str() + at + words.size());
}

// With too few rows or pages no decoy has the tested step's numbers. The log says so once a test, and what is enough.
TEST_P(SelfTestDecoy, NamesTheRowsAndPagesThatItLacks) {
  for (cgr_graph_mode mode : { CGR_MODE_FULL, CGR_MODE_PIECEWISE })
    for (int32_t rows : { 4, 5, 6, 12 })
      for (int32_t pages : { 4, 7, 12, 17, 18, 24 }) {
        SCOPED_TRACE(std::to_string(rows) + " rows, " + std::to_string(pages) + " pages");
        HashOptions options = Everything(mode);
        options.max_rows = rows;
        Make(options);
        engine_->test_pages = pages;
        ExpectNothing(Run());
        ASSERT_LE(engine_->logs.size(), 1u);
        EXPECT_TRUE(engine_->logs.empty() ? rows >= 6 && pages > 4 : rows < 6 || pages < 18);
        if (engine_->logs.empty())
          continue;
        const std::string log = engine_->logs[0], got_rows = "max_rows is " + std::to_string(rows) + ", expected ",
                          got_pages = "num_pages is " + std::to_string(pages) + ", expected ";
        EXPECT_EQ(NumberAfter(log, got_rows) > rows, rows < 6) << log;
        EXPECT_EQ(NumberAfter(log, got_pages) > pages, pages < 18) << log;
        options.max_rows = std::max(rows, NumberAfter(log, got_rows));
        Make(options);
        engine_->test_pages = std::max(pages, NumberAfter(log, got_pages));
        ExpectNothing(Run());
        EXPECT_TRUE(engine_->logs.empty()) << log;
      }
}

// Steps after a test are right: rows, lengths and data are as if it had not been.
TEST_P(SelfTestDecoy, LeavesNothingBehind) {
  Make(Everything(CGR_MODE_FULL));
  HashEngine model(GetParam(), Everything(CGR_MODE_FULL));
  CGR_ASSERT_OK(model.Capture());
  ExpectNothing(Run());
  const int32_t row = engine_->Open(), other = model.Open();
  for (int32_t step = 0; step < 4; step++)
    EXPECT_EQ(engine_->Step({ { row, { 5 + step, 7 }, step } }, nullptr, 0),
              model.Step({ { other, { 5 + step, 7 }, step } }, nullptr, 0));
  engine_->Close(row);
  model.Close(other);
}

// Engines without layers, of one kernel, that keep something of their own for each row.
enum class Keeps { kState, kTokensOfRows, kTokensOfPages, kSums };

class KeepingEngine {
public:
  enum { kRows = 8, kMaxSeqLen = 64, kPageSize = 16, kPages = 40, kMaxTokens = 16, kVocabulary = 97 };
  // What a step does not do.
  struct Lacks {
    int32_t last_tokens = 0; // that it passes over
    bool reset = false;      // at position 0
    bool fill = false;       // before the first of two sums of each request
    bool last = false;       // these for the last request alone
    bool chunks = false;     // these for requests of several tokens alone
  };
  using Hook = std::function<Lacks(const cgr_record_info &)>;

  KeepingEngine(const DeviceParam &device, Keeps keeps, int32_t max_requests, Hook lacks) : lacks_(std::move(lacks)) {
    static const int32_t lens[] = { 1, 4 };
    CGR_EXPECT_OK(cgr_device_open(device.name.c_str(), &device.config, &dev_));
    cgr_group group = CGR_GROUP_INIT;
    group.page_size = kPageSize, group.num_pages = kPages;
    cgr_config config = CGR_CONFIG_INIT;
    config.device_handle = dev_, config.groups = &group, config.num_groups = 1;
    config.max_requests = max_requests, config.max_rows = kRows, config.max_tokens = kMaxTokens;
    config.max_seq_len = kMaxSeqLen, config.graph_mode = CGR_MODE_FULL, config.query_lens = lens;
    config.num_query_lens = 2;
    CGR_EXPECT_OK(cgr_runtime_create(&config, &rt_));
    kernel_.keeps = keeps, kernel_.ids = Buffer(CGR_BUFFER_INPUT_IDS);
    kernel_.positions = Buffer(CGR_BUFFER_POSITIONS), kernel_.starts = Buffer(CGR_BUFFER_QUERY_START_LOC);
    kernel_.rows = Buffer(CGR_BUFFER_REQUEST_ROWS), kernel_.next = Buffer(CGR_BUFFER_NEXT_TOKENS);
    kernel_.page_table = Buffer(CGR_BUFFER_PAGE_TABLE, &kernel_.page_stride);
    kernel_.slots = reinterpret_cast<const int64_t *>(Buffer(CGR_BUFFER_SLOT_MAPPING));
    constexpr size_t kBytes = sizeof(uint32_t) * std::max(kRows * kMaxSeqLen, kPages * kPageSize) * 2;
    void *kept = nullptr;
    CGR_EXPECT_OK(cgr_memory_alloc(dev_, kBytes, &kept));
    std::memset(kept, 0, kBytes);
    kernel_.values = static_cast<uint32_t *>(kept), kernel_.kept = kernel_.values + kMaxTokens;
    cgr_capture capture = CaptureOf(Record, this);
    CGR_EXPECT_OK(cgr_runtime_capture(rt_, &capture));
  }
  ~KeepingEngine() {
    CGR_EXPECT_OK(cgr_runtime_destroy(rt_));
    CGR_EXPECT_OK(cgr_memory_free(dev_, kernel_.values));
    CGR_EXPECT_OK(cgr_device_close(dev_));
  }
  KeepingEngine(const KeepingEngine &) = delete;
  KeepingEngine &operator=(const KeepingEngine &) = delete;

  Found SelfTest(uint32_t seed) {
    std::vector<int32_t> pages;
    for (int32_t page = 2; page < kPages; page++)
      pages.push_back(page);
    cgr_self_test test = CGR_SELF_TEST_INIT;
    test.num_pages = int32_t(pages.size()), test.pages = pages.data(), test.max_token = kVocabulary;
    test.seed = seed;
    const cgr_watch watch = { "values", kernel_.values, 4, 4, CGR_DIMENSION_REQUESTS, 0 };
    test.watched = &watch, test.num_watched = 1;
    return Collect(16, [&](cgr_finding *findings, int32_t room, int32_t *count) {
      return cgr_runtime_self_test(rt_, &test, findings, room, count);
    });
  }

private:
  struct Kernel {
    Keeps keeps;
    int32_t num_requests, num_tokens;
    Lacks lacks;
    const int32_t *ids, *positions, *starts, *rows, *page_table;
    const int64_t *slots;
    int32_t *next;
    int64_t page_stride;
    uint32_t *kept, *values;

    uint32_t *At(int32_t row, int32_t position) const {
      if (keeps == Keeps::kTokensOfRows)
        return kept + row * kMaxSeqLen + position;
      return kept + page_table[row * page_stride + position / kPageSize] * kPageSize + position % kPageSize;
    }
    // Two sums, one after the other, in the same memory.
    uint32_t Sums(int32_t i, bool lacking) const {
      uint32_t value = 0;
      for (int layer = 0; layer < 2; layer++) {
        if (layer == 1 || !(lacks.fill && lacking))
          kept[i] = 0;
        for (int32_t t = starts[i]; t < starts[i + 1]; t++)
          kept[i] += uint32_t(ids[t]) + 1;
        value = value * 31 + kept[i];
      }
      return value % 1000003;
    }
    uint32_t Token(int32_t row, int32_t t, bool lacking) const {
      const uint32_t id = uint32_t(ids[t]) + 1;
      if (keeps == Keeps::kState) {
        const uint32_t before = positions[t] == 0 && !(lacks.reset && lacking) ? 0 : kept[row];
        return kept[row] = (before * 31 + id) % 1000003;
      }
      uint32_t value = 0;
      *(keeps == Keeps::kTokensOfPages ? kept + slots[t] : At(row, positions[t])) = id;
      for (int32_t p = 0; p <= positions[t]; p++)
        value = (value * 31 + *At(row, p)) % 1000003;
      return value;
    }
    static void Run(const void *args) {
      Kernel k;
      std::memcpy(&k, args, sizeof k);
      for (int32_t i = 0; i < k.num_requests; i++) {
        const bool lacking = (!k.lacks.last || i + 1 == k.num_requests) && (!k.lacks.chunks || k.starts[i + 1] - k.starts[i] > 1);
        uint32_t value = k.keeps == Keeps::kSums ? k.Sums(i, lacking) : 0;
        for (int32_t t = k.starts[i]; t < k.starts[i + 1] && k.keeps != Keeps::kSums; t++)
          if (t < k.num_tokens - k.lacks.last_tokens)
            value = k.Token(k.rows[i], t, lacking);
        k.values[i] = value, k.next[i] = int32_t(value % kVocabulary);
      }
    }
  };

  static cgr_status Record(cgr_recorder *recorder, void *engine) {
    const KeepingEngine *e = static_cast<KeepingEngine *>(engine);
    cgr_record_info info = CGR_RECORD_INFO_INIT;
    const cgr_status status = cgr_record_get_info(recorder, &info);
    Kernel kernel = e->kernel_;
    kernel.num_requests = info.num_requests, kernel.num_tokens = info.num_tokens;
    kernel.lacks = e->lacks_ && info.capturing ? e->lacks_(info) : Lacks();
    return status == CGR_OK ? cgr_launch_host(e->dev_, Kernel::Run, &kernel, sizeof kernel, info.stream) : status;
  }
  int32_t *Buffer(cgr_buffer buffer, int64_t *stride = nullptr) {
    const cgr_buffer_view view = BufferOf(rt_, buffer);
    if (stride != nullptr)
      *stride = view.stride;
    return static_cast<int32_t *>(view.data);
  }

  cgr_device *dev_ = nullptr;
  cgr_runtime *rt_ = nullptr;
  Kernel kernel_ = {};
  Hook lacks_;
};

// Tokens that an engine keeps by position are as good as a cache: no decoy leaves other ones, in one run alone, where the case
// reads them.
TEST_P(SelfTestDecoy, FindsNothingInEnginesThatKeepTokensThemselves) {
  for (Keeps keeps : { Keeps::kState, Keeps::kTokensOfRows, Keeps::kTokensOfPages, Keeps::kSums })
    for (int32_t max_requests : { 1, 4 }) {
      SCOPED_TRACE(std::to_string(int(keeps)) + ", up to " + std::to_string(max_requests) + " requests");
      KeepingEngine engine(GetParam(), keeps, max_requests, nullptr);
      for (uint32_t n = 0; n < 20; n++)
        ExpectNothing(engine.SelfTest(uint32_t(Seed()) + n));
    }
}

// Graphs of longer queries whose last token, or whose last one of each request, is passed over: all of the next step's are real.
TEST_P(SelfTestDecoy, FindsGraphsThatPassOverTheirLastTokens) {
  for (int32_t max_requests : { 1, 4 })
    for (bool of_each : { false, true }) {
      SCOPED_TRACE(std::to_string(max_requests) + " requests, " + (of_each ? "a token for each" : "one token"));
      KeepingEngine engine(GetParam(), Keeps::kState, max_requests, [=](const cgr_record_info &info) {
        KeepingEngine::Lacks lacks;
        lacks.last_tokens = info.key.query_len != 4 ? 0 : of_each ? info.num_requests : 1;
        return lacks;
      });
      for (uint32_t n = 0; n < 20; n++)
        EXPECT_EQ(engine.SelfTest(uint32_t(Seed()) + n).status, CGR_ERROR_SELF_TEST);
    }
}

// A single request is tried as one that begins, and as one that goes on.
TEST_P(SelfTestDecoy, FindsGraphsOfOneRequestThatResetNothing) {
  for (int32_t max_requests : { 1, 4 }) {
    SCOPED_TRACE(std::to_string(max_requests) + " requests");
    KeepingEngine engine(GetParam(), Keeps::kState, max_requests, [=](const cgr_record_info &info) {
      KeepingEngine::Lacks lacks;
      lacks.reset = info.num_requests == 1 && info.key.query_len == 4;
      return lacks;
    });
    for (uint32_t n = 0; n < 20; n++) {
      const Found found = engine.SelfTest(uint32_t(Seed()) + n);
      EXPECT_EQ(found.status, CGR_ERROR_SELF_TEST);
      for (const cgr_finding &finding : found.findings)
        EXPECT_NE(std::string(finding.field).find(" 1r 4t q4"), std::string::npos) << finding.field << ": " << finding.text;
    }
  }
}

// What a graph lacks for its last request alone, or for a prompt that begins in it, shows in a full step of fresh requests.
TEST_P(SelfTestDecoy, FindsWhatAFullStepOfFreshRequestsLacks) {
  for (bool last : { false, true })
    for (Keeps keeps : { Keeps::kState, Keeps::kSums })
      for (int32_t query_len : { 0, 1, 4 }) {
        if (!last && (keeps == Keeps::kSums || query_len == 1))
          continue; // chunks begin
        SCOPED_TRACE((last ? "the last request, query length " : "chunks, query length ") + std::to_string(query_len));
        KeepingEngine engine(GetParam(), keeps, 4, [=](const cgr_record_info &info) {
          KeepingEngine::Lacks lacks;
          lacks.reset = lacks.fill = info.num_requests > 2 && info.key.query_len == query_len;
          lacks.last = last, lacks.chunks = !last;
          return lacks;
        });
        for (uint32_t n = 0; n < 10; n++) {
          const Found found = engine.SelfTest(uint32_t(Seed()) + n);
          EXPECT_EQ(found.status, CGR_ERROR_SELF_TEST);
          for (const cgr_finding &finding : found.findings)
            EXPECT_NE(std::string(finding.field).find(" q" + std::to_string(query_len) + " v0"), std::string::npos)
                << finding.field;
        }
      }
}

INSTANTIATE_TEST_SUITE_P(Devices, SelfTestDecoy, ::testing::ValuesIn(HostDevices()), DeviceLabel);

} // namespace
} // namespace cgr_test
