// Append writes the slots it is told to, and not a byte more.
#include <gtest/gtest.h>

#include <sys/mman.h>

#include "tests/attention_case.h"

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

  // Tokens of one launch with the given slots, in rows of k and v that lie `padding` elements apart.
  void Append(AttentionCase &made, Pool &pool, const std::vector<int64_t> &slots, int32_t padding, Bytes *k, Bytes *v) {
    const AttentionShape &s = made.shape();
    int64_t stride = int64_t{1} * s.num_kv_heads * s.head_dim + padding;
    k->resize(slots.size() * static_cast<size_t>(stride * ElementSize(s.dtype)));
    v->resize(k->size());
    for (unsigned char &byte : *k) byte = static_cast<unsigned char>(made.random()());
    for (unsigned char &byte : *v) byte = static_cast<unsigned char>(made.random()());
    Array<unsigned char> k_new(*bench_, *k), v_new(*bench_, *v);
    Array<int64_t> mapping(*bench_, slots);
    cgr__append_args args;
    std::memset(&args, 0, sizeof args);
    args.k_cache = pool.k;
    args.v_cache = pool.v;
    args.k = {k_new.data(), s.dtype, 0, stride, s.head_dim};
    args.v = {v_new.data(), s.dtype, 0, stride, s.head_dim};
    args.slot_mapping = mapping.data();
    args.num_pages = made.num_pages();
    args.page_size = s.page_size;
    args.num_tokens = static_cast<int32_t>(slots.size());
    args.num_kv_heads = s.num_kv_heads;
    args.head_dim = s.head_dim;
    bench_->Run(cgr__kernel_append, &args);
  }

  // Writes one token into the image of a page.
  static void Place(const AttentionCase &made, Bytes *page, int32_t offset, const unsigned char *token) {
    const AttentionShape &s = made.shape();
    size_t head = static_cast<size_t>(s.head_dim * ElementSize(s.dtype));
    cgr_kv_view view = made.View(page->data());
    for (int32_t h = 0; h < s.num_kv_heads; h++)
      std::memcpy(cgr__reference_kv_element(&view, 0, offset, h), token + static_cast<size_t>(h) * head, head);
  }

  void Check(const AttentionShape &shape, const std::vector<int64_t> &slots, int32_t padding) {
    if (!Supports(*bench_, shape.dtype, shape.head_dim)) return;
    AttentionCase made(shape, {}, 1);
    Pool pool(*bench_, made);
    std::vector<Bytes> k_pages, v_pages;
    for (int64_t p = 0; p < made.num_pages(); p++) {
      k_pages.push_back(made.PoisonedPage(Poison::kNoise));
      v_pages.push_back(made.PoisonedPage(Poison::kNoise));
      pool.Put(pool.k, p, k_pages.back());
      pool.Put(pool.v, p, v_pages.back());
    }
    Bytes k, v;
    Append(made, pool, slots, padding, &k, &v);
    size_t token = slots.empty() ? 0 : k.size() / slots.size();
    for (size_t t = 0; t < slots.size(); t++) {
      if (slots[t] < 0 || slots[t] >= made.num_pages() * shape.page_size) continue;
      size_t page = static_cast<size_t>(slots[t] / shape.page_size);
      int32_t offset = static_cast<int32_t>(slots[t] % shape.page_size);
      Place(made, &k_pages[page], offset, &k[t * token]);
      Place(made, &v_pages[page], offset, &v[t * token]);
    }
    for (int64_t p = 0; p < made.num_pages(); p++) {
      ASSERT_EQ(pool.Get(pool.k, p, k_pages[p].size()), k_pages[p]) << "page " << p;
      ASSERT_EQ(pool.Get(pool.v, p, v_pages[p].size()), v_pages[p]) << "page " << p;
    }
  }

  std::unique_ptr<Bench> bench_;
};

TEST_P(KernelAppend, EveryShape) {
  for (cgr_dtype dtype : {CGR_DTYPE_FP32, CGR_DTYPE_BF16, CGR_DTYPE_FP16}) {
    for (Layout layout : {Layout::kTokens, Layout::kHeads, Layout::kInterleaved}) {
      for (int32_t head_dim : {8, 64, 128, 256}) {
        for (int32_t page_size : {16, 32, 64}) {
          AttentionShape shape;
          shape.dtype = dtype;
          shape.layout = layout;
          shape.head_dim = head_dim;
          shape.page_size = page_size;
          shape.num_kv_heads = page_size == 32 ? 1 : 3;
          shape.num_q_heads = shape.num_kv_heads;
          shape.num_pages = 6;
          std::vector<int64_t> slots = {2 * page_size, 5 * page_size - 1, -1, 6 * page_size - 1, 3 * page_size + 7, -1};
          Check(shape, slots, page_size == 16 ? 8 : 0);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST_P(KernelAppend, SlotsOutsideThePoolWriteNothing) {
  AttentionShape shape;
  shape.dtype = CGR_DTYPE_BF16;
  shape.num_pages = 6;
  Check(shape, {96, 97, -1, -2, -16, -17, INT64_MIN, INT64_MAX, int64_t{1} << 32, (int64_t{1} << 32) + 40, 1 << 20}, 0);
  Check(shape, {96, 40, 95, -1}, 0);
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
  for (size_t t = 0; t < slots.size(); t += 7) slots[t] = -1;
  Check(shape, slots, 24);
}

// Pages behind 4 GiB. On the host the memory is only reserved.
TEST_P(KernelAppend, PoolBeyond4GiB) {
  AttentionShape shape;
  shape.dtype = CGR_DTYPE_BF16;
  shape.num_pages = 40;
  shape.page_bytes = int64_t{256} << 20;
  size_t bytes = static_cast<size_t>(2 * shape.num_pages * shape.page_bytes);
  void *memory = nullptr;
  if (!bench_->is_cuda()) {
    memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) GTEST_SKIP() << "no 20 GiB of addresses";
  }
  {
    AttentionCase made(shape, {}, 2);
    Pool pool(*bench_, made, memory);
    std::vector<Bytes> k_pages(40), v_pages(40);
    for (int64_t p : {15, 16, 31, 32, 39}) {
      k_pages[p] = made.PoisonedPage(Poison::kNoise);
      v_pages[p] = made.PoisonedPage(Poison::kNoise);
      pool.Put(pool.k, p, k_pages[p]);
      pool.Put(pool.v, p, v_pages[p]);
    }
    Bytes k, v;
    Append(made, pool, {39 * 16 + 15, 32 * 16, 31 * 16 + 3}, 0, &k, &v);
    size_t token = k.size() / 3;
    Place(made, &k_pages[39], 15, &k[0]);
    Place(made, &v_pages[39], 15, &v[0]);
    Place(made, &k_pages[32], 0, &k[token]);
    Place(made, &v_pages[32], 0, &v[token]);
    Place(made, &k_pages[31], 3, &k[2 * token]);
    Place(made, &v_pages[31], 3, &v[2 * token]);
    for (int64_t p : {15, 16, 31, 32, 39}) {
      EXPECT_EQ(pool.Get(pool.k, p, k_pages[p].size()), k_pages[p]) << "page " << p;
      EXPECT_EQ(pool.Get(pool.v, p, v_pages[p].size()), v_pages[p]) << "page " << p;
    }
  }
  if (memory != nullptr) munmap(memory, bytes);
}

INSTANTIATE_TEST_SUITE_P(Devices, KernelAppend, ::testing::ValuesIn(KernelDevices()), DeviceLabel);

}  // namespace
}  // namespace cgr_test
