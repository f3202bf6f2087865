// The two levels of a batch with shared prefixes: together they hold every request's pages, once; their plans are those of
// their arrays; and what is refused.
#include "tests/support/flashinfer_cascade.h"
#include "tests/support/mistake.h"
#include "tests/support/flashinfer_case.h"

namespace cgr_test {
namespace {

// All pages of a request, from both levels.
Ints PagesOf(const Cascade &s, int32_t g, int32_t i) {
  Ints pages;
  if (s.kv[size_t(i) + 1] > s.kv[size_t(i)])
    pages.assign(s.shared_indices.begin() + s.shared_kv[size_t(g)], s.shared_indices.begin() + s.shared_kv[size_t(g) + 1]);
  pages.insert(pages.end(), s.unique_indices.begin() + s.unique_kv[size_t(i)],
               s.unique_indices.begin() + s.unique_kv[size_t(i) + 1]);
  return pages;
}

TEST(FlashInferCascade, LevelsTogetherAreTheBatch) {
  ForSeeds(20000, [&](Random &random) {
    Cascade s = RandomCascade(random);
    CGR_ASSERT_OK(cgr_flashinfer_cascade_split(&s.c));
    for (int32_t g = 0; g < s.c.num_groups; g++) {
      EXPECT_EQ(s.shared_qo[size_t(g)], s.qo[size_t(s.start[size_t(g)])]);
      EXPECT_EQ(s.shared_last[size_t(g)], s.shared_kv[size_t(g) + 1] > s.shared_kv[size_t(g)] ? 16 : 1);
      for (int32_t i = s.start[size_t(g)]; i < s.start[size_t(g) + 1]; i++) {
        EXPECT_EQ(PagesOf(s, g, i), Ints(s.indices.begin() + s.kv[size_t(i)], s.indices.begin() + s.kv[size_t(i) + 1]));
        EXPECT_EQ(s.unique_last[size_t(i)], s.unique_kv[size_t(i) + 1] > s.unique_kv[size_t(i)] ? s.last[size_t(i)] : 1);
      }
    }
    EXPECT_EQ(s.shared_qo.back(), s.qo.back());
    EXPECT_EQ(s.shared_indices[size_t(s.shared_kv.back())], -7);
    EXPECT_EQ(s.unique_indices[size_t(s.unique_kv.back())], -7);
    Cascade bare = s;
    bare.Bind(false);
    CGR_ASSERT_OK(cgr_flashinfer_cascade_split(&bare.c));
    EXPECT_TRUE(bare.shared_kv == s.shared_kv && bare.unique_kv == s.unique_kv && bare.shared_qo == s.shared_qo);
    EXPECT_TRUE(bare.shared_last == s.shared_last && bare.unique_last == s.unique_last);
  });
}

FlashInferCase Prefill(const Cascade &s, bool graph) {
  FlashInferCase c;
  c.decode = false;
  c.p.num_requests = 1;
  c.p.total_num_rows = std::max({ s.qo.back(), s.c.num_requests, s.c.num_groups });
  c.p.num_q_heads = 32;
  c.p.num_kv_heads = 8;
  c.p.head_dim_qk = c.p.head_dim_vo = 128;
  c.p.page_size = 16;
  c.p.num_multiprocessors = 132;
  c.p.graph = graph;
  return c;
}

// Whatever the arrays hold of it.
TEST(FlashInferCascade, PaddingHasNoRowsAndNoPages) {
  ForSeeds(2000, [&](Random &random) {
    Cascade alone = RandomCascade(random), padded = alone;
    const size_t live = alone.last.size(), padding = size_t(random.Pick32(0, 9));
    Pad(random, padded, int32_t(padding));
    CGR_ASSERT_OK(cgr_flashinfer_cascade_split(&alone.c));
    CGR_ASSERT_OK(cgr_flashinfer_cascade_split(&padded.c));
    EXPECT_TRUE(padded.shared_qo == alone.shared_qo && padded.shared_kv == alone.shared_kv);
    EXPECT_TRUE(padded.shared_last == alone.shared_last && padded.shared_indices == alone.shared_indices);
    EXPECT_EQ(padded.unique_indices, alone.unique_indices);
    alone.unique_kv.resize(live + 1 + padding, alone.unique_kv.back());
    alone.unique_last.resize(live + padding, 1);
    EXPECT_EQ(padded.unique_kv, alone.unique_kv);
    EXPECT_EQ(padded.unique_last, alone.unique_last);
  });
}

TEST(FlashInferCascade, LiveRequestsOutOfRangeAreTheNearest) {
  Random random(1);
  Cascade s = RandomCascade(random);
  const Ints all = s.qo;
  s.live = { INT32_MAX };
  s.Bind();
  CGR_ASSERT_OK(cgr_flashinfer_cascade_split(&s.c));
  EXPECT_EQ(s.shared_qo.back(), all.back());
  for (int32_t none : { 0, -1, INT32_MIN }) {
    s.live = { none };
    s.Bind();
    CGR_ASSERT_OK(cgr_flashinfer_cascade_split(&s.c));
    for (const Ints &sums : { s.shared_qo, s.shared_kv, s.unique_kv })
      EXPECT_EQ(sums, Ints(sums.size(), 0));
    for (const Ints &lens : { s.shared_last, s.unique_last })
      EXPECT_EQ(lens, Ints(lens.size(), 1));
  }
}

// Every request has `rows` rows or none.
void MakeUniform(Cascade &s, int32_t rows) {
  Ints qo = { 0 };
  for (size_t i = 0; i < s.last.size(); i++)
    qo.push_back(qo.back() + (s.qo[i + 1] - s.qo[i] >= rows ? rows : 0));
  s.qo = qo;
  s.Bind();
}

TEST(FlashInferCascade, PlansAreThoseOfTheLevels) {
  ForSeeds(1000, [&](Random &random) {
    Cascade s = RandomCascade(random);
    const int32_t uniform = random.OneIn(3) ? random.Pick32(1, 9) : 0;
    if (uniform > 0)
      MakeUniform(s, uniform);
    FlashInferCase level = Prefill(s, uniform > 0 || random.OneIn(2));
    level.p.layout = random.Pick32(0, 1);
    level.p.unmasked = random.Pick32(0, 1); // says nothing without a window
    level.p.uniform_q_len = uniform;
    if (random.OneIn(2)) {
      const int32_t padding = random.Pick32(0, 9);
      Pad(random, s, padding);
      level.p.total_num_rows += padding;
    }
    FlashInferWorkspace a(1 << 18), b(1 << 18), expected(1 << 18);
    void *const workspaces[2] = { a.data(), b.data() };
    const size_t bytes[2] = { a.size(), b.size() };
    cgr_flashinfer_plan plans[2] = { CGR_FLASHINFER_PLAN_INIT, CGR_FLASHINFER_PLAN_INIT }, plan = CGR_FLASHINFER_PLAN_INIT;
    CGR_ASSERT_OK(cgr_flashinfer_cascade_build(&s.c, &level.p, workspaces, bytes, plans));
    for (int k = 0; k < 2; k++) {
      level.p.num_requests = k == 0 ? s.c.num_groups : s.c.num_requests;
      level.p.uniform_q_len = k == 0 ? 0 : uniform;
      level.qo = k == 0 ? s.shared_qo : s.qo;
      level.kv = k == 0 ? s.shared_kv : s.unique_kv;
      level.live = k == 0 ? Ints() : s.live;
      level.Bind();
      CGR_ASSERT_OK(level.Build(expected.data(), expected.size(), &plan));
      EXPECT_EQ(std::memcmp(&plan, &plans[k], sizeof plan), 0);
      EXPECT_EQ(std::memcmp(expected.data(), workspaces[k], size_t(plan.int_bytes)), 0);
    }
  });
}

// A group of two requests with 3 pages in common, and one alone.
Cascade Good() {
  Cascade s;
  s.AddGroup(3);
  s.Add(1, 4, 5);
  s.Add(2, 5, 16);
  s.AddGroup(0);
  s.Add(1, 2, 9);
  s.Bind();
  return s;
}

void ExpectRefused(const Cascade &s, const Words &words, cgr_status status = CGR_ERROR_INVALID_ARGUMENT) {
  FlashInferCase level = Prefill(s, false);
  void *const workspaces[2] = { nullptr, nullptr };
  const size_t bytes[2] = { 0, 0 };
  cgr_flashinfer_plan plans[2] = { CGR_FLASHINFER_PLAN_INIT, CGR_FLASHINFER_PLAN_INIT };
  Words split = words, build = words;
  split.push_back("cgr_flashinfer_cascade_split: ");
  build.push_back("cgr_flashinfer_cascade_build: ");
  ExpectMessage(cgr_flashinfer_cascade_split(&s.c), status, split);
  ExpectMessage(cgr_flashinfer_cascade_build(&s.c, &level.p, workspaces, bytes, plans), status, build);
}

TEST(FlashInferCascade, RefusesWhatIsNoCascade) {
  Cascade s = Good();
  CGR_EXPECT_OK(cgr_flashinfer_cascade_split(&s.c));
  for (int32_t cgr_flashinfer_cascade::*field :
       { &cgr_flashinfer_cascade::num_requests, &cgr_flashinfer_cascade::num_groups, &cgr_flashinfer_cascade::page_size }) {
    s = Good();
    s.c.*field = 0;
    ExpectRefused(s, { " is 0, expected 1 .. " });
    s.c.*field = 65537;
    ExpectRefused(s, { " is 65537, expected 1 .. " });
  }
  EachMistake<Cascade>(
      {
          { kArgument, "qo_indptr[0] is 1, expected 0", [](Cascade &c) { c.qo[0] = 1; } },
          { kArgument, "kv_indptr[2] is 3, expected at least 4 (kv_indptr[1])", [](Cascade &c) { c.kv[2] = 3; } },
          { kArgument, "group_start[2] is 2, expected 3 (num_requests)", [](Cascade &c) { c.start[2] = 2; } },
          { kArgument, "group_start[2] is 4, expected 3 (num_requests)", [](Cascade &c) { c.start[2] = 4; } },
          { kArgument, "group_start[2] is 1, expected 2 (live requests) .. 3 (num_requests)",
            [](Cascade &c) {
              c.live = { 2 };
              c.start[1] = c.start[2] = 1;
              c.c.live_requests = c.live.data();
            } },
          { kArgument, "prefix_pages[1] is -1, expected at least 0", [](Cascade &c) { c.prefix[1] = -1; } },
          { kArgument, "prefix_pages[0] is 4, expected at most 3: request 0 has 52 tokens before its new ones",
            [](Cascade &c) { c.prefix[0] = 4; } },
          { kArgument, "kv_last_page_len[2] is 17, expected 1 .. 16", [](Cascade &c) { c.last[2] = 17; } },
          { kArgument, "kv_last_page_len[2] is 0, expected 1 .. 16", [](Cascade &c) { c.last[2] = 0; } },
          { kArgument, "page 1 of request 1 is 1000002, expected 1000001, as in the rest of group 0",
            [](Cascade &c) { c.indices[5]++; } },
      },
      Good, [](const Cascade &c, const Mistake<Cascade> &row) { ExpectRefused(c, { row.says }); });
}

TEST(FlashInferCascade, NullIsRefused) {
  for (const int32_t *cgr_flashinfer_cascade::*field :
       { &cgr_flashinfer_cascade::qo_indptr, &cgr_flashinfer_cascade::kv_indptr, &cgr_flashinfer_cascade::kv_last_page_len,
         &cgr_flashinfer_cascade::group_start, &cgr_flashinfer_cascade::prefix_pages }) {
    Cascade s = Good();
    s.c.*field = nullptr;
    ExpectRefused(s, { " is NULL, expected an array" }, CGR_ERROR_NULL_POINTER);
  }
  for (int32_t *cgr_flashinfer_cascade::*field :
       { &cgr_flashinfer_cascade::shared_qo_indptr, &cgr_flashinfer_cascade::shared_kv_indptr,
         &cgr_flashinfer_cascade::shared_last_page_len, &cgr_flashinfer_cascade::shared_kv_indices,
         &cgr_flashinfer_cascade::unique_kv_indptr, &cgr_flashinfer_cascade::unique_last_page_len,
         &cgr_flashinfer_cascade::unique_kv_indices }) {
    Cascade s = Good();
    s.c.*field = nullptr;
    ExpectRefused(s, { " is NULL, expected an array" }, CGR_ERROR_NULL_POINTER);
  }
  Cascade s = Good();
  FlashInferCase level = Prefill(s, false);
  FlashInferWorkspace a(1 << 14), b(1 << 14);
  void *const workspaces[2] = { a.data(), b.data() };
  const size_t bytes[2] = { a.size(), b.size() };
  cgr_flashinfer_plan plans[2] = { CGR_FLASHINFER_PLAN_INIT, CGR_FLASHINFER_PLAN_INIT };
  ExpectMessage(cgr_flashinfer_cascade_split(nullptr), CGR_ERROR_NULL_POINTER,
                { "cgr_flashinfer_cascade_split: cascade is NULL" });
  ExpectMessage(cgr_flashinfer_cascade_build(nullptr, &level.p, workspaces, bytes, plans), CGR_ERROR_NULL_POINTER,
                { "cgr_flashinfer_cascade_build: cascade is NULL" });
  ExpectMessage(cgr_flashinfer_cascade_build(&s.c, nullptr, workspaces, bytes, plans), CGR_ERROR_NULL_POINTER,
                { "cgr_flashinfer_cascade_build: input is NULL" });
  ExpectMessage(cgr_flashinfer_cascade_build(&s.c, &level.p, nullptr, bytes, plans), CGR_ERROR_NULL_POINTER,
                { "int_workspaces is NULL" });
  ExpectMessage(cgr_flashinfer_cascade_build(&s.c, &level.p, workspaces, nullptr, plans), CGR_ERROR_NULL_POINTER,
                { "int_bytes is NULL" });
  ExpectMessage(cgr_flashinfer_cascade_build(&s.c, &level.p, workspaces, bytes, nullptr), CGR_ERROR_NULL_POINTER,
                { "plans is NULL" });
  CGR_EXPECT_OK(cgr_flashinfer_cascade_build(&s.c, &level.p, workspaces, bytes, plans));
}

// Everything that building Good() takes, with plans of `size` bytes each.
struct Building {
  Cascade s = Good();
  FlashInferCase level = Prefill(s, false);
  FlashInferWorkspace a{ 1 << 14 }, b{ 1 << 14 };
  void *workspaces[2] = { a.data(), b.data() };
  size_t bytes[2] = { a.size(), b.size() }, size;
  std::vector<uint64_t> plans; // in words, for the alignment

