// Attention over pages against fp64, and its independence of everything that is not the request's own.
#include <gtest/gtest.h>

#include <sys/mman.h>

#include "tests/support/attention_case.h"

namespace cgr_test {
namespace {

class KernelAttention : public ::testing::TestWithParam<DeviceParam> {
protected:
  void SetUp() override {
    cgr_device *dev = nullptr;
    CGR_OPEN_OR_SKIP(dev, GetParam());
    ASSERT_EQ(dev->ops->preload(dev, &cgr__kernel_attention), CGR__DEVICE_OK);
    bench_ = std::make_unique<Bench>(dev);
  }
  // The dtype and head dim that every device has, for tests of structure.
  cgr_dtype Dtype() const { return bench_->is_cuda() ? CGR_DTYPE_BF16 : CGR_DTYPE_FP32; }

  void Check(const AttentionShape &shape, const AttentionBatch &batch, uint64_t seed, Poison poison = Poison::kNan) {
    if (!Supports(*bench_, shape.dtype, shape.head_dim))
      return;
    AttentionCase made(shape, batch, seed);
    SCOPED_TRACE("seed " + std::to_string(seed) + " dtype " + std::to_string(shape.dtype) + " heads " +
                 std::to_string(shape.num_q_heads) + "/" + std::to_string(shape.num_kv_heads) + "x" +
                 std::to_string(shape.head_dim) + " page " + std::to_string(shape.page_size) + " parts " +
                 std::to_string(shape.num_parts) + " tile_q " + std::to_string(made.shape().tile_q));
    Pool pool(*bench_, made);
    pool.Fill(made, poison);
    AttentionRun run(*bench_, made, pool);
    AttentionOutput output = run.Run();
    ASSERT_EQ(output.error.error, CGR_STEP_OK);
    ExpectAttention(made, output);
    cases_++;
  }

