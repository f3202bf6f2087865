// Append writes the slots it is told to, and not a byte more.
#include <gtest/gtest.h>

#include <sys/mman.h>

#include "tests/support/attention_case.h"

namespace cgr_test {
namespace {

class KernelAppend : public ::testing::TestWithParam<DeviceParam> {
protected:
  void SetUp() override {
    cgr_device *dev = nullptr;
    CGR_OPEN_OR_SKIP(dev, GetParam());
    ASSERT_EQ(dev->ops->preload(dev, &cgr__kernel_append), CGR__DEVICE_OK);
    bench_ = std::make_unique<Bench>(dev);
  }

  // The strides of the new k or v. `padding`: elements between the tokens of k; those of v have more, and some between heads.
  static cgr_view NewView(const AttentionShape &s, Cache which, int32_t padding, void *data) {
    cgr_view view = { data, s.dtype, 0, 0, s.head_dim + (which == kCacheV ? padding : 0) };
    view.stride_token = view.stride_head * s.num_kv_heads + padding + (which == kCacheV ? 16 : 0);
    return view;
  }
  static size_t TokenBytes(const AttentionShape &s, Cache which, int32_t padding) {
    return static_cast<size_t>(NewView(s, which, padding, nullptr).stride_token * ElementSize(s.dtype));
  }
  // One launch over `num_pages` pages with the given slots; k and v get random bytes.
  void Append(AttentionCase &made, Pool &pool, int64_t num_pages, const std::vector<int64_t> &slots, int32_t padding,
              Bytes *tokens) {
    const AttentionShape &s = made.shape();
    for (Cache which : { kCacheK, kCacheV }) {
      tokens[which].resize(slots.size() * TokenBytes(s, which, padding));
      for (unsigned char &byte : tokens[which])
        byte = static_cast<unsigned char>(made.random()());
    }
    Array<unsigned char> k_new(*bench_, tokens[kCacheK]), v_new(*bench_, tokens[kCacheV]);
    Array<int64_t> mapping(*bench_, slots);
    cgr__append_args args;
    std::memset(&args, 0, sizeof args);
    args.k_cache = pool.view[kCacheK];
    args.v_cache = pool.view[kCacheV];
    args.k = NewView(s, kCacheK, padding, k_new.data());
    args.v = NewView(s, kCacheV, padding, v_new.data());
    args.slot_mapping = mapping.data();
    args.num_pages = num_pages;
    args.page_size = s.page_size;
    args.num_tokens = static_cast<int32_t>(slots.size());
    args.num_kv_heads = s.num_kv_heads;
    args.head_dim = s.head_dim;
    bench_->Run(cgr__kernel_append, &args);
  }

  // Writes token t of k or v into the image of a page.
  static void Place(const AttentionCase &made, Cache which, Bytes *page, int32_t offset, const Bytes &tokens, size_t t,
                    int32_t padding) {
    const AttentionShape &s = made.shape();
    int64_t size = ElementSize(s.dtype);
    cgr_kv_view view = made.View(which, page->data());
    cgr_view from = NewView(s, which, padding, nullptr);
    for (int32_t h = 0; h < s.num_kv_heads; h++) {
      size_t at = static_cast<size_t>((static_cast<int64_t>(t) * from.stride_token + h * from.stride_head) * size);
      std::memcpy(cgr__reference_kv_element(&view, 0, offset, h), &tokens[at], static_cast<size_t>(s.head_dim * size));
    }
  }

  // The last two pages of the memory are not the kernel's: a slot in them is one outside the pool.
  void Check(AttentionShape shape, const std::vector<int64_t> &slots, int32_t padding) {
    int64_t num_pages = shape.num_pages;
    shape.num_pages += 2;
    AttentionCase made(shape, {}, 1);
    Pool pool(*bench_, made);
    std::vector<Bytes> pages[2];
    for (Cache which : { kCacheK, kCacheV })
      for (int64_t p = 0; p < made.num_pages(); p++) {
        pages[which].push_back(made.PoisonedPage(which, Poison::kNoise));
        pool.Put(which, p, pages[which].back());
      }
    Bytes tokens[2];
    Append(made, pool, num_pages, slots, padding, tokens);
    for (size_t t = 0; t < slots.size(); t++) {
      if (slots[t] < 0 || slots[t] >= num_pages * shape.page_size)
        continue;
      size_t page = static_cast<size_t>(slots[t] / shape.page_size);
      int32_t offset = static_cast<int32_t>(slots[t] % shape.page_size);
      for (Cache which : { kCacheK, kCacheV })
        Place(made, which, &pages[which][page], offset, tokens[which], t, padding);
    }
    for (Cache which : { kCacheK, kCacheV })
      for (int64_t p = 0; p < made.num_pages(); p++) {
        const Bytes &expected = pages[which][static_cast<size_t>(p)];
        ASSERT_TRUE(pool.Get(which, p, expected.size()) == expected) << "cache " << which << " page " << p;
      }
  }

