// The optional outputs of cgr_metadata against plain loops over the batch; and what is refused of them.
#include <algorithm>
#include <cstddef>
#include <numeric>
#include <string>
#include <vector>

#include "cgr/names.h"
#include "cgr/planners.h"
#include "tests/support/expect.h"
#include "tests/support/seed.h"
#include "tests/support/split.h"

namespace {

using namespace cgr_test;
using Ints = std::vector<int32_t>;

constexpr int32_t kPoison = 0x6b6b6b6b, kMaxSeqLen = 300, kPages = 1000, kReadTrash = 2, kWriteTrash = 4;

struct Group {
  int32_t page_size, pages_each; // of kernels
  int64_t stride, width;         // of the page table and of the block table
  Ints table, kv_indptr, last, kv_indices, block_table, prefill_indptr, prefill_last, prefill_table;
  std::vector<int64_t> slots;

  int32_t Size() const { return page_size / pages_each; }
};

struct Case {
  int32_t padded_requests, padded_tokens, max_rows, threshold;
  bool uniform;
  Ints rows, query_lens, computed;
  Ints ids, positions, starts, lens, request_rows, logits, kv_starts, context, context_starts, prefill_starts, prefill_lens,
      prefill_kv_starts;
  std::vector<int32_t *> prefill_tables;
  int32_t num_decodes = kPoison;
  std::vector<Group> groups;
  std::vector<cgr_metadata_group> bound;
  std::vector<cgr_metadata_on_demand> on_demand;
  Ints last_tokens;
  cgr_metadata m;

  Case(Random &random, int32_t requests, int32_t num_groups) : threshold(random.Pick32(1, 3)), uniform(random.OneIn(2)) {
    max_rows = requests + 3;
    rows.resize(size_t(max_rows));
    std::iota(rows.begin(), rows.end(), 0);
    for (size_t i = rows.size(); i > 1; i--)
      std::swap(rows[i - 1], rows[size_t(random.Pick(0, int64_t(i) - 1))]);
    rows.resize(size_t(requests));
    const int32_t decodes = random.OneIn(3) ? requests : random.Pick32(0, requests), oddity = random.OneIn(3) ? 40 : 5;
    for (int32_t i = 0; i < requests; i++)
      query_lens.push_back(random.OneIn(oddity)   ? 0
                           : i >= decodes         ? random.Pick32(threshold + 1, 20)
                           : random.OneIn(oddity) ? random.Pick32(1, threshold)
                                                  : threshold);
    for (int32_t row = 0; row < max_rows; row++) {
      const int32_t lengths[] = { 0, 15, 16, 17, kMaxSeqLen - 20, random.Pick32(0, kMaxSeqLen - 20) };
      computed.push_back(lengths[random.Pick(0, 5)]);
    }
    last_tokens.assign(size_t(max_rows), 7);
    for (int32_t k = 0; k < num_groups; k++) {
      Group g;
      g.page_size = random.OneIn(2) ? 16 * random.Pick32(1, 64) : random.Pick32(1, 70);
      g.pages_each = 1;
      for (int32_t size = random.Pick32(1, g.page_size); size < g.page_size && g.pages_each == 1; size++)
        g.pages_each = g.page_size % size == 0 ? g.page_size / size : 1;
      g.stride = (kMaxSeqLen + g.page_size - 1) / g.page_size + random.Pick32(0, 2);
      g.width = (kMaxSeqLen + g.Size() - 1) / g.Size() + random.Pick32(0, 2);
      for (int64_t i = 0; i < max_rows * g.stride; i++)
        g.table.push_back(random.Pick32(5, kPages - 1));
      groups.push_back(g);
    }
    padded_requests = requests + random.Pick32(0, 5);
    padded_tokens = std::accumulate(query_lens.begin(), query_lens.end(), 0) + random.Pick32(0, 5);
    Bind();
  }
  int64_t PagesOf(const Group &g) const {
    int64_t pages = 0;
    for (size_t i = 0; i < rows.size(); i++)
      pages += (computed[size_t(rows[i])] + query_lens[i] + g.Size() - 1) / g.Size();
    return pages;
  }
  // Outputs of exactly their size, poisoned.
  void Bind() {
    const size_t t = size_t(padded_tokens), r = size_t(padded_requests);
    for (Ints *out : { &ids, &positions })
      out->assign(t, kPoison);
    for (Ints *out : { &lens, &request_rows, &logits, &context, &prefill_lens })
      out->assign(r, kPoison);
    for (Ints *out : { &starts, &kv_starts, &context_starts, &prefill_starts, &prefill_kv_starts })
      out->assign(r + 1, kPoison);
    bound.clear();
    on_demand.clear();
    prefill_tables.clear();
    for (Group &g : groups) {
      g.slots.assign(t, kPoison);
      for (Ints *out : { &g.kv_indptr, &g.prefill_indptr })
        out->assign(r + 1, kPoison);
      for (Ints *out : { &g.last, &g.prefill_last })
        out->assign(r, kPoison);
      g.kv_indices.assign(size_t(PagesOf(g)), kPoison);
      g.block_table.assign(r * size_t(g.width), kPoison);
      g.prefill_table.assign(r * size_t(g.width), kPoison);
      prefill_tables.push_back(g.prefill_table.data());
      bound.push_back({ g.page_size, kReadTrash, kWriteTrash, g.pages_each == 1 ? 0 : g.Size(), kPages, g.table.data(), g.stride,
                        g.slots.data(), g.kv_indptr.data(), g.last.data() });
      on_demand.push_back({ g.kv_indices.data(), int64_t(g.kv_indices.size()), g.block_table.data(), g.width,
                            g.prefill_indptr.data(), g.prefill_last.data() });
    }
    m = CGR_METADATA_INIT;
    m.num_requests = int32_t(rows.size());
    m.padded_requests = padded_requests;
    m.padded_tokens = padded_tokens;
    m.max_rows = max_rows;
    m.max_seq_len = kMaxSeqLen;
    m.num_groups = int32_t(groups.size());
    m.rows = rows.data();
    m.query_lens = query_lens.data();
    m.row_computed = computed.data();
    m.row_last_tokens = last_tokens.data();
    m.groups = bound.data();
    m.input_ids = ids.data();
    m.positions = positions.data();
    m.query_start_loc = starts.data();
    m.seq_lens = lens.data();
    m.request_rows = request_rows.data();
    m.logits_indices = logits.data();
    m.on_demand = on_demand.data();
    m.kv_start_loc = kv_starts.data();
    m.context_lens = context.data();
    m.context_start_loc = context_starts.data();
    m.prefill_query_start_loc = prefill_starts.data();
    m.num_decodes = &num_decodes;
    m.reorder_threshold = threshold;
    m.uniform_split = uniform;
    m.prefill_seq_lens = prefill_lens.data();
    m.prefill_kv_start_loc = prefill_kv_starts.data();
    m.prefill_block_table = prefill_tables.data();
  }

