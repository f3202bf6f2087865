// Attention of many kinds combined at random, as far as the registry has them: against fp64, and the same bits whatever is
// around.
#include "tests/support/attention_run.h"
#include "tests/support/checker.h"

namespace cgr_test {
namespace {

// Shapes and batches of any kind.
class KernelAttentionMixes : public AttentionTest {
protected:
  AttentionShape RandomShape(Random &random) const {
    AttentionShape shape;
    const cgr_dtype dtypes[] = { CGR_DTYPE_BF16, CGR_DTYPE_FP16, CGR_DTYPE_FP32 };
    const int32_t dims[] = { 64, 128, 80, 192, 8 * random.Pick32(1, 32), 8 * random.Pick32(1, 34), 256 };
    shape.dtype = dtypes[random.Pick(0, 2)];
    shape.head_dim = dims[random.Pick(0, random.OneIn(2) ? 1 : 6)];
    shape.num_kv_heads = random.Pick32(1, 3);
    shape.num_q_heads = shape.num_kv_heads * random.Pick32(1, random.OneIn(6) ? 70 : 5);
    shape.page_size = 16 << random.Pick(0, 2);
    shape.layouts = EveryCacheLayout()[size_t(random.Pick(0, 5))];
    shape.num_parts = random.Pick32(1, random.OneIn(3) ? 200 : 20);
    if (random.OneIn(4))
      shape.decode_query_len = random.Pick32(1, std::max(1, 16 * shape.num_kv_heads / shape.num_q_heads));
    shape.batch_invariant = random.OneIn(3);
    shape.scale = random.OneIn(2) ? 0.0f : 0.01f * float(random.Pick32(1, 20));
    shape.read_trash = random.Pick32(-1, 3);
    shape.write_trash = shape.read_trash == 1 ? 0 : 1;
    for (ViewPadding *padding : { &shape.q_padding, &shape.out_padding, &shape.k_padding, &shape.v_padding })
      *padding = { 8 * random.Pick32(0, 2), 8 * random.Pick32(0, 2) };
    shape.lse = LseLayout(random.Pick(0, 2));
    shape.kind =
        RandomKind(random, shape.num_q_heads, shape.page_size, { Keys::kCache, Keys::kCache, Keys::kStep, Keys::kOther });
    if (random.OneIn(4))
      shape.kind.head_dim_v = dims[random.Pick(0, 6)];
    if (random.OneIn(3))
      SetCodes(random, &shape);
    return shape;
  }
  // A cache of codes with any factors; mostly with head dims that have codes.
  static void SetCodes(Random &random, AttentionShape *shape) {
    const cgr_dtype codes[] = { CGR_DTYPE_FP8_E4M3, CGR_DTYPE_FP8_E5M2, CGR_DTYPE_I8 };
    shape->cache_dtype = codes[random.Pick(0, 2)];
    shape->v_cache_dtype = random.OneIn(3) ? codes[random.Pick(0, 2)] : shape->cache_dtype;
    if (random.OneIn(4))
      shape->v_cache_dtype = shape->dtype;
    for (std::vector<float> *scales : { &shape->k_scales, &shape->v_scales })
      for (int32_t count = random.OneIn(3) ? 0 : random.OneIn(2) ? 1 : shape->num_kv_heads; count > 0; count--)
        scales->push_back(0.01f * float(random.Pick32(1, 300)));
    if (!IsCode(shape->v_cache_dtype))
      shape->v_scales = {};
    if (!random.OneIn(8)) {
      shape->head_dim = std::min(256, (shape->head_dim + 15) / 16 * 16);
      shape->kind.head_dim_v = std::min(256, (shape->kind.head_dim_v + 15) / 16 * 16);
    }
    if (shape->kind.keys == Keys::kStep)
      shape->kind.keys = Keys::kCache;
    if (shape->cache_dtype == CGR_DTYPE_I8 && random.OneIn(2))
      shape->k_scales = { 0.001f * float(random.Pick32(1, 30)) }, shape->token_factors = random.Pick32(1, 9);
    if (IsCode(shape->v_cache_dtype) && random.OneIn(3))
      for (shape->v_scales = {}; int32_t(shape->v_scales.size()) < shape->num_kv_heads * shape->head_dim_v();)
        shape->v_scales.push_back(0.01f * float(random.Pick32(1, 30)));
  }
  static AttentionBatch RandomBatch(Random &random, Keys keys) {
    AttentionBatch batch;
    for (int32_t i = random.Pick32(1, random.OneIn(4) ? 12 : 6); i > 0; i--) {
      const int32_t query = random.OneIn(3) ? random.Pick32(0, random.OneIn(4) ? 100 : 20) : 1;
      const int32_t more = random.Pick32(0, random.OneIn(2) ? 400 : 70);
      const int32_t length = keys == Keys::kOther ? more : query + more;
      batch.query_lens.push_back(query);
      batch.seq_lens.push_back(random.OneIn(12) ? 0 : length);
    }
    batch.padded_tokens = random.Pick32(0, 20);
    batch.padded_requests = random.Pick32(0, 4);
    return batch;
  }
  // Calls check(shape, batch, seed) for that many shapes that the device can run. `plain`: of plain attention alone.
  template <class Visit> void ForMixes(int32_t count, Visit visit, bool plain = false) {
    const uint64_t first = Seed();
    int32_t ran = 0;
    if (GetParam().IsEmulated() || UnderChecker()) // emulated: every thread of a GPU in turn
      count = (count + 9) / 10;
    else if (!GetParam().IsCuda())
      count /= 2;
    for (uint64_t seed = first; ran < count && seed < first + 100 * uint64_t(count); seed++) {
      Random random(seed);
      AttentionShape shape = RandomShape(random);
      if (plain)
        shape.kind = {};
      if (KernelFor(info_, shape) == nullptr)
        continue;
      SCOPED_TRACE(Repeat(seed) + " " + shape.Text());
      visit(shape, RandomBatch(random, shape.kind.keys), seed);
      ASSERT_FALSE(HasFailure());
      ran++;
    }
    EXPECT_EQ(ran, count);
  }
};

TEST_P(KernelAttentionMixes, AreWithinTheBound) {
  const auto check = [&](const AttentionShape &shape, const AttentionBatch &batch, uint64_t seed) {
    Check(shape, batch, seed, Poison(seed % 4));
  };
  ForMixes(250, check);
  ForMixes(40, check, true);
}

// The registry refuses exactly what the rules of its kernel kind refuse, with every reason.
TEST_P(KernelAttentionMixes, AreRefusedForEveryReason) {
  const uint64_t first = Seed();
  SCOPED_TRACE(Repeat(first));
  const cgr__kernel_kind *plain = KernelFor(info_, Shape());
  ASSERT_NE(plain, nullptr);
  int32_t served = 0, refused = 0;
  for (uint64_t seed = first; seed < first + 3000; seed++) {
    Random random(seed);
    const AttentionShape shape = RandomShape(random);
    const cgr_layer layer = LayerOf(shape);
    FieldNames names;
    const cgr__kernel_kind *kernel_kind = KernelKindFor(info_, layer, &names);
    ASSERT_EQ(names, RefusedFields(layer, *plain, bench_->has_cuda_kernels() ? info_.shared_memory : 0))
        << Repeat(seed) << " " << shape.Text();
    served += kernel_kind != nullptr;
    refused += kernel_kind == nullptr;
  }
  EXPECT_GT(refused, 100);
  EXPECT_GT(served, 300);
}

TEST_P(KernelAttentionMixes, PoisonNeverChangesABit) {
  ForMixes(60, [&](const AttentionShape &shape, const AttentionBatch &batch, uint64_t seed) { CheckPoison(shape, batch, seed); });
}

TEST_P(KernelAttentionMixes, PaddingNeverChangesABit) {
  ForMixes(60, [&](const AttentionShape &shape, const AttentionBatch &batch, uint64_t seed) {
    CheckPadding(shape, batch, { 0, 1, 37 }, seed);
  });
}

TEST_P(KernelAttentionMixes, BatchInvariantBitsAreThoseAlone) {
  ForMixes(60, [&](const AttentionShape &shape, AttentionBatch batch, uint64_t seed) {
    batch.padded_tokens = batch.padded_requests = 0;
    for (size_t i = 0; i < batch.seq_lens.size(); i += 2) // some that are cut
      batch.seq_lens[i] += batch.seq_lens[i] > 0 ? 900 : 0;
    CheckAlone(shape, batch, 1 + shape.num_parts * 7 % 61, seed);
  });
}

// However many parts share the work, the sum of what they leave is within the bound, and the same in every run.
TEST_P(KernelAttentionMixes, EveryPartitionIsWithinTheBound) {
  ForMixes(12, [&](AttentionShape shape, AttentionBatch batch, uint64_t seed) {
    shape.batch_invariant = false;
    batch.seq_lens[0] += 500;
    for (int32_t parts : { 1, 2, 3, 5, 8, 21, 55, 144 }) {
      shape.num_parts = parts;
      AttentionCase made(shape, batch, seed);
      FilledCache cache(*bench_, made, Poison::kNan);
      AttentionRun run(*bench_, made, cache);
      const AttentionOutput output = run.Run();
      ASSERT_NO_FATAL_FAILURE(ExpectAttention(made, cache, output)) << parts;
      ASSERT_TRUE(SameBits(output, run.Run(), made.num_tokens() + batch.padded_tokens, made.shape())) << parts;
    }
  });
}

CGR_INSTANTIATE_OVER_KERNEL_DEVICES(KernelAttentionMixes);

} // namespace
} // namespace cgr_test