  std::unique_ptr<Bench> bench_;
};

TEST_P(KernelAppend, EveryShape) {
  for (cgr_dtype dtype : { CGR_DTYPE_FP32, CGR_DTYPE_BF16, CGR_DTYPE_FP16 }) {
    for (const CacheLayouts &layouts : EveryCacheLayout()) {
      for (int32_t head_dim : { 8, 64, 128, 256 }) {
        for (int32_t page_size : { 16, 32, 64 }) {
          AttentionShape shape;
          shape.dtype = dtype;
          shape.layouts = layouts;
          shape.head_dim = head_dim;
          shape.page_size = page_size;
          shape.num_kv_heads = page_size == 32 ? 1 : 3;
          shape.num_q_heads = shape.num_kv_heads;
          shape.num_pages = 6;
          SCOPED_TRACE("dtype " + std::to_string(dtype) + " head_dim " + std::to_string(head_dim) + " page_size " +
                       std::to_string(page_size));
          std::vector<int64_t> slots = { 2 * page_size, 5 * page_size - 1, -1, 6 * page_size - 1, 3 * page_size + 7, -1 };
          Check(shape, slots, page_size == 16 ? 8 : 0);
          if (HasFatalFailure())
            return;
        }
      }
    }
  }
}

TEST_P(KernelAppend, SlotsOutsideThePoolWriteNothing) {
  AttentionShape shape;
  shape.dtype = CGR_DTYPE_BF16;
  shape.num_pages = 6;
  const int64_t far = int64_t{ 1 } << 32;
  Check(shape, { 96, 97, 127, 128, 160, -1, -2, -16, -17, INT64_MIN, INT64_MAX, far, far + 40, 1 << 20 }, 0);
  Check(shape, { 96, 40, 95, -1 }, 0);
  Check(shape, std::vector<int64_t>(500, -1), 0);
}

TEST_P(KernelAppend, ManyTokens) {
  AttentionShape shape;
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

// Pages behind 4 GiB. On the host the memory is only reserved.
TEST_P(KernelAppend, PoolBeyond4GiB) {
  AttentionShape shape;
  shape.dtype = CGR_DTYPE_BF16;
  shape.num_pages = 40;
  shape.page_bytes = int64_t{ 256 } << 20;
  size_t bytes = static_cast<size_t>(2 * shape.num_pages * shape.page_bytes);
  void *memory = nullptr;
  if (!bench_->is_cuda()) {
    memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
      GTEST_SKIP() << "no 20 GiB of addresses";
  }
  {
    AttentionCase made(shape, {}, 2);
    Pool pool(*bench_, made, memory);
    std::vector<Bytes> pages[2] = { std::vector<Bytes>(40), std::vector<Bytes>(40) };
    for (Cache which : { kCacheK, kCacheV })
      for (size_t p : { 15, 16, 31, 32, 39 }) {
        pages[which][p] = made.PoisonedPage(which, Poison::kNoise);
        pool.Put(which, static_cast<int64_t>(p), pages[which][p]);
      }
    Bytes new_tokens[2];
    Append(made, pool, 40, { 39 * 16 + 15, 32 * 16, 31 * 16 + 3 }, 8, new_tokens);
    for (Cache which : { kCacheK, kCacheV }) {
      Place(made, which, &pages[which][39], 15, new_tokens[which], 0, 8);
      Place(made, which, &pages[which][32], 0, new_tokens[which], 1, 8);
      Place(made, which, &pages[which][31], 3, new_tokens[which], 2, 8);
      for (size_t p : { 15, 16, 31, 32, 39 })
        EXPECT_TRUE(pool.Get(which, static_cast<int64_t>(p), pages[which][p].size()) == pages[which][p]) << "page " << p;
    }
  }
  if (memory != nullptr)
    munmap(memory, bytes);
}

INSTANTIATE_TEST_SUITE_P(Devices, KernelAppend, ::testing::ValuesIn(KernelDevices()), DeviceLabel);

} // namespace
} // namespace cgr_test
