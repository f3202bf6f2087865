// A paged KV cache on a device, in every layout, and a host copy of what its pages hold.
#pragma once

#include <cstring>
#include <map>
#include <random>
#include <vector>

#include "kernels/quantise.h"
#include "tests/support/device_memory.h"
#include "tests/support/oracle.h"

namespace cgr_test {

inline int64_t ElementSize(int32_t dtype) { return int64_t(cgr_dtype_size(cgr_dtype(dtype))); }

enum class Poison { kZero, kNan, kInf, kNoise };
enum Cache { kCacheK, kCacheV };
constexpr Cache kCaches[] = { kCacheK, kCacheV };

// How K or V is in memory. Paddings count elements, multiples of 8, and two elements each with codes: 16 bytes at least.
struct CacheLayout {
  cgr_kv_layout layout = CGR_LAYOUT_NHD;
  int32_t token_padding = 0, page_padding = 0;
};
struct CacheLayouts {
  CacheLayout cache[2];     // of K and V
  bool interleaved = false; // each page of K has the same one of V after it
};
inline std::vector<CacheLayouts> EveryCacheLayout() {
  const CacheLayout tokens, heads = { CGR_LAYOUT_HND, 0, 0 };
  return { { { tokens, tokens }, false },
           { { heads, heads }, false },
           { { tokens, tokens }, true },
           { { tokens, { CGR_LAYOUT_HND, 8, 64 } }, false },
           { { { CGR_LAYOUT_HND, 0, 128 }, { CGR_LAYOUT_NHD, 24, 0 } }, false },
           { { { CGR_LAYOUT_NHD, 16, 8 }, { CGR_LAYOUT_HND, 8, 0 } }, true } };
}

struct CacheShape {
  cgr_dtype dtype = CGR_DTYPE_FP32;
  int32_t num_kv_heads = 2, head_dim = 64, page_size = 16;
  int64_t num_pages = 0;
  int64_t page_bytes = 0; // distance of pages in memory; 0: what they take
  CacheLayouts layouts;
  int32_t head_dim_v = 0; // 0: head_dim
  // Of codes: none, one for all heads, or one for each; of V also one for each channel of each head.
  std::vector<float> k_scales = {}, v_scales = {};
  int32_t token_factors = 0;          // more: K's tokens have factors of their own, so many multiples of k_scales[0]
  cgr_dtype v_dtype = CGR_DTYPE_NONE; // NONE: dtype

  cgr_dtype Dtype(Cache which) const { return which == kCacheV && v_dtype != CGR_DTYPE_NONE ? v_dtype : dtype; }
  const std::vector<float> &Scales(Cache which) const { return which == kCacheK ? k_scales : v_scales; }
  bool HasTokenFactors(Cache which) const { return which == kCacheK && token_factors > 0; }
  bool HasChannelFactors(Cache which) const {
    return which == kCacheV && v_scales.size() > 1 && v_scales.size() == size_t(num_kv_heads) * size_t(Width(kCacheV));
  }
  float Factor(Cache which, int64_t page, int32_t token, int32_t head, int32_t d) const {
    const std::vector<float> &own = Scales(which);
    if (HasTokenFactors(which))
      return own[0] * float(1 + (page * 31 + token * 7 + head * 3) % token_factors);
    if (HasChannelFactors(which))
      return own[size_t(head * Width(which) + d)];
    return own.empty() ? 1.0f : own[own.size() == 1 ? 0 : size_t(head)];
  }
  int32_t Width(Cache which) const { return which == kCacheV && head_dim_v != 0 ? head_dim_v : head_dim; }
};

// One element of poison; its sign and noise are random.
inline double PoisonValue(Poison poison, std::mt19937_64 &random) {
  double noise = (double(random() % 2000) - 1000.0) * 10.0, sign = random() % 2 ? 1.0 : -1.0;
  const double values[] = { 0.0, NAN, sign * INFINITY, noise }; // in the order of Poison
  return values[int(poison)];
}
// A code of poison: no finite number, or of noise any.
inline unsigned char PoisonCode(cgr_dtype dtype, Poison poison, std::mt19937_64 &random) {
  if (dtype == CGR_DTYPE_I8) // which has no NaN; the append writes no -128
    return poison == Poison::kZero ? 0 : poison == Poison::kNan ? 0x80 : static_cast<unsigned char>(random());
  const unsigned char sign = random() % 2 ? 0x80 : 0, nan = dtype == CGR_DTYPE_FP8_E4M3 ? 0x7f : 0x7d + random() % 3;
  const unsigned char infinity = dtype == CGR_DTYPE_FP8_E4M3 ? 0x7e : 0x7c;                 // e4m3 has none: its largest number
  const unsigned char codes[] = { 0, nan, infinity, static_cast<unsigned char>(random()) }; // in the order of Poison
  return poison == Poison::kZero ? 0 : sign ^ codes[int(poison)];
}
inline Bytes PoisonedElements(int32_t dtype, int64_t count, Poison poison, std::mt19937_64 &random) {
  // One of a few drawn values each: to draw and round one per element takes longer than most kernels.
  const size_t size = size_t(ElementSize(dtype));
  unsigned char values[64 * sizeof(float)];
  for (size_t v = 0; v < 64; v++)
    if (IsCode(dtype))
      values[v] = PoisonCode(cgr_dtype(dtype), poison, random);
    else
      cgr__reference_store(dtype, &values[v * size], PoisonValue(poison, random));
  Bytes bytes(size_t(count) * size);
  uint64_t bits = 0;
  for (size_t e = 0; e < size_t(count); e++, bits >>= 6) {
    if (e % 10 == 0)
      bits = random();
    std::memcpy(&bytes[e * size], &values[bits % 64 * size], size);
  }
  return bytes;
}

// K and V. Pages hold nothing until they are put; the host keeps a copy of what was put.
class PagedCache {
public:
  // `memory`: the caller's, or NULL.
  PagedCache(Bench &bench, const CacheShape &shape, void *memory = nullptr) : bench_(bench), shape_(shape) {
    bool interleaved = shape.layouts.interleaved;
    owns_ = memory == nullptr;
    for (Cache which : kCaches) {
      CacheLayout &layout = shape_.layouts.cache[which];
      layout.token_padding *= Size(which) == 1 ? 2 : 1, layout.page_padding *= Size(which) == 1 ? 2 : 1;
    }
    PutScales();
    int64_t k_pool = Strides(kCacheK).stride_page * shape.num_pages * Size(kCacheK);
    int64_t v_pool = Strides(kCacheV).stride_page * shape.num_pages * Size(kCacheV);
    base_ = owns_ ? bench.Alloc(size_t(interleaved ? k_pool : k_pool + v_pool), CGR__MEMORY_DEVICE) : memory;
    for (Cache which : kCaches)
      view[which] = Strides(which);
    view[kCacheK].base = base_;
    view[kCacheV].base = static_cast<unsigned char *>(base_) + (interleaved ? PageBytes(kCacheK) : k_pool);
  }
  ~PagedCache() {
    if (owns_)
      bench_.Free(base_, CGR__MEMORY_DEVICE);
  }
  PagedCache(const PagedCache &) = delete;
  PagedCache &operator=(const PagedCache &) = delete;

