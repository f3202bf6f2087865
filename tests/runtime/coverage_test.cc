// What a capture tells of sizes within the limits that have no graph, however much is captured: uniform steps by query length,
// mixed ones by tokens and by requests. Each range is told, and nothing else is.
#include <cstring>
#include <regex>
#include <set>

extern "C" {
#include "runtime/runtime.h"
}

#include "tests/support/config_case.h"
#include "tests/support/seed.h"

namespace cgr_test {
namespace {

cgr_status RecordNothing(cgr_recorder *, void *) { return CGR_OK; }

struct Log {
  std::vector<std::string> lines; // of INFO
  static void Keep(void *context, cgr_log_level level, const char *text) {
    if (level == CGR_LOG_INFO && std::strstr(text, "is estimated") == nullptr) // where others use the device
      static_cast<Log *>(context)->lines.push_back(text);
  }
};

// Numbers of one line, or the first few ranges of them and how many more ranges there are.
struct Ranges {
  std::set<int32_t> numbers;
  size_t more = 0;
};

Ranges RangesOf(const std::string &text) {
  Ranges found;
  static const std::regex range("(\\d+)(?: \\.\\. (\\d+))?(?:,| )"), rest("and (\\d+) more range");
  std::smatch more;
  std::string head = text;
  if (std::regex_search(text, more, rest)) {
    found.more = size_t(std::stoi(more[1]));
    head = text.substr(0, size_t(more.position(0)));
  }
  for (std::sregex_iterator at(head.begin(), head.end(), range), end; at != end; ++at)
    for (int32_t n = std::stoi((*at)[1]), last = (*at)[2].matched ? std::stoi((*at)[2]) : n; n <= last; n++)
      found.numbers.insert(n);
  return found;
}

// The first ranges of the numbers, as many as a line has.
Ranges Shortened(const std::set<int32_t> &numbers) {
  Ranges shown;
  size_t count = 0;
  for (int32_t n : numbers) {
    count += numbers.count(n - 1) == 0;
    if (count <= 3)
      shown.numbers.insert(n);
  }
  shown.more = count > 3 ? count - 3 : 0;
  return shown;
}

class Coverage : public ConfigTest {
protected:
  void TearDown() override {
    if (runtime_)
      CGR_EXPECT_OK(cgr_runtime_destroy(runtime_));
    ConfigTest::TearDown();
  }
  // A runtime whose record enqueues nothing, and what its capture tells.
  void Capture(const Change &change) {
    GoodConfig c(device_);
    c.config.num_layers = 0, c.config.attention_support = CGR_SUPPORT_ALWAYS, c.config.num_buffers = 0;
    c.config.max_rows = 0, c.config.log = Log::Keep, c.config.log_context = &log_;
    change(c);
    if (runtime_)
      CGR_ASSERT_OK(cgr_runtime_destroy(runtime_));
    CGR_ASSERT_OK(cgr_runtime_create(&c.config, &runtime_));
    CaptureAgain(0);
  }
  void CaptureAgain(uint32_t flags) {
    cgr_capture capture = CGR_CAPTURE_INIT;
    capture.record = RecordNothing, capture.flags = flags;
    log_.lines.clear();
    CGR_ASSERT_OK(cgr_runtime_capture(runtime_, &capture));
  }
  void Expect(const std::vector<std::string> &lines) { EXPECT_EQ(log_.lines, lines); }
  // The text after the beginning of a line that also has the cause.
  std::string Told(const std::string &begin, const std::string &what, bool padded) {
    for (const std::string &line : log_.lines)
      if (line.rfind(begin, 0) == 0 && line.find(what) != std::string::npos &&
          (line.find("max_padding") != std::string::npos) == padded)
        return line.substr(begin.size());
    return "";
  }
  cgr__choice Choose(int32_t requests, int32_t tokens, int32_t query_len) {
    const cgr__batch_shape shape = { requests, tokens, query_len, query_len > 0 ? query_len : INT32_MAX, 0, 0 };
    cgr__choice choice;
    CGR_EXPECT_OK(cgr__graphs_choose(&runtime_->graphs, &shape, nullptr, &choice));
    return choice;
  }
  void CheckUniform();
  void CheckMixed();

