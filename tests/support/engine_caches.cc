#include "tests/support/engine_caches.h"

#include <algorithm>
#include <cstring>

#include "kernels/reference/reference.h"

namespace cgr_test {

constexpr size_t kGuardBytes = 65536;

Caches::Caches(const EngineOptions &options, int32_t group, const GroupOptions &of)
    : layers_(options.layers), layout_(options.layout), order_(options.kv_order), group_(group), write_trash_(of.write_trash),
      page_size_(size_t(of.page_size)), num_pages_(size_t(of.num_pages)), page_gap_(size_t(options.page_gap)) {
  for (const LayerOptions &l : layers_) {
    const size_t heads = size_t(l.num_kv_heads), element = cgr_dtype_size(cgr_dtype(l.dtype));
    shapes_.push_back({ Shape{ heads, size_t(l.head_dim), element }, Shape{ heads, size_t(l.head_dim_v()), element } });
  }
  PlaceAll();
  for (int32_t page = 0; page < of.num_pages; page++)
    Poison(page, 0, page == of.read_trash ? 0.0 : options.unowned);
}

// K (v = 0) or V of a layer; the layers before it take `before` bytes of a page, of K and of V.
Caches::Stretch Caches::PlaceOne(size_t layer, size_t v, const std::array<size_t, 2> &before) const {
  const Shape s = shapes_[layer][v];
  const size_t both = before[0] + before[1], k = v == 0 ? 0 : PageBytes(layer, 0), all = page_bytes_[0] + page_bytes_[1];
  bool hnd = layout_ == KvLayout::kHnd || layout_ == KvLayout::kLayersInPageHnd || layers_[layer].hnd;
  size_t page = s.Token() * page_size_, gap = page_gap_;
  Stretch p = { 0, page + gap, hnd ? s.Head() : s.Token(), hnd ? s.Head() * page_size_ : s.Head() };
  switch (layout_) {
  case KvLayout::kNhd:
  case KvLayout::kHnd:
    p.base = (v * page_bytes_[0] + before[v] + (v * layers_.size() + layer) * gap) * num_pages_;
    break;
  case KvLayout::kKvPages:
    p.base = (both + k + (2 * layer + v) * gap) * num_pages_;
    break;
  case KvLayout::kPairs:
    p.page = PageBytes(layer, 0) + PageBytes(layer, 1) + gap;
    p.base = (both + layer * gap) * num_pages_ + k;
    break;
  case KvLayout::kLayersInPage:
  case KvLayout::kLayersInPageHnd:
    p.page = all + gap;
    p.base = both + k;
    break;
  case KvLayout::kHeadsInToken:
    p.token = all / page_size_;
    p.page = all + gap;
    p.base = (both + k) / page_size_;
    break;
  }
  p.base += kGuardBytes;
  return p;
}

Caches::Stretch Caches::PlaceInOrder(size_t layer, size_t v) const {
  Stretch p = { kGuardBytes, 0, 0, 0 };
  size_t stride = shapes_[layer][v].Head();
  for (auto name = order_.rbegin(); name != order_.rend(); name++) {
    switch (*name) {
    case 'l':
      p.base += layer * stride, stride *= layers_.size();
      break;
    case 'k':
      p.base += v * stride, stride *= 2;
      break;
    case 'b':
      p.page = stride, stride *= num_pages_;
      break;
    case 't':
      p.token = stride, stride *= page_size_;
      break;
    default:
      p.head = stride, stride *= shapes_[layer][v].heads;
    }
  }
  return p;
}

void Caches::PlaceAll() {
  for (size_t l = 0; l < layers_.size(); l++)
    for (size_t v : { 0, 1 })
      page_bytes_[v] += Owns(l) ? PageBytes(l, v) : 0;
  std::array<size_t, 2> before = {};
  for (size_t l = 0; l < layers_.size(); l++) {
    const size_t source = size_t(layers_[l].kv_source);
    if (!Owns(l))
      places_.push_back(source != 0 ? places_[source - 1] : std::array<Stretch, 2>{});
    else if (order_.empty())
      places_.push_back({ PlaceOne(l, 0, before), PlaceOne(l, 1, before) });
    else
      places_.push_back({ PlaceInOrder(l, 0), PlaceInOrder(l, 1) });
    for (size_t v : { 0, 1 })
      before[v] += Owns(l) ? PageBytes(l, v) : 0;
  }
  const size_t all = page_bytes_[0] + page_bytes_[1] + 2 * layers_.size() * page_gap_;
  image_.assign(2 * kGuardBytes + all * num_pages_, 0xff);
}

size_t Caches::At(int32_t layer, Tensor which, int32_t page, int32_t token, int32_t head) const {
  const Stretch &p = places_[size_t(layer)][which - kK];
  return p.base + size_t(page) * p.page + size_t(token) * p.token + size_t(head) * p.head;
}

cgr_kv_view Caches::View(int32_t layer, Tensor which) const {
  const Stretch &p = places_[size_t(layer)][which - kK];
  int64_t element = int64_t(shapes_[size_t(layer)][0].element);
  cgr_kv_view view = {};
  view.base = static_cast<unsigned char *>(memory_) + p.base;
  view.dtype = layers_[size_t(layer)].dtype;
  view.stride_page = int64_t(p.page) / element;
  view.stride_token = int64_t(p.token) / element;
  view.stride_head = int64_t(p.head) / element;
  return view;
}

void Caches::Append(int32_t layer, int32_t values, int32_t page, int32_t token, const Entry &entry) {
  const auto &shapes = shapes_[size_t(layer)];
  int32_t dtype = layers_[size_t(layer)].dtype;
  doubtful_.erase({ page, token });
  for (Tensor which : { kK, kV })
    for (size_t h = 0; h < shapes[0].heads; h++)
      StoreHead(dtype, values, which, entry, int32_t(h), int32_t(shapes[which - kK].dim),
                &image_[At(layer, which, page, token, int32_t(h))]);
}

// Calls what(offset, bytes, layer) for K and V of each head of each layer.
template <class Do> void Caches::ForEachHead(int32_t page, int32_t token, Do what) const {
  for (size_t l = 0; l < layers_.size(); l++)
    for (Tensor which : { kK, kV })
      for (size_t h = 0; h < shapes_[l][0].heads && Owns(l); h++)
        what(At(int32_t(l), which, page, token, int32_t(h)), shapes_[l][which - kK].Head(), l);
}

void Caches::Poison(int32_t page, int32_t first, double value) {
  std::vector<std::vector<unsigned char>> heads(layers_.size());
  for (size_t l = 0; l < layers_.size(); l++) {
    const Shape &k = shapes_[l][0], &v = shapes_[l][1];
    heads[l].resize(std::max(k.Head(), v.Head()));
    for (size_t at = 0; at < heads[l].size(); at += k.element)
      cgr__reference_store(layers_[l].dtype, &heads[l][at], value);
  }
  for (int32_t token = first; token < int32_t(page_size_); token++) {
    doubtful_.erase({ page, token });
    ForEachHead(page, token,
                [&](size_t at, size_t bytes, size_t layer) { std::memcpy(&image_[at], heads[layer].data(), bytes); });
  }
}

std::vector<unsigned char> Caches::TokenBytes(const std::vector<unsigned char> &all, int32_t page, int32_t token) const {
  std::vector<unsigned char> bytes;
  ForEachHead(page, token, [&](size_t at, size_t count, size_t) {
    bytes.insert(bytes.end(), all.begin() + int64_t(at), all.begin() + int64_t(at + count));
  });
  return bytes;
}

int64_t Caches::FindDifference(const std::vector<unsigned char> &got) {
  auto take_over = [&](size_t at, size_t bytes, size_t) { std::memcpy(&image_[at], &got[at], bytes); };
  for (int32_t token = 0; token < int32_t(page_size_); token++)
    ForEachHead(write_trash_, token, take_over);
  for (const auto &[page, token] : doubtful_)
    ForEachHead(page, token, take_over);
  if (got == image_)
    return -1;
  return std::mismatch(got.begin(), got.end(), image_.begin()).first - got.begin();
}

} // namespace cgr_test
