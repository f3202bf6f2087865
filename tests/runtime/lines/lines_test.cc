// A step that changes nothing touches few lines of the library's own memory: in a loop of milliseconds each of them is a miss.
// The lines that prepare and launch of unchanged batches touch are counted and named by what is there. One is the step's
// record, which is prefetched early. It is the only line that statistics and flight recorder cost a step. Where no call waits for
// a step, one in CGR__FOLD_EVERY counts that many records and touches all of their lines and the sums of their keys.
#include <sched.h>

#include <cstdio>
#include <map>
#include <string>
#include <vector>

extern "C" {
#include "requests/schedule.h"
#include "runtime/runtime.h"
}

#include "tests/runtime/lines/record.h"
#include "tests/support/expect.h"
#include "tests/support/one_layer.h"

namespace cgr_test {
namespace {

constexpr int32_t kRows = 256, kPages = 2 + 2 * kRows, kDim = 64;

class Lines : public ::testing::Test {
protected:
  void SetUp() override {
    if (!lines_can_record())
      GTEST_SKIP() << "the thread sanitizer sees the accesses itself";
#if defined(__SANITIZE_ADDRESS__)
    GTEST_SKIP() << "the address sanitizer keeps the caller's variables on the heap";
#endif
    CGR_ASSERT_OK(cgr_device_open("host", nullptr, &dev_));
    CGR_ASSERT_OK(cgr_stream_create(dev_, &stream_));
    for (void *&m : memory_)
      CGR_ASSERT_OK(cgr_memory_alloc(dev_, size_t(kPages) * 16 * kDim * 4, &m));
    MakeRuntime();
    for (int32_t i = 0; i < kRows; i++) {
      int32_t row = -1;
      const int32_t pages[] = { 2 + 2 * i, 3 + 2 * i };
      CGR_ASSERT_OK(cgr_request_open(rt_, uint64_t(i), &row));
      CGR_ASSERT_OK(cgr_request_set_pages(rt_, row, 0, 0, pages, 2));
      rows_.push_back(row);
    }
  }
  void MakeRuntime() {
    cgr_group group = CGR_GROUP_INIT;
    group.num_pages = kPages;
    cgr_layer layer = CGR_LAYER_INIT;
    layer.num_q_heads = layer.num_kv_heads = 1, layer.head_dim = kDim;
    CGR_ASSERT_OK(cgr_kv_view_make(CGR_LAYOUT_NHD, memory_[0], CGR_DTYPE_FP32, 16, 1, kDim, &layer.k));
    CGR_ASSERT_OK(cgr_kv_view_make(CGR_LAYOUT_NHD, memory_[1], CGR_DTYPE_FP32, 16, 1, kDim, &layer.v));
    cgr_config config = CGR_CONFIG_INIT;
    config.device_handle = dev_, config.groups = &group, config.num_groups = 1, config.layers = &layer;
    config.num_layers = 1, config.max_requests = config.max_tokens = kRows, config.max_seq_len = 32;
    config.graph_mode = CGR_MODE_FULL_DECODE_ONLY;
    CGR_ASSERT_OK(cgr_runtime_create(&config, &rt_));
    cgr_capture capture = CaptureOf(RecordOneLayer<kDim>, memory_[2]);
    CGR_ASSERT_OK(cgr_runtime_capture(rt_, &capture));
  }
  void TearDown() override {
    if (!dev_)
      return;
    CGR_EXPECT_OK(cgr_runtime_destroy(rt_));
    CGR_EXPECT_OK(cgr_stream_destroy(dev_, stream_));
    for (void *m : memory_)
      CGR_EXPECT_OK(cgr_memory_free(dev_, m));
    CGR_EXPECT_OK(cgr_device_close(dev_));
  }
  // Where it is; "" for the caller's memory and the stack.
  std::string NameOf(uintptr_t line) const {
    const uintptr_t at = line * LINES_BYTES, end = at + LINES_BYTES;
    const auto within = [&](const void *base, size_t bytes) { return end > uintptr_t(base) && at < uintptr_t(base) + bytes; };
    const cgr__lane_batches &b = rt_->lane.batches;
    const struct {
      const char *name;
      const void *base;
      size_t bytes;
    } parts[] = { { "runtime: handle and recorder", rt_, offsetof(struct cgr_runtime, lane) },
                  { "runtime: lane", &rt_->lane, offsetof(cgr__lane, batches) },
                  { "runtime: members", &b.members, sizeof b.members },
                  { "runtime: other batches", &b, offsetof(cgr__lane_batches, members) },
                  { "runtime: rows and regions' epoch", &rt_->rows, offsetof(cgr__rows, limits) },
                  { "runtime: graphs", &rt_->graphs, sizeof rt_->graphs },
                  { "runtime: regions", &rt_->regions, sizeof rt_->regions },
                  { "runtime: elsewhere", rt_, sizeof *rt_ } };
    for (const auto &part : parts)
      if (within(part.base, part.bytes))
        return part.name;
    const cgr__rows &r = rt_->rows;
    const cgr__batch_layouts &c = b.layouts;
    const int32_t depth = int32_t(rt_->lane.ring.depth);
    if (within(b.members.schedule, CGR__SCHEDULE_STEPS * sizeof *b.members.schedule))
      return "schedule";
    if (within(rt_->flight.ring, (size_t(rt_->flight.mask) + 1) * sizeof *rt_->flight.ring))
      return "record";
    if (within(r.row, sizeof *r.row * kRows))
      return "rows";
    if (within(c.all, cgr__batch_layouts_bytes(kRows, depth)))
      return within(c.all, sizeof *c.all * size_t(depth + CGR__SPARE_BATCH_LAYOUTS)) ? "batch layouts"
             : within(c.of_seq, sizeof *c.of_seq * size_t(depth))                    ? "batch layouts of steps"
                                                                                     : "arrays of a batch layout";
    if (within(rt_->graphs.entry, sizeof *rt_->graphs.entry * size_t(rt_->graphs.count)))
      return "graph entry";
    if (within(rt_->host_block, cgr__setup_host_bytes(&rt_->setup)))
      return "other tables";
    if (within(rt_->lane.ring.completion, sizeof *rt_->lane.ring.completion))
      return "completion";
    if (within(rt_->pinned, rt_->layout.pinned_bytes))
      return "slot";
    if (within(dev_, sizeof *dev_))
      return "device";
    if (within(rows_.data(), rows_.size() * sizeof rows_[0]))
      return "";
    const char on_stack = 0;
    const uintptr_t stack = uintptr_t(&on_stack);
    return at + 65536 > stack && at < stack + 65536 ? "" : "elsewhere";
  }
  // Steps of the same batch, the last of which is counted; `folds`: it is the one that counts records, else none of them is.
  void Count(cgr_batch batch, size_t most, bool folds = false) {
    const std::vector<int32_t> first(size_t(kRows), 7);
    const uintptr_t *lines = nullptr;
    size_t count = 0;
    batch.tokens = batch.num_requests == CGR_BATCH_STANDING ? nullptr : first.data();
    for (uint64_t i = 0, steps = folds ? CGR__FOLD_EVERY - rt_->flight.count : 8; i < steps; i++) {
      cgr_step step = CGR_STEP_INIT;
      cgr_step_result result = CGR_STEP_RESULT_INIT;
      for (int32_t r = 0; folds && i % 20 == 0 && r < batch.num_requests; r++) { // before they grow too long
        CGR_ASSERT_OK(cgr_request_set_length(rt_, rows_[size_t(r)], 0));
        batch.tokens = first.data();
      }
      lines_begin();
      CGR_ASSERT_OK(cgr_step_prepare(rt_, &batch, &step));
      CGR_ASSERT_OK(cgr_step_launch(rt_, &step, stream_));
      count = lines_end(&lines);
      ASSERT_EQ(step.key.kind, CGR_KIND_FULL);
      while (Completed(rt_) < step.mark.seq) // a wait would count records
        sched_yield();
      CGR_ASSERT_OK(cgr_step_wait(rt_, step.mark, -1, &result));
      batch.tokens = nullptr;
    }
    std::map<std::string, int> named;
    size_t ours = 0;
    for (size_t i = 0; i < count; i++)
      if (const std::string name = NameOf(lines[i]); !name.empty()) {
        ours++;
        named[name]++;
      }
    for (const auto &[name, n] : named)
      printf("%4d  %s\n", n, name.c_str());
    printf("%4zu  lines of the library's own memory\n", ours);
    EXPECT_EQ(rt_->statistics.folded, folds ? CGR__FOLD_EVERY : 0u);
    EXPECT_EQ(named["record"], folds ? CGR__FOLD_EVERY : 1);
    EXPECT_LE(ours, most);
    EXPECT_GE(ours, most - (folds ? 12 : 4)) << "is the library traced that is linked? or the limit is too high now";
  }

  cgr_device *dev_ = nullptr;
  cudaStream_t stream_ = nullptr;
  cgr_runtime *rt_ = nullptr;
  void *memory_[3] = {}; // K, V, activations
  std::vector<int32_t> rows_;
};

// 17 with gcc 12. gcc 14 also reads the lane's fifth line, in which the layout of a ring slot ends.
TEST_F(Lines, OfAWholeBatchThatRepeats) {
  cgr_batch batch = BatchOf(8, rows_.data());
  Count(batch, 18);
}

// In the sums of one key the histograms have a line for each bucket that was hit, and which those are depends on the host.
TEST_F(Lines, OfTheStepThatCountsTheRecords) {
  cgr_batch batch = BatchOf(8, rows_.data());
  Count(batch, 17 + CGR__FOLD_EVERY - 1 + 20, true);
}

TEST_F(Lines, OfTheStandingBatch) {
  cgr_batch batch = CGR_BATCH_INIT;
  const int32_t token = 7;
  for (int32_t row : rows_)
    CGR_ASSERT_OK(cgr_standing_add(rt_, nullptr, row, 1, &token, 0));
  batch.num_requests = CGR_BATCH_STANDING;
  Count(batch, 19);
}

} // namespace
} // namespace cgr_test
