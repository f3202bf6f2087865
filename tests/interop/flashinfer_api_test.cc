// What FlashInfer's plans refuse, and the messages.
#include <cstddef>

#include "tests/support/expect.h"
#include "tests/support/flashinfer_case.h"

namespace cgr_test {
namespace {

FlashInferCase GoodDecode() {
  FlashInferCase c;
  c.d.num_requests = 3;
  c.d.num_q_heads = 8;
  c.d.num_kv_heads = 2;
  c.d.head_dim = 128;
  c.d.page_size = 16;
  c.d.num_multiprocessors = 132;
  c.d.blocks_per_multiprocessor = 9;
  c.kv = { 5, 6, 6, 400 };
  return c;
}

FlashInferCase GoodPrefill() {
  FlashInferCase c;
  c.decode = false;
  c.p.num_requests = 3;
  c.p.total_num_rows = 30;
  c.p.num_q_heads = 8;
  c.p.num_kv_heads = 2;
  c.p.head_dim_qk = c.p.head_dim_vo = 128;
  c.p.page_size = 16;
  c.p.num_multiprocessors = 132;
  c.qo = { 0, 10, 10, 30 };
  c.kv = { 5, 6, 6, 400 };
  return c;
}

// Both calls refuse it, and nothing is written.
void ExpectRefused(FlashInferCase c, const Words &words, cgr_status status = CGR_ERROR_INVALID_ARGUMENT, bool size_too = true) {
  c.Bind();
  cgr_flashinfer_plan plan = CGR_FLASHINFER_PLAN_INIT, untouched = plan;
  FlashInferWorkspace workspace(1 << 16);
  if (size_too)
    ExpectMessage(c.Size(&plan), status, words);
  ExpectMessage(c.Build(workspace.data(), workspace.size(), &plan), status, words);
  EXPECT_EQ(std::memcmp(&plan, &untouched, sizeof plan), 0);
  EXPECT_EQ(workspace.Get(), std::vector<unsigned char>(workspace.size(), 0xA5));
}

void ExpectBuilt(FlashInferCase c) {
  c.Bind();
  cgr_flashinfer_plan plan = CGR_FLASHINFER_PLAN_INIT;
  CGR_ASSERT_OK(c.Size(&plan));
  FlashInferWorkspace workspace(size_t(plan.int_bytes));
  CGR_EXPECT_OK(c.Build(workspace.data(), workspace.size(), nullptr));
}

template <class Input> struct Field {
  const char *name;
  int32_t Input::*field;
  int64_t low, high;
};

template <class Input> void ExpectRange(const FlashInferCase &good, Input FlashInferCase::*input, const Field<Input> &f) {
  for (int64_t value : { f.low - 1, f.high + 1, int64_t{ INT32_MIN } }) {
    if (value < INT32_MIN || value > INT32_MAX)
      continue;
    FlashInferCase c = good;
    (c.*input).*f.field = int32_t(value);
    ExpectRefused(c, { std::string(f.name) + " is " + std::to_string(value) + ",",
                       "expected " + std::to_string(f.low) + " .. " + std::to_string(f.high) });
  }
}

TEST(FlashInferApi, NumbersOutOfRangeAreRefused) {
  using D = cgr_flashinfer_decode_input;
  using P = cgr_flashinfer_prefill_input;
  const Field<D> of_decode[] = {
    { "num_requests", &D::num_requests, 1, 4096 },
    { "num_q_heads", &D::num_q_heads, 1, 1024 },
    { "num_kv_heads", &D::num_kv_heads, 1, 1024 },
    { "head_dim", &D::head_dim, 1, 65536 },
    { "page_size", &D::page_size, 1, 65536 },
    { "num_multiprocessors", &D::num_multiprocessors, 1, 4096 },
    { "blocks_per_multiprocessor", &D::blocks_per_multiprocessor, 1, 64 },
  };
  for (const Field<D> &f : of_decode)
    ExpectRange(GoodDecode(), &FlashInferCase::d, f);
  const Field<P> of_prefill[] = {
    { "num_requests", &P::num_requests, 1, 4096 },
    { "total_num_rows", &P::total_num_rows, 0, 1 << 24 },
    { "num_q_heads", &P::num_q_heads, 1, 1024 },
    { "num_kv_heads", &P::num_kv_heads, 1, 1024 },
    { "head_dim_qk", &P::head_dim_qk, 1, 65536 },
    { "head_dim_vo", &P::head_dim_vo, 1, 65536 },
    { "page_size", &P::page_size, 1, 65536 },
    { "kv_dtype_bytes", &P::kv_dtype_bytes, 0, 4 },
    { "window", &P::window, 0, INT32_MAX },
    { "num_colocated_ctas", &P::num_colocated_ctas, 0, INT32_MAX },
    { "uniform_q_len", &P::uniform_q_len, 0, 0 }, // without a graph
    { "num_multiprocessors", &P::num_multiprocessors, 1, 4096 },
    { "compute_capability", &P::compute_capability, 0, 9999 },
    { "shared_memory", &P::shared_memory, 0, INT32_MAX },
    { "fixed_split_size", &P::fixed_split_size, 0, INT32_MAX / 16 },
  };
  for (const Field<P> &f : of_prefill)
    ExpectRange(GoodPrefill(), &FlashInferCase::p, f);
  FlashInferCase c = GoodPrefill();
  c.p.graph = 1;
  ExpectRange(c, &FlashInferCase::p, { "uniform_q_len", &P::uniform_q_len, 0, 1 << 24 });
}

TEST(FlashInferApi, HeadsAndReservedFieldsAreChecked) {
  FlashInferCase d = GoodDecode(), p = GoodPrefill();
  d.d.num_q_heads = p.p.num_q_heads = 7;
  ExpectRefused(d, { "cgr_flashinfer_decode_", "num_q_heads is 7, expected a multiple of num_kv_heads (2)" });
  ExpectRefused(p, { "cgr_flashinfer_prefill_", "num_q_heads is 7, expected a multiple of num_kv_heads (2)" });
  d = GoodDecode(), p = GoodPrefill();
  d.d.reserved = p.p.reserved = 1;
  ExpectRefused(d, { "reserved" }, CGR_ERROR_NEWER_STRUCT);
  ExpectRefused(p, { "reserved" }, CGR_ERROR_NEWER_STRUCT);
}

TEST(FlashInferApi, LayoutsThatAreNoneAreRefused) {
  for (int32_t layout : { -1, 2, INT32_MAX, INT32_MIN }) {
    FlashInferCase c = GoodPrefill();
    c.p.layout = layout;
    ExpectRefused(c,
                  { "cgr_flashinfer_prefill_",
                    "layout is " + std::to_string(layout) + ", expected 0 .. 1, a cgr_flashinfer_layout (0 v0.6.18, 1 v0.7.1)" },
                  CGR_ERROR_INVALID_ENUM);
  }
}

// FlashInfer's kernel would leave out keys after a query's own, wherever it splits KV: here 32 of 77 rows see 745 of 781 keys,
// and a plan for causal kernels has one chunk of 736.
TEST(FlashInferApi, AWindowWithoutAMaskIsRefusedUnlessNothingIsSplit) {
  for (int32_t layout : { CGR_FLASHINFER_V0_6_18, CGR_FLASHINFER_V0_7_1 })
    for (int32_t graph : { 0, 1 })
      for (int32_t fixed : { 0, 5 }) {
        FlashInferCase c = GoodPrefill();
        c.p.num_requests = 1;
        c.p.total_num_rows = 77;
        c.qo = { 0, 77 };
        c.kv = { 0, 49 };
        c.p.layout = layout, c.p.graph = graph, c.p.fixed_split_size = fixed;
        c.p.unmasked = 1;
        ExpectBuilt(c);
        for (int32_t window : { 1, 669, INT32_MAX }) {
          c.p.window = window;
          ExpectRefused(c,
                        { "cgr_flashinfer_prefill_",
                          "window is " + std::to_string(window) + " with unmasked, expected 0, or disable_split_kv" },
                        CGR_ERROR_UNSUPPORTED);
        }
        c.p.disable_split_kv = 1;
        ExpectBuilt(c);
        c.p.disable_split_kv = c.p.unmasked = 0;
        ExpectBuilt(c);
      }
}

// The struct ended before there was a choice.
TEST(FlashInferApi, OlderCallersGetTheOlderLayout) {
  ForSeeds(300, [&](Random &random) {
    FlashInferCase c = RandomPrefill(random, true), older = c;
    c.p.force_split_kv = 1;
    c.p.layout = c.p.unmasked = 0;
    older.p = c.p;
    older.p.size = offsetof(cgr_flashinfer_prefill_input, layout);
    older.p.layout = older.p.unmasked = -1; // not there
    c.Bind(), older.Bind();
    cgr_flashinfer_plan plan = CGR_FLASHINFER_PLAN_INIT, same = plan;
    CGR_ASSERT_OK(c.Size(&plan));
    CGR_ASSERT_OK(older.Size(&same));
    ASSERT_EQ(std::memcmp(&plan, &same, sizeof plan), 0);
    FlashInferWorkspace a(size_t(plan.int_bytes)), b(size_t(plan.int_bytes));
    const cgr_status status = c.Build(a.data(), a.size(), nullptr);
    ASSERT_EQ(older.Build(b.data(), b.size(), nullptr), status); // too many tiles of a fixed size, say
    ASSERT_EQ(a.Get(), b.Get());
  });
}

TEST(FlashInferApi, NullIsRefused) {
  FlashInferCase d = GoodDecode(), p = GoodPrefill();
  d.Bind();
  p.Bind();
  cgr_flashinfer_plan plan = CGR_FLASHINFER_PLAN_INIT;
  FlashInferWorkspace workspace(1 << 14);
  ExpectMessage(cgr_flashinfer_decode_size(nullptr, &plan), CGR_ERROR_NULL_POINTER,
                { "cgr_flashinfer_decode_size: input is NULL" });
  ExpectMessage(cgr_flashinfer_prefill_size(nullptr, &plan), CGR_ERROR_NULL_POINTER,
                { "cgr_flashinfer_prefill_size: input is NULL" });
  ExpectMessage(cgr_flashinfer_decode_size(&d.d, nullptr), CGR_ERROR_NULL_POINTER,
                { "cgr_flashinfer_decode_size: plan is NULL" });
  ExpectMessage(cgr_flashinfer_prefill_size(&p.p, nullptr), CGR_ERROR_NULL_POINTER,
                { "cgr_flashinfer_prefill_size: plan is NULL" });
  ExpectMessage(cgr_flashinfer_decode_build(nullptr, workspace.data(), workspace.size(), &plan), CGR_ERROR_NULL_POINTER,
                { "cgr_flashinfer_decode_build: input is NULL" });
  ExpectMessage(cgr_flashinfer_prefill_build(nullptr, workspace.data(), workspace.size(), &plan), CGR_ERROR_NULL_POINTER,
                { "cgr_flashinfer_prefill_build: input is NULL" });
  ExpectMessage(d.Build(nullptr, workspace.size(), &plan), CGR_ERROR_NULL_POINTER,
                { "cgr_flashinfer_decode_build: int_workspace is NULL" });
  ExpectMessage(p.Build(nullptr, workspace.size(), &plan), CGR_ERROR_NULL_POINTER,
                { "cgr_flashinfer_prefill_build: int_workspace is NULL" });
  d.d.kv_indptr = p.p.kv_indptr = nullptr;
  for (const FlashInferCase *c : { &d, &p }) {
    ExpectMessage(c->Size(&plan), CGR_ERROR_NULL_POINTER, { "kv_indptr is NULL, expected 4 numbers" });
    ExpectMessage(c->Build(workspace.data(), workspace.size(), &plan), CGR_ERROR_NULL_POINTER, { "kv_indptr is NULL" });
  }
}

TEST(FlashInferApi, LengthsThatMakeNoSenseAreRefused) {
  for (bool graph : { false, true }) {
    FlashInferCase d = GoodDecode(), p = GoodPrefill();
    d.d.graph = p.p.graph = graph;
    const FlashInferCase good = p;
    d.kv[0] = -1;
    ExpectRefused(d, { "cgr_flashinfer_decode_", "kv_indptr[0] is -1, expected at least 0" }, CGR_ERROR_INVALID_ARGUMENT, !graph);
    d.kv[0] = 7;
    ExpectRefused(d, { "kv_indptr[1] is 6, expected 7 (kv_indptr[0]) .. " }, CGR_ERROR_INVALID_ARGUMENT, !graph);
    d.kv = { 0, 0, 0, INT32_MAX / 16 + 1 };
    ExpectRefused(d, { "kv_indptr[3] is 134217728, expected 0 (kv_indptr[2]) .. 134217727" }, CGR_ERROR_INVALID_ARGUMENT, !graph);
    p.qo[0] = 1;
    ExpectRefused(p, { "cgr_flashinfer_prefill_", "qo_indptr[0] is 1, expected 0" }, CGR_ERROR_INVALID_ARGUMENT, !graph);
    p.qo = { 0, 10, 9, 30 };
    ExpectRefused(p, { "qo_indptr[2] is 9, expected 10 (qo_indptr[1]) .. 30 (total_num_rows)" }, CGR_ERROR_INVALID_ARGUMENT,
                  !graph);
    p.qo = { 0, 10, 10, 31 };
    ExpectRefused(p, { "qo_indptr[3] is 31, expected 10 (qo_indptr[2]) .. 30 (total_num_rows)" }, CGR_ERROR_INVALID_ARGUMENT,
                  !graph);
    p = good;
    p.kv[2] = 5;
    ExpectRefused(p, { "kv_indptr[2] is 5, expected 6 (kv_indptr[1])" }, CGR_ERROR_INVALID_ARGUMENT, !graph);
    p.live = { 1 }; // the others are not read
    ExpectBuilt(p);
  }
  FlashInferCase c = GoodPrefill();
  c.p.graph = 1;
  c.p.uniform_q_len = 10;
  c.qo = { 0, 10, 10, 20 };
  ExpectBuilt(c);
  c.qo[3] = 19;
  ExpectRefused(c, { "qo_indptr[3] is 19, ", "and 10 rows (uniform_q_len) or none" }, CGR_ERROR_INVALID_ARGUMENT, false);
}

// 4096 requests of 2^24 rows and pages of one token, each a chunk.
TEST(FlashInferApi, TilesFitIn32Bits) {
  FlashInferCase c = GoodPrefill();
  c.p.num_requests = 1;
  c.p.total_num_rows = 1 << 24;
  c.p.page_size = c.p.fixed_split_size = 1;
  c.qo = { 0, 1 << 24 };
  c.kv = { 0, INT32_MAX };
  ExpectRefused(c, { "the lengths make ", "expected at most 2147483647" });
  c.p.graph = 1;
  c.p.num_q_heads = 1024;
  ExpectRefused(c, { "num_requests, total_num_rows and num_q_heads make 67108864 tiles of 128 rows" });
}

TEST(FlashInferApi, RowsOfAGraphAreNotTooFew) {
  FlashInferCase c = GoodPrefill();
  c.p.graph = 1;
  c.qo = { 0, 1, 1, 1 };
  c.p.total_num_rows = 1;
  ExpectRefused(c, { "total_num_rows is 1, expected at least 2 (num_requests - 1)" });
  c.p.total_num_rows = 2;
  ExpectBuilt(c);
  c.qo.clear();
  ExpectRefused(c, { "total_num_rows is 2, expected at least 3: 1 for each request" });
  c.p.uniform_q_len = 4;
  ExpectRefused(c, { "total_num_rows is 2, expected at least 12: 4 for each request" });
  c.p.total_num_rows = 12;
  ExpectBuilt(c);
}

TEST(FlashInferApi, WorkspacesThatAreTooSmallOrNotAlignedAreRefused) {
  FlashInferCase newer = GoodPrefill();
  newer.p.layout = CGR_FLASHINFER_V0_7_1;
  for (FlashInferCase c : { GoodDecode(), GoodPrefill(), newer }) {
    for (int32_t graph : { 0, 1 }) {
      c.d.graph = c.p.graph = graph;
      c.d.float_workspace_bytes = c.p.float_workspace_bytes = 0;
      c.Bind();
      cgr_flashinfer_plan plan = CGR_FLASHINFER_PLAN_INIT;
      CGR_ASSERT_OK(c.Size(&plan));
      FlashInferWorkspace workspace(size_t(plan.int_bytes));
      for (size_t bytes : { size_t{ 0 }, size_t{ 1 }, workspace.size() - 1 })
        ExpectMessage(c.Build(workspace.data(), bytes, nullptr), CGR_ERROR_INVALID_ARGUMENT,
                      { "int_bytes is " + std::to_string(bytes) + ",", "at least " + std::to_string(plan.int_bytes) });
      ExpectMessage(c.Build(workspace.data() + 8, workspace.size(), nullptr), CGR_ERROR_INVALID_ARGUMENT,
                    { "int_workspace is ", "a multiple of 16" });
      ASSERT_GT(plan.float_bytes, 0u);
      c.d.float_workspace_bytes = c.p.float_workspace_bytes = plan.float_bytes - 1;
      ExpectRefused(c, { "float_workspace_bytes is " + std::to_string(plan.float_bytes - 1) + ",",
                         "at least " + std::to_string(plan.float_bytes) });
      EXPECT_EQ(workspace.Get(), std::vector<unsigned char>(workspace.size(), 0xA5));
      c.d.float_workspace_bytes = c.p.float_workspace_bytes = plan.float_bytes;
      CGR_EXPECT_OK(c.Build(workspace.data(), workspace.size() + 100, nullptr));
    }
  }
}

} // namespace
} // namespace cgr_test