  Log log_;
  cgr_runtime *runtime_ = nullptr;
};

TEST_P(Coverage, DefaultSizesLackNothing) {
  static const int32_t query_lens[] = { 1, 4, 7 };
  for (int32_t requests : { 1, 5, 125, 128, 600 })
    for (int32_t mode : { CGR_MODE_NONE, CGR_MODE_PIECEWISE, CGR_MODE_FULL, CGR_MODE_FULL_DECODE_ONLY }) {
      Capture([&](GoodConfig &c) {
        c.config.num_decode_buckets = 0, c.config.max_requests = requests;
        c.config.max_tokens = 4 * requests + 4, c.config.graph_mode = mode, c.config.query_lens = query_lens;
        c.config.num_query_lens = 3;
      });
      Expect({});
    }
}

TEST_P(Coverage, EachRangeIsToldOncePerCapture) {
  static const int32_t query_lens[] = { 1, 4, 30 }, buckets[] = { 2, 100, 120 };
  static const cgr_bucket mixed[] = { { 100, 8 }, { 300, 4 } };
  const auto change = [](int32_t mode) {
    return [mode](GoodConfig &c) {
      c.config.max_requests = 125, c.config.max_tokens = 500, c.config.decode_buckets = buckets;
      c.config.num_decode_buckets = 3, c.config.query_lens = query_lens, c.config.num_query_lens = 3;
      c.config.mixed_buckets = mixed, c.config.num_mixed_buckets = 2, c.config.graph_mode = mode;
    };
  };
  const std::vector<std::string> lines = {
    "uniform steps of 1 token: 121 .. 125 requests have no graph (decode_buckets end at 120)",
    "uniform steps of 1 token: 3 .. 35 requests have no graph (those that hold them exceed max_padding)",
    "uniform steps of 4 tokens: 121 .. 125 requests have no graph (decode_buckets end at 120)",
    "uniform steps of 4 tokens: 3 .. 49 requests have no graph (those that hold them exceed max_padding)",
    "uniform steps of 30 tokens: 3 .. 16 requests have no graph (the decode_buckets that fit end at 2)",
  };
  Capture(change(CGR_MODE_FULL_DECODE_ONLY));
  Expect(lines);
  CaptureAgain(0);
  Expect(lines);
  Capture(change(CGR_MODE_FULL_AND_PIECEWISE));
  Expect({
      "uniform steps of 1 token: 121 .. 125 requests have no graph (decode_buckets end at 120)",
      "uniform steps of 1 token: 3 .. 35 requests have no graph (those that hold them exceed max_padding)",
      "uniform steps of 4 tokens: 121 .. 125 requests have no graph (decode_buckets end at 120)",
      "uniform steps of 4 tokens: 3 .. 49 requests have no graph (those that hold them exceed max_padding)",
      "uniform steps of 30 tokens: 4 .. 16 requests have no graph (the decode_buckets that fit end at 2)",
      "uniform steps of 30 tokens: 3 requests have no FULL graph (the decode_buckets that fit end at 2)", // in pieces of 100
      "mixed steps: 1 .. 35, 101 .. 149 tokens have no graph (those that hold them exceed max_padding)",
      "mixed steps: 301 .. 500 tokens have no graph (mixed_buckets end at 300)",
      "mixed steps of 101 .. 300 tokens: 5 .. 125 requests have no graph (mixed_buckets hold 4)",
      "mixed steps of 9 .. 100 tokens: 9 .. 100 requests have no graph (mixed_buckets hold 8)",
  });
}

// One request is one request, and a list that no step can use has no size at all.
TEST_P(Coverage, LinesAreEnglish) {
  static const int32_t query_lens[] = { 1, 40 }, buckets[] = { 2 };
  Capture([](GoodConfig &c) {
    c.config.max_requests = 2, c.config.max_tokens = 70, c.config.query_lens = query_lens;
    c.config.num_query_lens = 2, c.config.decode_buckets = buckets, c.config.num_decode_buckets = 1;
    c.config.graph_mode = CGR_MODE_FULL_DECODE_ONLY;
  });
  Expect({ "uniform steps of 40 tokens: 1 request has no graph (no size of decode_buckets fits max_tokens)" });
  Capture([](GoodConfig &c) {
    c.config.max_requests = 8, c.config.num_decode_buckets = 0, c.config.max_decode_bucket = 7;
    c.config.graph_mode = CGR_MODE_FULL_AND_PIECEWISE;
  });
  Expect({ "uniform steps of 1 token: 8 requests have no FULL graph (max_decode_bucket is 7)" });
}

void Coverage::CheckUniform() {
  const cgr_config &c = runtime_->setup.config;
  const cgr__key_lists &lists = runtime_->setup.keys;
  for (int32_t i = 0; i < lists.num_query_lens; i++) {
    const int32_t query_len = lists.query_lens[i];
    std::set<int32_t> gaps[2][2]; // [runs in pieces][padded]
    for (int32_t n = 1; n <= std::min(c.max_requests, c.max_tokens / query_len); n++) {
      const cgr__choice choice = Choose(n, n * query_len, query_len);
      bool listed = false;
      for (int32_t k = 0; k < cgr_test::NumKeys(runtime_); k++) {
        const cgr_graph_stats stats = GraphStatsOf(runtime_, k);
        listed |= stats.key.query_len == query_len && stats.key.num_requests >= n;
      }
      if (choice.key.kind != lists.uniform_kind)
        gaps[choice.key.kind != CGR_KIND_NONE][listed].insert(n);
    }
    const std::string begin = "uniform steps of " + std::to_string(query_len) + (query_len == 1 ? " token: " : " tokens: ");
    for (bool pieces : { false, true })
      for (bool padded : { false, true }) {
        const Ranges told = RangesOf(Told(begin, pieces ? "no FULL graph" : "no graph", padded)),
                     want = Shortened(gaps[pieces][padded]);
        ASSERT_EQ(told.numbers, want.numbers) << begin << (pieces ? "in pieces" : "eagerly") << (padded ? ", padded: " : ": ")
                                              << ::testing::PrintToString(log_.lines);
        ASSERT_EQ(told.more, want.more) << begin;
      }
  }
}

void Coverage::CheckMixed() {
  const cgr_config &c = runtime_->setup.config;
  std::set<int32_t> padded, above;
  for (int32_t tokens = 1; tokens <= c.max_tokens; tokens++) {
    const cgr_reason reason = cgr_reason(Choose(1, tokens, 0).reason);
    if (reason == CGR_REASON_TOO_PADDED)
      padded.insert(tokens);
    else if (reason != CGR_REASON_EXACT && reason != CGR_REASON_PADDED)
      above.insert(tokens);
  }
  const Ranges told = RangesOf(Told("mixed steps: ", "no graph", true)), want = Shortened(padded);
  ASSERT_EQ(told.numbers, want.numbers);
  ASSERT_EQ(told.more, want.more);
  ASSERT_EQ(RangesOf(Told("mixed steps: ", "mixed_buckets end at", false)).numbers, above);
  // Requests, unless there are too many lines.
  static const std::regex line("mixed steps of (\\d+) \\.\\. (\\d+) tokens: (\\d+)(?: \\.\\. (\\d+))? requests have no graph.*");
  std::set<std::pair<int32_t, int32_t>> seen;
  for (const std::string &text : log_.lines) {
    std::smatch m;
    if (text.find("more range") != std::string::npos && text.find("max_requests") != std::string::npos)
      return;
    if (!std::regex_match(text, m, line))
      continue;
    for (int32_t tokens = std::stoi(m[1]); tokens <= std::stoi(m[2]); tokens++)
      for (int32_t n = std::stoi(m[3]), last = m[4].matched ? std::stoi(m[4]) : n; n <= last && n <= tokens; n++)
        seen.insert({ tokens, n });
  }
  for (int32_t tokens = 1; tokens <= c.max_tokens; tokens++)
    for (int32_t n = 1; n <= std::min(c.max_requests, tokens) && above.count(tokens) == 0; n++) {
      const bool lacks = Choose(n, tokens, 0).reason == CGR_REASON_ABOVE_REQUESTS;
      ASSERT_EQ(seen.count({ tokens, n }) > 0, lacks) << tokens << " tokens, " << n << " requests";
    }
}

TEST_P(Coverage, WhatIsToldIsWhatStepsLack) {
  SeededRandom random;
  for (int round = 0; round < 40 && !HasFatalFailure(); round++) {
    const int32_t requests = random.Pick32(1, 160), tokens = random.Pick32(requests, 4 * requests);
    std::set<int32_t> lens, sizes;
    std::set<std::pair<int32_t, int32_t>> pairs;
    for (int32_t i = random.Pick32(1, 3); i > 0; i--)
      lens.insert(random.Pick32(1, std::min(tokens, 9)));
    for (int32_t i = random.Pick32(0, 6); i > 0; i--)
      sizes.insert(random.Pick32(1, requests));
    for (int32_t i = random.Pick32(0, 6); i > 0; i--)
      pairs.insert({ random.Pick32(1, tokens), random.Pick32(1, requests) });
    const std::vector<int32_t> query_lens(lens.begin(), lens.end()), decode(sizes.begin(), sizes.end());
    std::vector<cgr_bucket> mixed;
    for (const auto &[t, r] : pairs)
      mixed.push_back({ t, r });
    const int32_t mode = int32_t(random.Pick(CGR_MODE_PIECEWISE, CGR_MODE_FULL_AND_PIECEWISE));
    Capture([&](GoodConfig &c) {
      c.config.max_requests = requests, c.config.max_tokens = tokens, c.config.graph_mode = mode;
      c.config.query_lens = query_lens.data(), c.config.num_query_lens = int32_t(query_lens.size());
      c.config.decode_buckets = decode.data(), c.config.num_decode_buckets = int32_t(decode.size());
      c.config.mixed_buckets = mixed.data(), c.config.num_mixed_buckets = int32_t(mixed.size());
      c.config.max_padding = random.OneIn(3) ? 1.0f : 0.0f;
    });
    ASSERT_FALSE(HasFatalFailure());
    CheckUniform();
    if (mode != CGR_MODE_FULL_DECODE_ONLY && !HasFatalFailure())
      CheckMixed();
  }
}

CGR_INSTANTIATE_CONFIG_TEST(Coverage);

} // namespace
} // namespace cgr_test