  std::unique_ptr<Bench> bench_;
  int cases_ = 0;
};

TEST_P(KernelAttention, DecodeAtEveryEdge) {
  for (int32_t page_size : { 16, 32, 64 }) {
    AttentionShape shape;
    shape.dtype = Dtype();
    shape.page_size = page_size;
    AttentionBatch batch;
    for (int32_t length : { 1, 2, page_size - 1, page_size, page_size + 1, 63, 64, 65, 127, 128, 129, 300 }) {
      batch.query_lens.push_back(1);
      batch.seq_lens.push_back(length);
    }
    for (int32_t parts : { 1, 5, 132 }) {
      shape.num_parts = parts;
      Check(shape, batch, 1);
    }
  }
}

TEST_P(KernelAttention, EveryDtypeAndHeadDim) {
  for (cgr_dtype dtype : { CGR_DTYPE_FP32, CGR_DTYPE_BF16, CGR_DTYPE_FP16 }) {
    for (int32_t head_dim : { 8, 24, 64, 80, 128, 256 }) {
      AttentionShape shape;
      shape.dtype = dtype;
      shape.head_dim = head_dim;
      Check(shape, { { 1, 20, 1, 3 }, { 1, 150, 200, 64 }, 5, 2 }, 2);
    }
  }
}

TEST_P(KernelAttention, EveryGroup) {
  for (int32_t group : { 1, 2, 3, 4, 5, 7, 8, 12, 16, 31, 64, 71 }) {
    AttentionShape shape;
    shape.dtype = Dtype();
    shape.num_q_heads = 2 * group;
    for (int32_t parts : { 3, 40 }) {
      shape.num_parts = parts;
      Check(shape, { { 1, 9, 1 }, { 130, 100, 5 }, 3, 1 }, 3);
    }
  }
}

// One plan serves layers of several groups: its tile is the one of the widest, and smaller than what the others could have.
TEST_P(KernelAttention, EveryTile) {
  for (int32_t group : { 1, 4, 8 }) {
    for (int32_t tile_q = 1; tile_q <= cgr__attention_tile_q(group); tile_q *= 2) {
      AttentionShape shape;
      shape.dtype = Dtype();
      shape.num_q_heads = 2 * group;
      shape.tile_q = tile_q;
      shape.num_parts = 11;
      if (group == 1)
        Check(shape, { { 65, 1, 70, 3 }, { 65, 129, 200, 300 }, 1, 0 }, 4);
      else
        Check(shape, { { 33, 1, 18, 3 }, { 33, 129, 100, 200 }, 1, 0 }, 4);
    }
  }
}

TEST_P(KernelAttention, EveryLayout) {
  for (const CacheLayouts &layouts : EveryCacheLayout()) {
    for (int32_t page_size : { 16, 64 }) {
      AttentionShape shape;
      shape.dtype = Dtype();
      shape.layouts = layouts;
      shape.page_size = page_size;
      shape.q_padding = { 8, 32 };
      shape.out_padding = { 16, 8 };
      Check(shape, { { 1, 30, 1 }, { 77, 90, 33 }, 4, 4 }, 5);
      std::swap(shape.q_padding, shape.out_padding);
      shape.out_padding.head = 0;
      Check(shape, { { 1, 3 }, { 77, 90 }, 1, 1 }, 5);
    }
  }
}

TEST_P(KernelAttention, EveryScale) {
  for (float scale : { 0.01f, 0.05f, 0.125f, 0.25f, 1.0f / 64.0f }) {
    AttentionShape shape;
    shape.dtype = Dtype();
    shape.scale = scale;
    Check(shape, { { 1, 20, 1 }, { 200, 90, 1 }, 1, 0 }, 15);
  }
}

TEST_P(KernelAttention, EmptyRequests) {
  AttentionShape shape;
  shape.dtype = Dtype();
  Check(shape, { {}, {}, 9, 3 }, 6);
  Check(shape, { { 0 }, { 0 }, 1, 0 }, 6);
  Check(shape, { { 0, 1, 0, 5, 0 }, { 0, 70, 40, 5, 0 }, 4, 4 }, 6);
  // Refused by a guard: tokens, but no length.
  Check(shape, { { 3, 1, 70, 2 }, { 0, 100, 0, 2 }, 4, 4 }, 6);
  Check(shape, { { 3 }, { 0 }, 0, 0 }, 6);
}

TEST_P(KernelAttention, RandomBatches) {
  for (uint64_t seed = 100; seed < 130; seed++) {
    std::mt19937_64 random(seed);
    auto pick = [&](int32_t low, int32_t high) { return Pick(random, low, high); };
    AttentionShape shape;
    static const cgr_dtype kDtypes[] = { CGR_DTYPE_BF16, CGR_DTYPE_FP16, CGR_DTYPE_FP32 };
    shape.dtype = kDtypes[pick(0, bench_->is_cuda() ? 1 : 2)];
    shape.head_dim = pick(0, 1) ? 64 : 128;
    shape.num_kv_heads = pick(1, 3);
    shape.num_q_heads = shape.num_kv_heads * pick(1, 6);
    shape.page_size = 16 << pick(0, 2);
    shape.layouts = EveryCacheLayout()[static_cast<size_t>(pick(0, 5))];
    shape.num_parts = pick(1, 60);
    shape.tile_q = pick(0, 1) ? 0 : std::min(1 << pick(0, 4), cgr__attention_tile_q(shape.num_q_heads / shape.num_kv_heads));
    shape.scale = pick(0, 1) ? 0.0f : 0.01f * static_cast<float>(pick(1, 20));
    shape.read_trash = pick(-1, 3);
    shape.write_trash = shape.read_trash == 1 ? 0 : 1;
    shape.q_padding = { 8 * pick(0, 2), 8 * pick(0, 2) };
    shape.out_padding = { 8 * pick(0, 2), 8 * pick(0, 2) };
    AttentionBatch batch;
    int32_t requests = pick(1, 12);
    for (int32_t i = 0; i < requests; i++) {
      int32_t query = pick(0, 2) ? 1 : pick(0, 40);
      batch.query_lens.push_back(query);
      batch.seq_lens.push_back(query + pick(0, pick(0, 1) ? 400 : 70));
    }
    batch.padded_tokens = pick(0, 20);
    batch.padded_requests = pick(0, 4);
    Check(shape, batch, seed, static_cast<Poison>(pick(0, 3)));
    if (HasFatalFailure())
      return;
  }
  EXPECT_EQ(cases_, 30);
}

TEST_P(KernelAttention, ManyRequests) {
  AttentionShape shape;
  shape.dtype = Dtype();
  shape.num_parts = 132;
  AttentionBatch batch;
  for (int32_t i = 0; i < 512; i++) {
    batch.query_lens.push_back(1);
    batch.seq_lens.push_back(1 + i % 67);
  }
  Check(shape, batch, 7);
}

// A split of one long sequence over more parts than its tiles.
TEST_P(KernelAttention, OneLongRequest) {
  AttentionShape shape;
  shape.dtype = Dtype();
  for (int32_t parts : { 2, 33, 200 }) {
    shape.num_parts = parts;
    Check(shape, { { 1 }, { 4001 }, 0, 0 }, 8);
  }
}

// Large scores: softmax picks one token, and sums of exponentials do not overflow.
TEST_P(KernelAttention, LargeScores) {
  for (cgr_dtype dtype : { CGR_DTYPE_FP32, CGR_DTYPE_BF16, CGR_DTYPE_FP16 }) {
    if (!Supports(*bench_, dtype, 64))
      continue;
    SCOPED_TRACE(dtype);
    AttentionShape shape;
    shape.dtype = dtype;
    AttentionCase made(shape, { { 1, 4 }, { 200, 90 }, 0, 0 }, 9);
    for (int32_t i = 0; i < 2; i++) {
      for (double &x : made.q(i))
        x *= 64.0; // exact in every dtype
      ASSERT_GT(std::fabs(made.q(i)[0]), 1.0);
    }
    Pool pool(*bench_, made);
    pool.Fill(made, Poison::kInf);
    AttentionRun run(*bench_, made, pool);
    AttentionOutput output = run.Run();
    float largest = 0.0f;
    for (float x : output.lse)
      largest = std::max(largest, std::fabs(x));
    EXPECT_GT(largest, 89.0f); // exp of it is no fp32 number
    // A tensor core rounds the sums of a score towards 0: each of the head_dim / 16 may lose 2^-23 of it.
    ExpectAttention(made, output, bench_->is_cuda() ? largest * std::ldexp(1.0, -20) : 0.0);
  }
}

TEST_P(KernelAttention, PoisonNeverChangesABit) {
  for (cgr_dtype dtype : { CGR_DTYPE_FP32, CGR_DTYPE_BF16, CGR_DTYPE_FP16 }) {
    if (!Supports(*bench_, dtype, 128))
      continue;
    for (int32_t group : { 1, 4 }) {
      AttentionShape shape;
      shape.dtype = dtype;
      shape.head_dim = 128;
      shape.num_q_heads = 2 * group;
      shape.layouts = EveryCacheLayout()[group == 1 ? 0 : 3];
      AttentionCase made(shape, { { 1, 1, 7, 1, 33, 2 }, { 1, 17, 63, 65, 130, 0 }, 6, 3 }, 10);
      Pool pool(*bench_, made);
      std::vector<AttentionOutput> outputs;
      for (Poison poison : { Poison::kZero, Poison::kNan, Poison::kInf, Poison::kNoise }) {
        pool.Fill(made, poison);
        AttentionRun run(*bench_, made, pool);
        outputs.push_back(run.Run());
        ASSERT_EQ(outputs.back().error.error, CGR_STEP_OK);
        ASSERT_TRUE(SameBits(outputs[0], outputs.back(), made.num_tokens() + 6, shape)) << static_cast<int>(poison);
      }
      ExpectAttention(made, outputs[0]);
    }
  }
}

// The same memory run again, without a planner between, gives the same bits.
TEST_P(KernelAttention, RunsAgainTheSame) {
  AttentionShape shape;
  shape.dtype = Dtype();
  shape.num_parts = 29;
  AttentionCase made(shape, { { 1, 1, 40, 1 }, { 1000, 17, 640, 65 }, 3, 0 }, 11);
  Pool pool(*bench_, made);
  pool.Fill(made, Poison::kNan);
  AttentionRun run(*bench_, made, pool);
  AttentionOutput first = run.Run();
  for (int i = 0; i < 5; i++)
    ASSERT_TRUE(SameBits(first, run.Run(), made.num_tokens() + 3, shape));
  AttentionOutput without = run.Run(false);
  EXPECT_EQ(without.out, first.out);
}

TEST_P(KernelAttention, PaddingNeverChangesABit) {
  AttentionShape shape;
  shape.dtype = Dtype();
  shape.num_parts = 13;
  for (AttentionBatch batch : { AttentionBatch{ { 1 }, { 333 }, 0, 0 }, AttentionBatch{ { 1, 20, 1 }, { 70, 99, 300 }, 0, 0 } }) {
    AttentionCase alone(shape, batch, 12);
    Pool pool(*bench_, alone);
    pool.Fill(alone, Poison::kNan);
    AttentionRun run(*bench_, alone, pool);
    AttentionOutput expected = run.Run();
    for (int32_t padding : { 1, 7, 100 }) {
      batch.padded_tokens = batch.padded_requests = padding;
      AttentionCase padded(shape, batch, 12); // the same seed: the same inputs and pages
      AttentionRun again(*bench_, padded, pool);
      AttentionOutput output = again.Run();
      ASSERT_TRUE(SameBits(expected, output, alone.num_tokens(), shape)) << padding;
      ExpectAttention(padded, output);
    }
  }
}

// A page outside the pool, or the one that nobody may read, is read as the read-trash page, and reported.
TEST_P(KernelAttention, BadPageReadsTrash) {
  const std::pair<int32_t, int32_t> trash_pages[] = { { 0, 1 }, { 1, 0 }, { 4, 2 }, { 3, -1 }, { -1, 5 } };
  for (const auto &[read_trash, write_trash] : trash_pages) {
    for (int32_t page_size : { 16, 64 }) {
      for (int bad_case = 0; bad_case < 6; bad_case++) {
        AttentionShape shape;
        shape.dtype = Dtype();
        shape.page_size = page_size;
        shape.read_trash = read_trash;
        shape.write_trash = write_trash;
        AttentionCase made(shape, { { 1, 1, 9 }, { 100, 50, 64 }, 0, 0 }, 13);
        const int32_t num_pages = static_cast<int32_t>(made.num_pages());
        const int32_t bads[] = { -1, INT32_MIN, INT32_MAX, num_pages, 1 << 20, made.shape().write_trash };
        const int32_t bad = bads[bad_case], index = page_size == 16 ? 2 : 1;
        SCOPED_TRACE("trash " + std::to_string(read_trash) + ", " + std::to_string(write_trash) + " page_size " +
                     std::to_string(page_size) + " page " + std::to_string(bad));
        Pool pool(*bench_, made);
        pool.Fill(made, Poison::kNan);
        made.table()[static_cast<size_t>(made.row(0) * made.table_stride() + index)] = bad;
        int32_t width = shape.num_kv_heads * shape.head_dim, end = std::min((index + 1) * page_size, 100);
        for (Cache which : { kCacheK, kCacheV })
          std::fill(made.kv(which, 0).begin() + index * page_size * width, made.kv(which, 0).begin() + end * width,
                    AttentionCase::kTrash);
        AttentionRun run(*bench_, made, pool);
        AttentionOutput output = run.Run();
        ExpectAttention(made, output);
        EXPECT_EQ(output.error.error, CGR_STEP_PAGE);
        EXPECT_EQ(output.error.row, made.row(0));
        EXPECT_EQ(output.error.index, index);
        EXPECT_EQ(output.error.value, bad);
        if (HasFailure())
          return;
      }
    }
  }
}

// Pages behind 4 GiB of K, with V behind them: 2^31 elements and more. On the host the memory is only reserved.
TEST_P(KernelAttention, PoolBeyond4GiB) {
  AttentionShape shape;
  shape.dtype = Dtype();
  shape.num_pages = 40;
  shape.page_bytes = int64_t{ 256 } << 20;
  shape.pages_at_end = true;
  size_t bytes = static_cast<size_t>(2 * shape.num_pages * shape.page_bytes);
  void *memory = nullptr;
  if (!bench_->is_cuda()) {
    memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
      GTEST_SKIP() << "no 20 GiB of addresses";
  }
  {
    AttentionCase made(shape, { { 1, 20 }, { 70, 33 }, 0, 0 }, 14);
    for (int32_t page : made.owned_pages)
      ASSERT_GE(page * shape.page_bytes, int64_t{ 1 } << 33);
    Pool pool(*bench_, made, memory);
    pool.Fill(made, Poison::kNan, true);
    AttentionRun run(*bench_, made, pool);
    ExpectAttention(made, run.Run());
  }
  if (memory != nullptr)
    munmap(memory, bytes);
}

INSTANTIATE_TEST_SUITE_P(Devices, KernelAttention, ::testing::ValuesIn(KernelDevices()), DeviceLabel);

} // namespace
} // namespace cgr_test
