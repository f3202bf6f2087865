// Append writes the slots that it is given, and not a byte more.
#include <sys/mman.h>

#include <numeric>
#include <vector>

#include "cgr/names.h"
#include "kernels/append.h"
#include "tests/support/checker.h"
#include "tests/support/paged_cache.h"

namespace cgr_test {
namespace {

// The new tokens of one launch: random bytes, in views with gaps.
struct NewTokens {
  int32_t padding = 0; // elements between the tokens of k; those of v have more, and some between heads
  std::vector<int64_t> slots;
  Bytes bytes[2]; // of k and v

  cgr_view View(const CacheShape &s, Cache which, void *data) const {
    int64_t stride_head = s.Width(which) + (which == kCacheV ? padding : 0);
    return { data, s.dtype, 0, stride_head * s.num_kv_heads + padding + (which == kCacheV ? 16 : 0), stride_head };
  }
  void Draw(const CacheShape &s, std::mt19937_64 &random) {
    for (Cache which : kCaches) {
      bytes[which].resize(slots.size() * size_t(View(s, which, nullptr).stride_token * ElementSize(s.dtype)));
      for (unsigned char &byte : bytes[which])
        byte = static_cast<unsigned char>(random());
    }
  }
};

class KernelAppend : public KernelTest {
protected:
  void SetUp() override { Open({ &cgr__kernel_append }); }

  // One launch over the first `num_pages` pages.
  void Append(PagedCache &cache, int64_t num_pages, NewTokens *tokens) {
    const CacheShape &s = cache.shape();
    tokens->Draw(s, random_);
    Array<unsigned char> k(*bench_, tokens->bytes[kCacheK]), v(*bench_, tokens->bytes[kCacheV]);
    Array<int64_t> mapping(*bench_, tokens->slots);
    cgr__append_args args = {};
    args.k_cache = cache.view[kCacheK];
    args.v_cache = cache.view[kCacheV];
    args.k = tokens->View(s, kCacheK, k.data());
    args.v = tokens->View(s, kCacheV, v.data());
    args.slot_mapping = mapping.data();
    args.num_pages = num_pages;
    args.page_size = s.page_size;
    args.num_tokens = int32_t(tokens->slots.size());
    args.num_kv_heads = s.num_kv_heads;
    args.head_dim = s.Width(kCacheK);
    args.head_dim_v = s.Width(kCacheV);
    bench_->Run(cgr__kernel_append, &args);
  }
  // The same in what the cache's pages must hold.
  static void Place(PagedCache &cache, int64_t num_pages, NewTokens &tokens) {
    const CacheShape &s = cache.shape();
    for (size_t t = 0; t < tokens.slots.size(); t++) {
      int64_t slot = tokens.slots[t];
      if (slot < 0 || slot >= num_pages * s.page_size)
        continue;
      for (Cache which : kCaches)
        for (int32_t h = 0; h < s.num_kv_heads; h++) {
          const void *from = ViewElement(tokens.View(s, which, tokens.bytes[which].data()), int64_t(t), h);
          Bytes *page = &cache.Page(which, slot / s.page_size);
          std::memcpy(cache.InPage(which, page, int32_t(slot % s.page_size), h), from,
                      size_t(s.Width(which) * ElementSize(s.dtype)));
        }
    }
  }
  // The last two pages of the memory do not belong to the kernel: a slot in them is outside the pool.
  void Check(CacheShape shape, const std::vector<int64_t> &slots, int32_t padding) {
    int64_t num_pages = shape.num_pages;
    shape.num_pages += 2;
    PagedCache cache(*bench_, shape);
    for (Cache which : kCaches)
      for (int64_t p = 0; p < shape.num_pages; p++)
        cache.Put(which, p, cache.PoisonedPage(which, Poison::kNoise, random_));
    NewTokens tokens;
    tokens.padding = padding;
    tokens.slots = slots;
    Append(cache, num_pages, &tokens);
    Place(cache, num_pages, tokens);
    cache.ExpectUnchanged();
  }