  void ExpectRight() const {
    const size_t n = rows.size(), b = size_t(padded_requests);
    const size_t first = size_t(SplitOf(query_lens, threshold, uniform).decodes);
    EXPECT_EQ(num_decodes, int32_t(first));
    int32_t tokens = 0, before = 0;
    for (size_t i = 0; i <= b; i++) {
      ASSERT_EQ(kv_starts[i], tokens);
      ASSERT_EQ(context_starts[i], before);
      if (i < b) {
        ASSERT_EQ(context[i], i < n ? computed[size_t(rows[i])] : 0);
        before += context[i];
        tokens += context[i] + (i < n ? query_lens[i] : 0);
      }
      int32_t of_prefills = 0, kv_of_prefills = 0;
      for (size_t k = first; k < std::min(first + i, n); k++) {
        of_prefills += query_lens[k];
        kv_of_prefills += computed[size_t(rows[k])] + query_lens[k];
      }
      ASSERT_EQ(prefill_starts[i], of_prefills);
      ASSERT_EQ(prefill_kv_starts[i], kv_of_prefills);
      if (i < b) {
        ASSERT_EQ(prefill_lens[i], first + i < n ? computed[size_t(rows[first + i])] + query_lens[first + i] : 0);
      }
    }
    for (const Group &g : groups)
      ExpectGroup(g, first);
  }
  void ExpectGroup(const Group &g, size_t first) const {
    const size_t n = rows.size(), b = size_t(padded_requests), width = size_t(g.width);
    size_t at = 0;
    for (size_t i = 0; i < b; i++) {
      const int32_t length = i < n ? computed[size_t(rows[i])] + query_lens[i] : 0;
      for (size_t p = 0; p < width; p++) {
        const int32_t token = int32_t(p) * g.Size(); // the first of the page
        const bool own = token < length;
        const int32_t of_table = own ? g.table[size_t(rows[i]) * size_t(g.stride) + size_t(token / g.page_size)] : kReadTrash;
        const int32_t page = own ? (of_table * g.page_size + token % g.page_size) / g.Size() : kReadTrash * g.pages_each;
        ASSERT_EQ(g.block_table[i * width + p], page);
        if (own) {
          ASSERT_EQ(g.kv_indices[at++], page);
        }
      }
    }
    ASSERT_EQ(at, g.kv_indices.size());
    for (size_t j = 0; j <= b; j++) {
      ASSERT_EQ(g.prefill_indptr[j], g.kv_indptr[std::min(first + j, b)]);
      if (j < b) {
        ASSERT_EQ(g.prefill_last[j], first + j < b ? g.last[first + j] : 1);
        for (size_t p = 0; p < width; p++)
          ASSERT_EQ(g.prefill_table[j * width + p],
                    first + j < b ? g.block_table[(first + j) * width + p] : kReadTrash * g.pages_each);
      }
    }
  }
};

// Batches by hand, as a second check of the split.
TEST(MetadataOnDemand, SplitExamplesByHand) {
  for (const SplitExample &e : SplitExamples()) {
    Random random(4);
    Case c(random, int32_t(e.lens.size()), 1);
    c.query_lens = e.lens, c.threshold = e.threshold, c.uniform = e.uniform;
    c.padded_tokens = std::accumulate(e.lens.begin(), e.lens.end(), 1);
    c.Bind();
    const bool ordered = e.lens != Ints{ 4, 1 }; // the order is that of the threshold in either case
    if (e.threshold == 0) {
      c.m.prefill_query_start_loc = c.m.prefill_seq_lens = c.m.prefill_kv_start_loc = nullptr;
      c.m.prefill_block_table = nullptr, c.m.on_demand = nullptr;
    }
    EXPECT_EQ(cgr_metadata_build(&c.m), ordered ? CGR_OK : CGR_ERROR_INVALID_ARGUMENT) << cgr_last_message();
    EXPECT_EQ(c.num_decodes, ordered ? e.want.decodes : kPoison) << ::testing::PrintToString(e.lens);
  }
}

TEST(MetadataOnDemand, RandomBatches) {
  SeededRandom random;
  for (int round = 0; round < 400 && !HasFatalFailure(); round++) {
    Case c(random, round % 30, round % 5);
    ASSERT_EQ(cgr_metadata_build(&c.m), CGR_OK) << cgr_last_message();
    c.ExpectRight();
  }
}

// Outputs that are not wanted are not written, and the rest is as it was; an older caller's struct ends before all of them.
TEST(MetadataOnDemand, EachIsOptional) {
  Random random(3);
  Case all(random, 9, 2);
  ASSERT_EQ(cgr_metadata_build(&all.m), CGR_OK) << cgr_last_message();
  for (int which = 0; which < 15; which++) {
    Case c = all;
    c.num_decodes = kPoison;
    c.Bind();
    if (which == 11)
      c.m.size = uint32_t(offsetof(cgr_metadata, on_demand));
    int32_t **const of_batch[] = { &c.m.kv_start_loc, &c.m.context_lens, &c.m.context_start_loc, &c.m.prefill_query_start_loc,
                                   &c.m.num_decodes };
    if (which < 5)
      *of_batch[which] = nullptr;
    if (which == 12)
      c.m.prefill_seq_lens = nullptr;
    if (which == 13)
      c.m.prefill_kv_start_loc = nullptr;
    if (which == 14)
      c.prefill_tables[1] = nullptr;
    for (cgr_metadata_on_demand &d : c.on_demand) {
      int32_t **const of_group[] = { &d.kv_indices, &d.block_table, &d.prefill_kv_indptr, &d.prefill_kv_last_page_len };
      if (which >= 5 && which < 9)
        *of_group[which - 5] = nullptr;
    }
    if (which == 9)
      c.m.on_demand = nullptr, c.m.prefill_block_table = nullptr;
    ASSERT_EQ(cgr_metadata_build(&c.m), CGR_OK) << cgr_last_message();
    const bool none = which == 11, no_groups = none || which == 9;
    auto expect = [&](const Ints &got, const Ints &want, bool left) {
      EXPECT_EQ(got, left ? Ints(want.size(), kPoison) : want) << which;
    };
    expect(c.kv_starts, all.kv_starts, none || which == 0);
    expect(c.context, all.context, none || which == 1);
    expect(c.context_starts, all.context_starts, none || which == 2);
    expect(c.prefill_starts, all.prefill_starts, none || which == 3);
    EXPECT_EQ(c.num_decodes, none || which == 4 ? kPoison : all.num_decodes);
    expect(c.prefill_lens, all.prefill_lens, none || which == 12);
    expect(c.prefill_kv_starts, all.prefill_kv_starts, none || which == 13);
    for (size_t g = 0; g < 2; g++) {
      expect(c.groups[g].kv_indices, all.groups[g].kv_indices, no_groups || which == 5);
      expect(c.groups[g].block_table, all.groups[g].block_table, no_groups || which == 6);
      expect(c.groups[g].prefill_indptr, all.groups[g].prefill_indptr, no_groups || which == 7);
      expect(c.groups[g].prefill_last, all.groups[g].prefill_last, no_groups || which == 8);
      expect(c.groups[g].prefill_table, all.groups[g].prefill_table, no_groups || (which == 14 && g == 1));
    }
    expect(c.lens, all.lens, false);
  }
}

TEST(MetadataOnDemand, UnreadablePagesAreReportedAndReplaced) {
  Random random(5);
  for (int n = 0; n < 10; n++) {
    const int32_t bads[] = { -1, kPages, INT32_MAX, INT32_MIN, kWriteTrash }, bad = bads[n % 5];
    const bool is_prefill = n >= 5;
    Case c(random, 1, 1);
    while (c.groups[0].page_size > kMaxSeqLen / 2) // a row has two pages
      c = Case(random, 1, 1);
    const int32_t query = is_prefill ? c.threshold + 1 : 1;
    c.query_lens = { query };
    c.computed[size_t(c.rows[0])] = std::min(3 * c.groups[0].page_size, kMaxSeqLen - query);
    c.padded_tokens = query + 1;
    c.Bind();
    c.groups[0].table[size_t(c.rows[0]) * size_t(c.groups[0].stride) + 1] = bad; // not a page of a new token
    ExpectMessage(cgr_metadata_build(&c.m), CGR_ERROR_STEP,
                  { cgr_guard_error_name(CGR_GUARD_PAGE), "index 1", std::to_string(bad) });
    for (int32_t p = 0; p < c.groups[0].pages_each && p < c.PagesOf(c.groups[0]) - c.groups[0].pages_each; p++) {
      const size_t at = size_t(c.groups[0].pages_each + p);
      EXPECT_EQ(c.groups[0].kv_indices[at], kReadTrash * c.groups[0].pages_each + p);
      EXPECT_EQ(c.groups[0].block_table[at], kReadTrash * c.groups[0].pages_each + p);
      EXPECT_EQ(c.groups[0].prefill_table[at], kReadTrash * c.groups[0].pages_each + (is_prefill ? p : 0));
    }
  }
}

// A request that a guard refused has no pages, whatever its row.
TEST(MetadataOnDemand, RefusedRequestsAreEmpty) {
  Random random(6);
  Case c(random, 3, 1);
  c.query_lens = { 1, 1, 1 };
  c.padded_tokens = 3;
  c.Bind();
  c.rows[1] = INT32_MAX;
  EXPECT_EQ(cgr_metadata_build(&c.m), CGR_ERROR_STEP);
  EXPECT_EQ(c.context[1], 0);
  EXPECT_EQ(c.kv_starts[2], c.kv_starts[1]);
  for (int64_t p = 0; p < c.groups[0].width; p++)
    EXPECT_EQ(c.groups[0].block_table[size_t(c.groups[0].width + p)], kReadTrash * c.groups[0].pages_each);
}

struct MetadataOnDemandRefusals : ::testing::Test {
  Random random{ 2 };
  Case c{ random, 4, 2 };

