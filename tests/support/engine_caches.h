// The KV caches of a group of a test's engine: the views of every layer in one allocation, in any layout, and an image of what
// every byte of it must be.
#pragma once

#include <array>
#include <set>
#include <utility>
#include <vector>

#include "tests/support/engine_options.h"
#include "tests/support/engine_values.h"

namespace cgr_test {

class Caches {
public:
  // The layers' dtypes and the groups are filled in. Every element is `unowned`, except those of the read-trash page, which are
  // 0. The guards at both ends and the gaps between pages are 0xff.
  Caches(const EngineOptions &options, int32_t group, const GroupOptions &of);

  size_t bytes() const { return image_.size(); }
  const std::vector<unsigned char> &image() const { return image_; }
  // Where the allocation begins on the device.
  void Place(void *memory) { memory_ = memory; }
  void *memory() const { return memory_; }
  cgr_kv_view View(int32_t layer, Tensor which) const;

  // A step writes token `token` of a page in a layer: the K and V that `entry` names for layer `values`.
  void Append(int32_t layer, int32_t values, int32_t page, int32_t token, const Entry &entry);
  // An abandoned step may have written this token of a page, in every layer.
  void Doubt(int32_t page, int32_t token) { doubtful_.insert({ page, token }); }
  // Every element of tokens [first, page_size) of a page becomes `value`.
  void Poison(int32_t page, int32_t first, double value);
  // What the device holds must equal the image; only the write-trash page and what is in doubt may differ, and the image takes
  // them over. Returns the first byte that differs, or -1.
  int64_t FindDifference(const std::vector<unsigned char> &got);
  // The K and V of a token of a page as bytes, of all layers: what a step may write.
  std::vector<unsigned char> TokenBytes(const std::vector<unsigned char> &all, int32_t page, int32_t token) const;

private:
  struct Stretch {
    size_t base; // in the allocation; like the strides in bytes
    size_t page, token, head;
  };
  struct Shape { // of K or of V
    size_t heads, dim, element;
    size_t Head() const { return dim * element; }
    size_t Token() const { return heads * Head(); }
  };

  size_t At(int32_t layer, Tensor which, int32_t page, int32_t token, int32_t head) const;
  bool Owns(size_t layer) const { return layers_[layer].HasOwnCache() && layers_[layer].group == group_; }
  void PlaceAll();
  // Bytes of K or V of a page of a layer.
  size_t PageBytes(size_t layer, size_t v) const { return shapes_[layer][v].Token() * page_size_; }
  Stretch PlaceOne(size_t layer, size_t v, const std::array<size_t, 2> &before) const;
  Stretch PlaceInOrder(size_t layer, size_t v) const;
  template <class Do> void ForEachHead(int32_t page, int32_t token, Do what) const;

  std::vector<LayerOptions> layers_;
  std::vector<std::array<Shape, 2>> shapes_;
  KvLayout layout_;
  std::string order_;
  int32_t group_, write_trash_;
  size_t page_size_, num_pages_, page_gap_;
  std::array<size_t, 2> page_bytes_ = {}; // of one page of all layers: of K, and of V
  std::vector<std::array<Stretch, 2>> places_;
  std::vector<unsigned char> image_;
  std::set<std::pair<int32_t, int32_t>> doubtful_;
  void *memory_ = nullptr;
};

} // namespace cgr_test