  cgr_kv_view view[2]; // of K and V
  const CacheShape &shape() const { return shape_; }

  // Elements of one page, from its first to its last one.
  int64_t PageElements(Cache which) const { return PageExtent(which) - shape_.layouts.cache[which].page_padding; }
  Bytes PoisonedPage(Cache which, Poison poison, std::mt19937_64 &random) const {
    return PoisonedElements(shape_.Dtype(which), PageElements(which), poison, random);
  }
  // A page that holds `value` everywhere; with codes their value, without factors.
  Bytes UniformPage(Cache which, double value) const {
    Bytes page(size_t(PageElements(which) * Size(which)));
    for (int64_t e = 0; e < PageElements(which); e++)
      cgr__reference_store(shape_.Dtype(which), &page[size_t(e * Size(which))], value);
    return page;
  }
  // The element of head `head` of a token, in an image of its page.
  unsigned char *InPage(Cache which, Bytes *page, int32_t token, int32_t head) const {
    cgr_kv_view one = view[which];
    one.base = page->data();
    return static_cast<unsigned char *>(cgr__reference_kv_element(&one, 0, token, head));
  }

  void Put(Cache which, int64_t page, const Bytes &image) {
    bench_.Copy(cgr__reference_kv_element(&view[which], page, 0, 0), image.data(), image.size());
    pages_[which][page] = image;
  }
  // What the device holds.
  Bytes Get(Cache which, int64_t page) {
    Bytes image(size_t(PageElements(which) * Size(which)));
    bench_.Copy(image.data(), cgr__reference_kv_element(&view[which], page, 0, 0), image.size());
    return image;
  }
  // All factors of tokens of K.
  void PoisonFactors(float poison) {
    if (!shape_.HasTokenFactors(kCacheK))
      return;
    std::fill(scale_images_[kCacheK].begin(), scale_images_[kCacheK].end(), poison);
    scales_[kCacheK]->Put(scale_images_[kCacheK]);
  }
  // On the device alone: the token's factors in every head become NaN.
  void LoseFactors(int64_t page, int32_t token) {
    const float nan = NAN;
    for (int32_t head = 0; head < shape_.num_kv_heads && shape_.HasTokenFactors(kCacheK); head++)
      bench_.Copy(cgr__scale_at(&view[kCacheK], page, token, head, 0), &nan, sizeof nan);
  }
  // Of these tokens, in every head.
  void PutFactors(int64_t page, const std::vector<int32_t> &tokens) {
    if (!shape_.HasTokenFactors(kCacheK))
      return;
    cgr_kv_view image = view[kCacheK];
    image.scale = scale_images_[kCacheK].data();
    for (int32_t token : tokens)
      for (int32_t head = 0; head < shape_.num_kv_heads; head++)
        *cgr__scale_at(&image, page, token, head, 0) = shape_.Factor(kCacheK, page, token, head, 0);
    scales_[kCacheK]->Put(scale_images_[kCacheK]);
  }
  // What was put.
  Bytes &Page(Cache which, int64_t page) { return pages_[which].at(page); }
  const std::map<int64_t, Bytes> &Pages(Cache which) const { return pages_[which]; }
  // The device holds what was put.
  void ExpectUnchanged() {
    for (Cache which : kCaches)
      for (const auto &[page, image] : pages_[which])
        ASSERT_TRUE(Get(which, page) == image) << "cache " << which << " page " << page;
  }

