// Attention that is launched right after the append of its tokens, and may begin while it runs, reads what the append writes.
// Tested with the library's append and with a slow one. Its queries come late too, from a slow kernel before the append:
// attention may read them before the append is done, so the append must not begin early. Only a GPU of compute capability 9.0 or
// later and the emulation overlap them; elsewhere only the results are tested.
#include "kernels/append.h"
#include "tests/emulation/device.h"
#include "tests/support/attention_run.h"
#include "tests/support/slow_append.h"

namespace cgr_test {
namespace {

// The new tokens of a case: in memory of their own, and where their keys belong.
struct NewTokens {
  Bytes bytes[2]; // of K and V: [tokens][num_kv_heads][width]
  std::vector<int64_t> slots;
};

class KernelAttentionAfterAppend : public AttentionTest {
protected:
  void SetUp() override {
    AttentionTest::SetUp();
    if (bench_)
      bench_->Preload(cgr__kernel_append);
    cgr_emulation::SetAppendsOverlap(GetParam().IsEmulated());
  }
  void TearDown() override {
    cgr_emulation::SetAppendsOverlap(false);
    AttentionTest::TearDown();
  }
  bool is_slow() const { return !bench_->is_cuda(); }

  // Replaces the new tokens in the cache with poison: on the device, not in what its pages must hold.
  static NewTokens TakeOut(AttentionCase &made, PagedCache &cache) {
    const CacheShape &s = cache.shape();
    NewTokens tokens;
    for (int32_t i = 0; i < made.num_requests(); i++)
      for (int32_t key = made.NumKeys(i) - made.batch().query_lens[size_t(i)]; key < made.NumKeys(i); key++) {
        const int32_t page = made.table(i, key / s.page_size), offset = key % s.page_size;
        tokens.slots.push_back(int64_t{ page } * s.page_size + offset);
        for (Cache which : kCaches) {
          const Bytes good = cache.Page(which, page);
          Bytes bad = cache.Get(which, page), copy = good;
          for (int32_t head = 0; head < s.num_kv_heads; head++) {
            const unsigned char *from = cache.InPage(which, &copy, offset, head);
            const size_t bytes = size_t(s.Width(which) * ElementSize(s.Dtype(which)));
            tokens.bytes[which].insert(tokens.bytes[which].end(), from, from + bytes);
            std::memset(cache.InPage(which, &bad, offset, head), 0xff, bytes); // NaN
          }
          cache.Put(which, page, bad);
          cache.LoseFactors(page, offset);
          cache.Page(which, page) = good;
        }
      }
    return tokens;
  }

  // The elements of a call: codes without factors are their values, which the append makes codes again.
  static Bytes Elements(const Bytes &cached, int32_t cache_dtype, int32_t dtype) {
    const int64_t count = int64_t(cached.size()) / ElementSize(cache_dtype);
    Bytes elements(size_t(count * ElementSize(dtype)));
    StoreElements(dtype, LoadElements(cache_dtype, cached.data(), count).data(), count, elements.data());
    return elements;
  }

  // The largest of a head's codes is 127, so that the append finds the factor 1 again.
  static void FillRanges(AttentionCase *made) {
    const int64_t width = made->shape().head_dim;
    for (Values &values : made->kv[kCacheK])
      for (size_t e = 0; e < values.size(); e += size_t(width))
        values[e] = e % size_t(3 * width) == 0 ? 127.0 : -127.0;
  }

  // kSlowAppend copies: it writes no codes.
  void CheckBatch(const AttentionShape &shape, const AttentionBatch &batch, uint64_t seed) {
    const bool copies = shape.cache() == shape.dtype; // V's is the same
    for (const cgr__kernel *kernel : { &cgr__kernel_append, &kSlowAppend })
      if (!HasFailure() && (kernel == &cgr__kernel_append || (copies && GetParam().IsCuda())))
        CheckBatchAfter(*kernel, shape, batch, seed);
  }