  std::mt19937_64 random_{ 1 };
};

TEST_P(KernelAppend, WritesEveryShape) {
  const bool few = UnderChecker();
  for (cgr_dtype dtype : { CGR_DTYPE_FP32, CGR_DTYPE_BF16, CGR_DTYPE_FP16 }) {
    for (const CacheLayouts &layouts : EveryCacheLayout()) {
      for (int32_t head_dim : few ? std::vector<int32_t>{ 64 } : std::vector<int32_t>{ 8, 64, 128, 256 }) {
        for (int32_t page_size : few ? std::vector<int32_t>{ 48 } : std::vector<int32_t>{ 16, 32, 48, 64, 80, 96, 256, 1024 }) {
          if (page_size > 96 && head_dim != 64) // two thirds of the bytes, and nothing new
            continue;
          SCOPED_TRACE(std::string(cgr_dtype_name(dtype)) + " head_dim " + std::to_string(head_dim) + " page_size " +
                       std::to_string(page_size));
          CacheShape shape = { dtype, page_size == 32 ? 1 : 3, head_dim, page_size, 6, 0, layouts };
          std::vector<int64_t> slots = { 2 * page_size, 5 * page_size - 1, -1, 6 * page_size - 1, 3 * page_size + 7, -1 };
          Check(shape, slots, page_size == 16 ? 8 : 0);
          ASSERT_FALSE(HasFatalFailure());
        }
      }
    }
  }
}

TEST_P(KernelAppend, WritesVOfAnotherWidth) {
  for (cgr_dtype dtype : { CGR_DTYPE_FP32, CGR_DTYPE_BF16 })
    for (const CacheLayouts &layouts : EveryCacheLayout())
      for (auto [dim, dim_v] :
           { std::pair<int32_t, int32_t>{ 64, 128 }, { 128, 64 }, { 8, 256 }, { 256, 8 }, { 192, 128 }, { 72, 40 } }) {
        SCOPED_TRACE(std::to_string(dim) + " and " + std::to_string(dim_v));
        Check({ dtype, 3, dim, 16, 6, 0, layouts, dim_v }, { 32, 79, -1, 95, 55, 96 }, 8);
        ASSERT_FALSE(HasFailure());
      }
}

TEST_P(KernelAppend, SlotsOutsideThePoolWriteNothing) {
  CacheShape shape;
  shape.dtype = CGR_DTYPE_BF16;
  shape.num_pages = 6;
  const int64_t far = int64_t{ 1 } << 32;
  Check(shape, { 96, 97, 127, 128, 160, -1, -2, -16, -17, INT64_MIN, INT64_MAX, far, far + 40, 1 << 20 }, 0);
  Check(shape, { 96, 40, 95, -1 }, 0);
  Check(shape, std::vector<int64_t>(500, -1), 0);
}

TEST_P(KernelAppend, WritesNothingForNoTokens) {
  CacheShape shape;
  shape.dtype = CGR_DTYPE_BF16;
  shape.num_pages = 2;
  Check(shape, {}, 0);
}

TEST_P(KernelAppend, WritesManyTokens) {
  CacheShape shape;
  shape.dtype = CGR_DTYPE_BF16;
  shape.num_pages = 40;
  std::vector<int64_t> slots(640);
  std::iota(slots.begin(), slots.end(), 0);
  std::mt19937_64 random(5);
  std::shuffle(slots.begin(), slots.end(), random);
  for (size_t t = 0; t < slots.size(); t += 7)
    slots[t] = -1;
  Check(shape, slots, 24);
}

// Pages after 4 GiB. On the host the memory is only reserved.
TEST_P(KernelAppend, WritesPagesBeyond4GiB) {
  CacheShape shape;
  shape.dtype = CGR_DTYPE_BF16;
  shape.num_pages = 40;
  shape.page_bytes = int64_t{ 256 } << 20;
  size_t bytes = size_t(2 * shape.num_pages * shape.page_bytes);
  void *memory = nullptr;
  if (!bench_->is_cuda()) {
    memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
      GTEST_SKIP() << "no 20 GiB of addresses";
  }
  {
    PagedCache cache(*bench_, shape, memory);
    for (Cache which : kCaches)
      for (int64_t p : { 15, 16, 31, 32, 39 })
        cache.Put(which, p, cache.PoisonedPage(which, Poison::kNoise, random_));
    NewTokens tokens;
    tokens.padding = 8;
    tokens.slots = { 39 * 16 + 15, 32 * 16, 31 * 16 + 3 };
    Append(cache, 40, &tokens);
    Place(cache, 40, tokens);
    cache.ExpectUnchanged();
  }
  if (memory != nullptr)
    munmap(memory, bytes);
}

CGR_INSTANTIATE_OVER_KERNEL_DEVICES(KernelAppend);

} // namespace
} // namespace cgr_test