  // K or V of a sequence over these pages, as they were put: the pages side by side, and a table that counts them up.
  Values Gather(Cache which, const std::vector<int32_t> &pages, int32_t seq_len) const {
    std::vector<int32_t> table;
    Bytes copies;
    cgr_kv_view compact = view[which];
    compact.stride_page = PageElements(which);
    for (int32_t page : pages) {
      const Bytes &image = pages_[which].at(page);
      table.push_back(int32_t(table.size()));
      copies.insert(copies.end(), image.begin(), image.end());
    }
    compact.base = copies.data();
    std::vector<float> factors = scale_images_[which];
    if (shape_.HasTokenFactors(which)) {
      const int64_t extent = compact.scale_stride_page;
      factors.clear();
      for (int32_t page : pages)
        factors.insert(factors.end(), scale_images_[which].begin() + page * extent,
                       scale_images_[which].begin() + (page + 1) * extent);
    }
    compact.scale = compact.scale != nullptr ? factors.data() : nullptr;
    return GatherKv(compact, table.data(), shape_.page_size, seq_len, shape_.num_kv_heads, shape_.Width(which));
  }

private:
  int64_t Size(Cache which) const { return ElementSize(shape_.Dtype(which)); }
  int64_t PageBytes(Cache which) const { return PageExtent(which) * Size(which); }
  // Elements from one page to what may be after it.
  int64_t PageExtent(Cache which) const {
    const CacheLayout &layout = shape_.layouts.cache[which];
    int64_t heads = shape_.num_kv_heads, paddings = layout.layout == CGR_LAYOUT_HND ? heads : 1;
    return shape_.page_size * (heads * shape_.Width(which) + paddings * layout.token_padding) + layout.page_padding;
  }
  cgr_kv_view Strides(Cache which) const {
    cgr_kv_view strides = {};
    const CacheLayout &layout = shape_.layouts.cache[which];
    bool heads_first = layout.layout == CGR_LAYOUT_HND;
    strides.dtype = shape_.Dtype(which);
    strides.stride_token =
        (heads_first ? int64_t{ 1 } : int64_t{ shape_.num_kv_heads }) * shape_.Width(which) + layout.token_padding;
    strides.stride_head = heads_first ? shape_.page_size * strides.stride_token : shape_.Width(which);
    strides.stride_page = PageBytes(which) / Size(which);
    if (shape_.layouts.interleaved)
      strides.stride_page += PageBytes(which == kCacheK ? kCacheV : kCacheK) / Size(which);
    if (scales_[which]) {
      strides.scale = scales_[which]->data();
      SetScaleStrides(which, &strides);
    }
    if (shape_.page_bytes != 0)
      strides.stride_page = shape_.page_bytes / Size(which);
    return strides;
  }
  void SetScaleStrides(Cache which, cgr_kv_view *strides) const {
    if (shape_.HasTokenFactors(which)) {
      strides->scale_stride_token = 1, strides->scale_stride_head = shape_.page_size + kBehindTokens;
      strides->scale_stride_page = strides->scale_stride_head * shape_.num_kv_heads;
    } else if (shape_.HasChannelFactors(which)) {
      strides->scale_stride_d = 3, strides->scale_stride_head = strides->scale_stride_d * shape_.Width(which);
    } else {
      strides->scale_stride_head = shape_.Scales(which).size() == 1 ? 0 : 3;
    }
  }

  // The factors, on the device with NaN around each.
  void PutScales() {
    for (Cache which : kCaches) {
      if (shape_.HasTokenFactors(which))
        scale_images_[which].assign(size_t(shape_.num_pages * shape_.num_kv_heads * (shape_.page_size + kBehindTokens)), NAN);
      for (float factor : shape_.HasTokenFactors(which) ? std::vector<float>{} : shape_.Scales(which))
        scale_images_[which].insert(scale_images_[which].end(), { factor, NAN, NAN });
      if (!shape_.Scales(which).empty())
        scales_[which] = std::make_unique<Array<float>>(bench_, scale_images_[which]);
    }
  }

  static constexpr int kBehindTokens = 4; // factors that no token has, which are NaN

  Bench &bench_;
  CacheShape shape_;
  std::vector<float> scale_images_[2];
  std::unique_ptr<Array<float>> scales_[2];
  void *base_;
  bool owns_;
  std::map<int64_t, Bytes> pages_[2];
};

} // namespace cgr_test