  void Expect(cgr_status status, const Words &words) {
    ExpectMessage(cgr_metadata_build(&c.m), status, words);
    c.Bind();
    ASSERT_EQ(cgr_metadata_build(&c.m), CGR_OK) << cgr_last_message();
    c.ExpectRight();
  }
};

TEST_F(MetadataOnDemandRefusals, Room) {
  c.on_demand[1].max_kv_indices--;
  Expect(CGR_ERROR_INVALID_ARGUMENT, { "on_demand[1].max_kv_indices", std::to_string(c.PagesOf(c.groups[1])) });
  c.on_demand[0].max_kv_indices = -1;
  Expect(CGR_ERROR_INVALID_ARGUMENT, { "on_demand[0].max_kv_indices is -1" });
  for (bool of_prefills : { false, true }) {
    c.on_demand[1].block_table_stride = (kMaxSeqLen - 1) / c.groups[1].Size();
    (of_prefills ? c.on_demand[1].block_table : c.prefill_tables[1]) = nullptr;
    Expect(CGR_ERROR_INVALID_ARGUMENT, { "on_demand[1].block_table_stride" });
  }
  c.m.on_demand = nullptr;
  Expect(CGR_ERROR_NULL_POINTER, { "on_demand is NULL", "prefill_block_table" });
}

TEST_F(MetadataOnDemandRefusals, TrashPagesThatThePoolLacks) {
  const int32_t good = c.bound[1].read_trash_page;
  for (int32_t page : { -1, int32_t(c.bound[1].num_pages), INT32_MAX }) {
    c.bound[1].read_trash_page = page;
    ExpectMessage(cgr_metadata_build(&c.m), CGR_ERROR_INVALID_ARGUMENT,
                  { "groups[1].read_trash_page is " + std::to_string(page), "expected a page" });
  }
  c.bound[1].read_trash_page = good;
  EXPECT_EQ(cgr_metadata_build(&c.m), CGR_OK) << cgr_last_message();
}

TEST_F(MetadataOnDemandRefusals, Thresholds) {
  c.m.reorder_threshold = -1;
  Expect(CGR_ERROR_INVALID_ARGUMENT, { "reorder_threshold is -1" });
  c.uniform = false;
  c.Bind();
  c.m.reorder_threshold = 0;
  Expect(CGR_ERROR_INVALID_ARGUMENT, { "prefill_query_start_loc", "reorder_threshold is 0" });
  c.m.reorder_threshold = 0;
  c.m.prefill_query_start_loc = nullptr;
  Expect(CGR_ERROR_INVALID_ARGUMENT, { "prefill_seq_lens is given", "reorder_threshold is 0" });
  c.m.reorder_threshold = 0;
  c.m.prefill_query_start_loc = c.m.prefill_seq_lens = nullptr;
  Expect(CGR_ERROR_INVALID_ARGUMENT, { "prefill_kv_start_loc is given", "reorder_threshold is 0" });
  c.m.reorder_threshold = 0;
  c.m.prefill_query_start_loc = c.m.prefill_seq_lens = c.m.prefill_kv_start_loc = nullptr;
  Expect(CGR_ERROR_INVALID_ARGUMENT, { "prefill_block_table is given", "reorder_threshold is 0" });
  const auto without_outputs_of_prefills = [&] {
    c.m.reorder_threshold = 0;
    c.m.prefill_query_start_loc = c.m.prefill_seq_lens = c.m.prefill_kv_start_loc = nullptr;
    c.m.prefill_block_table = nullptr;
  };
  without_outputs_of_prefills();
  Expect(CGR_ERROR_INVALID_ARGUMENT, { "on_demand[0].prefill_kv_indptr", "reorder_threshold is 0" });
  without_outputs_of_prefills();
  c.on_demand[0].prefill_kv_indptr = c.on_demand[1].prefill_kv_indptr = nullptr;
  Expect(CGR_ERROR_INVALID_ARGUMENT, { "on_demand[0].prefill_kv_last_page_len", "reorder_threshold is 0" });
  for (int32_t bad : { -1, 2 }) {
    c.m.uniform_split = bad;
    Expect(CGR_ERROR_INVALID_ARGUMENT, { "uniform_split is " + std::to_string(bad) + ", expected 0 or 1" });
  }
  c.m.reorder_threshold = 0, c.m.uniform_split = 1;
  Expect(CGR_ERROR_INVALID_ARGUMENT, { "uniform_split is 1 and reorder_threshold is 0" });
}

TEST_F(MetadataOnDemandRefusals, DecodesAfterPrefills) {
  c.query_lens = { 1, 9, 0, 1 };
  c.threshold = 1;
  c.padded_tokens = 11;
  c.Bind();
  ExpectMessage(cgr_metadata_build(&c.m), CGR_ERROR_INVALID_ARGUMENT,
                { "query_lens[3] is 1", "9 of request 1", "decodes first" });
  c.query_lens = { 1, 9, 0, 2 };
  c.padded_tokens = 12;
  c.Bind();
  EXPECT_EQ(cgr_metadata_build(&c.m), CGR_OK) << cgr_last_message();
  c.ExpectRight();
}

TEST_F(MetadataOnDemandRefusals, SumsOfTokensBeyond32Bits) {
  std::fill(c.computed.begin(), c.computed.end(), 1 << 29);
  c.m.max_seq_len = INT32_MAX;
  c.m.num_groups = 0;
  for (int which : { 0, 1, 2 }) {
    c.m.kv_start_loc = which == 0 ? c.kv_starts.data() : nullptr;
    c.m.context_start_loc = which == 1 ? c.context_starts.data() : nullptr;
    c.m.prefill_kv_start_loc = which == 2 ? c.prefill_kv_starts.data() : nullptr;
    ExpectMessage(cgr_metadata_build(&c.m), CGR_ERROR_INVALID_ARGUMENT, { "tokens", "2147483647", "kv_start_loc" });
  }
  c.m.prefill_kv_start_loc = nullptr;
  EXPECT_EQ(cgr_metadata_build(&c.m), CGR_OK) << cgr_last_message();
}

} // namespace