  explicit Building(size_t plan_size) : size(plan_size), plans(2 * plan_size / 8) { SetSizes(plan_size, plan_size); }
  void *plan(size_t i) { return plans.data() + i * size / 8; }
  void SetSizes(size_t first, size_t second) {
    const uint32_t sizes[2] = { uint32_t(first), uint32_t(second) };
    for (size_t i = 0; i < 2; i++)
      std::memcpy(plan(i), &sizes[i], sizeof sizes[i]);
  }
  cgr_status Build() {
    return cgr_flashinfer_cascade_build(&s.c, &level.p, workspaces, bytes, static_cast<cgr_flashinfer_plan *>(plan(0)));
  }
};

// The shared level's rows would need another window each. Nothing is written.
TEST(FlashInferCascade, AWindowIsRefused) {
  for (int32_t window : { 1, 200, INT32_MAX, -1 })
    for (int32_t graph : { 0, 1 })
      for (int32_t whole : { 0, 1 })
        for (int32_t unmasked : { 0, 1 }) {
          Building given(sizeof(cgr_flashinfer_plan));
          const std::vector<uint64_t> plans = given.plans;
          const Ints shared = given.s.shared_qo, unique = given.s.unique_kv;
          given.level.p.graph = graph, given.level.p.disable_split_kv = whole, given.level.p.unmasked = unmasked;
          given.level.p.window = window;
          ExpectMessage(
              given.Build(), CGR_ERROR_UNSUPPORTED,
              { "cgr_flashinfer_cascade_build: input: window is " + std::to_string(window) + ", expected 0: each row" });
          EXPECT_EQ(given.plans, plans);
          EXPECT_TRUE(given.s.shared_qo == shared && given.s.unique_kv == unique);
          for (FlashInferWorkspace *workspace : { &given.a, &given.b })
            EXPECT_EQ(workspace->Get(), std::vector<unsigned char>(workspace->size(), 0xA5));
          given.level.p.window = 0;
          CGR_EXPECT_OK(given.Build());
        }
}

// Structs of callers older and newer than the library.
TEST(FlashInferCascade, PlansAreSteppedThroughByTheSizeOfTheFirst) {
  Building expected(sizeof(cgr_flashinfer_plan));
  CGR_ASSERT_OK(expected.Build());
  for (size_t size : { sizeof(cgr_flashinfer_plan) - 8, sizeof(cgr_flashinfer_plan) + 8, sizeof(cgr_flashinfer_plan) + 64 }) {
    Building given(size);
    CGR_ASSERT_OK(given.Build());
    for (size_t i = 0; i < 2; i++) {
      const unsigned char *got = static_cast<unsigned char *>(given.plan(i)),
                          *full = static_cast<unsigned char *>(expected.plan(i));
      EXPECT_EQ(*static_cast<uint32_t *>(given.plan(i)), size);
      EXPECT_EQ(std::memcmp(got + 4, full + 4, std::min(size, sizeof(cgr_flashinfer_plan)) - 4), 0) << size << " plan " << i;
      for (size_t at = sizeof(cgr_flashinfer_plan); at < size; at++)
        EXPECT_EQ(got[at], 0) << size << " plan " << i << " byte " << at;
    }
  }
}

TEST(FlashInferCascade, SizesOfBothPlansAreCheckedBeforeAnythingIsWritten) {
  const size_t size = sizeof(cgr_flashinfer_plan);
  const struct {
    size_t first, second;
    const char *text;
  } rows[] = { { 3, size, "plans[0]: size is 3" }, { size, 0, "plans[1]: size is 0" }, { size, size + 8, "plans[1]: size is " } };
  for (const auto &row : rows) {
    Building given(size);
    given.SetSizes(row.first, row.second);
    const std::vector<uint64_t> plans = given.plans;
    const Ints shared = given.s.shared_qo, unique = given.s.unique_kv;
    ExpectMessage(given.Build(), CGR_ERROR_INVALID_STRUCT, { "cgr_flashinfer_cascade_build: ", row.text });
    EXPECT_EQ(given.plans, plans);
    EXPECT_TRUE(given.s.shared_qo == shared && given.s.unique_kv == unique);
  }
}

TEST(FlashInferCascade, RefusalsOfALevelNameIt) {
  for (size_t i = 0; i < 2; i++) {
    const std::string level = std::string("cgr_flashinfer_cascade_build: ") + (i == 0 ? "shared" : "unique") + " level: ";
    Building given(sizeof(cgr_flashinfer_plan));
    given.bytes[i] = 16;
    ExpectMessage(given.Build(), CGR_ERROR_INVALID_ARGUMENT, { level + "int_bytes is 16, expected at least " });
    given.workspaces[i] = nullptr;
    ExpectMessage(given.Build(), CGR_ERROR_NULL_POINTER, { level + "int_workspace is NULL" });
  }
  Building given(sizeof(cgr_flashinfer_plan));
  given.level.p.num_kv_heads = 7;
  ExpectMessage(given.Build(), CGR_ERROR_INVALID_ARGUMENT,
                { "cgr_flashinfer_cascade_build: shared level: num_q_heads is 32, expected a multiple of num_kv_heads (7)" });
}

} // namespace
} // namespace cgr_test
