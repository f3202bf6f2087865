// What FlashMLA's kernels do with the metadata: which blocks of KV each part reads for which requests, where it puts the
// result, and what the combine kernel merges. It reads only the buffers and the lengths, as
// csrc/sm90/decode/dense/splitkv_mla.cuh and csrc/smxx/decode/combine/combine.cu of deepseek-ai/FlashMLA 9241ae3ef9ba do, and
// splitkv_mla.cu of 1408756a88e5 for v1.
#pragma once

#include <cstdint>
#include <vector>

#include "cgr/interop/flashmla.h"

namespace cgr_test {

// A stretch of blocks of one request that one part works on.
struct FlashmlaItem {
  int32_t part, request;
  int32_t begin, end; // blocks
  int32_t partial;    // its index; -1: it is the request's output
};

struct FlashmlaWork {
  std::vector<FlashmlaItem> items;
  std::vector<int32_t> first_partial; // [num_requests + 1]: unless a request has one partial, it is merged from its partials
};

// `tokens`: of every request, 0 for those that are not live. Parts whose words would take a kernel out of its arrays are a
// failure (false).
inline bool ReadFlashmla(int32_t layout, const std::vector<int32_t> &tokens, int32_t block_size, int32_t num_parts,
                         const int32_t *metadata, FlashmlaWork *work) {
  const int32_t b = int32_t(tokens.size()), *splits = metadata + size_t(num_parts) * 8;
  work->items.clear();
  work->first_partial.assign(splits, splits + b + 1);
  for (int32_t p = 0; p < num_parts; p++) {
    const int32_t *w = metadata + size_t(p) * 8;
    const bool v1 = layout == CGR_FLASHMLA_V1;
    const int32_t begin = w[0], end = v1 ? w[2] : w[1], begin_block = v1 ? w[1] : w[2], end_block = w[3];
    if (begin >= b)
      continue;
    if (begin < 0 || end >= b)
      return false;
    for (int32_t r = begin; r <= end; r++) {
      FlashmlaItem item = { p, r, r == begin ? begin_block : 0, 0, -1 };
      item.end = r == end ? end_block : (tokens[size_t(r)] + block_size - 1) / block_size;
      bool alone = v1 ? splits[r + 1] - splits[r] == 1 : !(r == begin ? w[5] : r == end ? w[6] : 0);
      if (!alone)
        item.partial = splits[r] + (r == begin ? w[4] : 0);
      work->items.push_back(item);
    }
  }
  return true;
}

} // namespace cgr_test