  void CheckBatchAfter(const cgr__kernel &kernel, const AttentionShape &shape, const AttentionBatch &batch, uint64_t seed) {
    SCOPED_TRACE(kernel.name);
    AttentionCase made(shape, batch, seed);
    if (shape.token_factors > 0)
      FillRanges(&made);
    FilledCache cache(*bench_, made, Poison::kNan);
    AttentionRun run(*bench_, made, cache);
    if (GetParam().IsCuda()) // kSlowAppend is a GPU's
      run.BringQueriesBy(kSlowAppend);
    for (int round = 0; round < (is_slow() ? 1 : 2); round++) {
      const NewTokens tokens = TakeOut(made, cache);
      const CacheShape &s = cache.shape();
      Array<unsigned char> k(*bench_, Elements(tokens.bytes[kCacheK], s.Dtype(kCacheK), shape.dtype));
      Array<unsigned char> v(*bench_, Elements(tokens.bytes[kCacheV], s.Dtype(kCacheV), shape.dtype));
      Array<int64_t> mapping(*bench_, tokens.slots);
      cgr__append_args append = {};
      append.k_cache = cache.view[kCacheK];
      append.v_cache = cache.view[kCacheV];
      append.k = { k.data(), shape.dtype, 0, int64_t{ s.num_kv_heads } * s.Width(kCacheK), s.Width(kCacheK) };
      append.v = { v.data(), shape.dtype, 0, int64_t{ s.num_kv_heads } * s.Width(kCacheV), s.Width(kCacheV) };
      append.slot_mapping = mapping.data();
      append.num_pages = made.num_pages();
      append.page_size = s.page_size;
      append.num_tokens = int32_t(tokens.slots.size());
      append.num_kv_heads = s.num_kv_heads;
      append.head_dim = s.Width(kCacheK);
      append.head_dim_v = s.Width(kCacheV);
      append.attention_follows = 1;
      AttentionOutput output = run.Run(true, &append, kernel);
      ASSERT_EQ(output.error.error, CGR_GUARD_NONE);
      ExpectAttention(made, cache, output);
      ASSERT_FALSE(HasFailure());
    }
  }
};

// So many new tokens that the append takes longer than attention needs to find its work; most of them are in the first tile of a
// part.
TEST_P(KernelAttentionAfterAppend, ReadsTheNewTokensOfManyRequests) {
  const uint64_t seed = Seed();
  SCOPED_TRACE(Repeat(seed));
  std::mt19937_64 random(seed);
  AttentionShape shape = Shape();
  shape.num_q_heads = shape.num_kv_heads = is_slow() ? 2 : 8;
  shape.head_dim = is_slow() ? 64 : 128;
  shape.num_parts = is_slow() ? 9 : 264;
  AttentionBatch batch;
  for (int32_t i = 0; i < (is_slow() ? 12 : 600); i++) {
    batch.query_lens.push_back(Pick(random, 1, 4));
    batch.seq_lens.push_back(batch.query_lens.back() + (i % 3 == 0 ? 0 : Pick(random, 0, 150)));
  }
  CheckBatch(shape, batch, seed);
}

// Tiles of earlier steps come first: one request in many parts, one of which has new tokens.
TEST_P(KernelAttentionAfterAppend, ReadsTheNewTokensAtTheEndOfALongOne) {
  AttentionShape shape = Shape();
  shape.num_parts = is_slow() ? 5 : 264;
  for (int32_t length : { 63, 64, 65, 66, is_slow() ? 700 : 9000 })
    for (int32_t query_len : { 1, 3 })
      CheckBatch(shape, { { query_len, 40 }, { length, 100 }, 0, 0 }, uint64_t(length)); // and a chunk, from the prefill queue
}

TEST_P(KernelAttentionAfterAppend, ReadsTheCodesOfNewTokens) {
  for (cgr_dtype codes : { CGR_DTYPE_FP8_E4M3, CGR_DTYPE_FP8_E5M2, CGR_DTYPE_I8 }) {
    AttentionShape shape = Shape();
    shape.cache_dtype = codes;
    if (codes == CGR_DTYPE_I8)
      shape.k_scales = shape.v_scales = { 1.0f }, shape.token_factors = 1, shape.scale = 0.002f;
    shape.num_parts = is_slow() ? 5 : 264;
    for (int32_t length : { 63, 65, is_slow() ? 700 : 9000 })
      CheckBatch(shape, { { 2, 40, 1 }, { length, 100, 129 }, 0, 0 }, uint64_t(length));
  }
}

// Windows, chunks and slopes use another instance of the kernel.
TEST_P(KernelAttentionAfterAppend, ReadsTheNewTokensWithAWindow) {
  AttentionShape shape = Shape();
  shape.kind.window_left = 100;
  shape.num_parts = is_slow() ? 5 : 264;
  CheckBatch(shape, { { 1, 2, 1, 4, 1 }, { 1, 500, 64, 129, 300 }, 0, 0 }, 7);
}

CGR_INSTANTIATE_OVER_KERNEL_DEVICES(KernelAttentionAfterAppend);

} // namespace
} // namespace cgr_test
