// The arithmetic of format_kernels.h, one source for both devices. A CTA calls Run* with all of its threads.
#pragma once

#include <cmath>
#include <cstring>

#include "base/host_device.h"
#include "cgr/interop/flashinfer.h"
#include "cgr/interop/flashmla.h"
#include "tests/support/format_kernels.h"

namespace cgr_test {

// ---------------------------------------------------------------------------------------------------------------- elements

CGR__HOST_DEVICE double LoadNumber(int32_t dtype, const void *data, int64_t at) {
  if (dtype == CGR_DTYPE_FP32)
    return static_cast<double>(static_cast<const float *>(data)[at]);
  const uint32_t bits = uint32_t{ static_cast<const uint16_t *>(data)[at] } << 16;
  float value;
  memcpy(&value, &bits, sizeof value);
  return static_cast<double>(value);
}

CGR__HOST_DEVICE void StoreNumber(int32_t dtype, void *data, int64_t at, double number) {
  const float value = static_cast<float>(number);
  if (dtype == CGR_DTYPE_FP32) {
    static_cast<float *>(data)[at] = value;
    return;
  }
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  if ((bits & 0x7fffffffu) > 0x7f800000u) // a NaN stays one
    bits = 0x7fc00000u;
  else
    bits += 0x7fffu + (bits >> 16 & 1u);
  static_cast<uint16_t *>(data)[at] = static_cast<uint16_t>(bits >> 16);
}

CGR__HOST_DEVICE void Count(int32_t *counter) {
#ifdef __CUDA_ARCH__
  atomicAdd(counter, 1);
#else
  ++*counter;
#endif
}
CGR__HOST_DEVICE void CountError(const FormatAttention &a) { Count(a.errors); }

CGR__HOST_DEVICE int32_t WordAt(const FormatAttention &a, int64_t byte, int64_t index) {
  int32_t word;
  memcpy(&word, a.words + byte + 4 * index, 4);
  return word;
}

// ------------------------------------------------------------------------------------------------------------------- work

// A CTA's rows of a request, heads and keys: lines [line_begin, line_end) of each of the heads [head_begin, head_end). A line is
// row * q_per_kv + query head of the KV head. The partial of a row goes to index first_partial + row * partial_stride;
// first_partial -1: to the output.
struct FormatWork {
  int32_t request, q_per_kv, head_begin, head_end;
  int64_t line_begin, line_end, kv_begin, kv_end;
  int64_t rows, kv_len; // of the request
  int64_t first_row;    // in q and out
  int64_t first_partial, partial_stride;
};

CGR__HOST_DEVICE bool IsFlashInfer(const FormatAttention &a) {
  return a.format == Format::kFlashInferDecode || a.format == Format::kFlashInferPrefill;
}

// The page of a token, or -1.
CGR__HOST_DEVICE int32_t PageOf(const FormatAttention &a, int32_t request, int64_t token) {
  const int64_t index = token / a.page_size;
  int32_t page;
  if (IsFlashInfer(a)) {
    const int64_t at = a.kv_indptr[request] + index;
    page = at < a.kv_indptr[request + 1] ? a.kv_indices[at] : -1;
  } else {
    page = index < a.block_table_stride ? a.block_table[request * a.block_table_stride + index] : -1;
  }
  return page >= 0 && page < a.num_pages ? page : -1;
}

CGR__HOST_DEVICE double Score(const FormatAttention &a, int64_t q_at, int64_t k_at) {
  double score = 0.0;
  for (int32_t d = 0; d < a.head_dim; d++)
    score += LoadNumber(a.q.dtype, a.q.data, q_at + d) * LoadNumber(a.k.dtype, a.k.base, k_at + d);
  return score * a.scale;
}

// Where a row's result for a head goes.
struct FormatPlace {
  double *partial; // NULL: the output
  double *partial_lse;
  int64_t out, lse;
};

CGR__HOST_DEVICE void PutElement(const FormatAttention &a, const FormatPlace &to, int32_t d, double value) {
  if (to.partial != nullptr)
    to.partial[d] = value;
  else
    StoreNumber(a.out.dtype, a.out.data, to.out + d, value);
}

CGR__HOST_DEVICE void PutLse(const FormatAttention &a, const FormatPlace &to, double lse) {
  if (to.partial_lse != nullptr)
    *to.partial_lse = lse;
  else if (a.lse.data != nullptr)
    static_cast<float *>(a.lse.data)[to.lse] = static_cast<float>(lse);
}

CGR__HOST_DEVICE FormatPlace OutputOf(const FormatAttention &a, int64_t row, int32_t head) {
  return { nullptr, nullptr, row * a.out.stride_token + head * a.out.stride_head,
           row * a.lse.stride_token + head * a.lse.stride_head };
}

// One row and one query head against the work's keys; it sees those up to its own.
CGR__HOST_DEVICE void AttendRow(const FormatAttention &a, const FormatWork &w, int64_t row, int32_t q_head) {
  const int64_t token = w.first_row + row;
  if (row < 0 || row >= w.rows || token < 0 || token >= a.num_tokens || q_head >= a.num_q_heads) {
    CountError(a);
    return;
  }
  FormatPlace to = OutputOf(a, token, q_head);
  if (w.first_partial >= 0) {
    const int64_t index = w.first_partial + row * w.partial_stride;
    if (index >= a.num_partials) {
      CountError(a);
      return;
    }
    to.partial = a.partial_out + (index * a.num_q_heads + q_head) * a.head_dim;
    to.partial_lse = a.partial_lse + index * a.num_q_heads + q_head;
  }
  const int32_t kv_head = q_head / (a.num_q_heads / a.num_kv_heads);
  const int64_t seen = w.kv_len - w.rows + row + 1, end = w.kv_end < seen ? w.kv_end : seen;
  const int64_t q_at = token * a.q.stride_token + q_head * a.q.stride_head;
  double largest = -INFINITY, sum = 0.0, out[256];
  for (int32_t d = 0; d < a.head_dim; d++)
    out[d] = 0.0;
  for (int64_t t = w.kv_begin; t < end; t++) {
    const int64_t page = PageOf(a, w.request, t), in_page = t % a.page_size;
    if (page < 0) {
      CountError(a);
      return;
    }
    const double score = Score(a, q_at, page * a.k.stride_page + in_page * a.k.stride_token + kv_head * a.k.stride_head);
    if (score > largest || score != score) { // the sums so far were of a smaller maximum
      const double shrink = exp(largest - score);
      largest = score;
      sum *= shrink;
      for (int32_t d = 0; d < a.head_dim; d++)
        out[d] *= shrink;
    }
    const double weight = exp(score - largest);
    const int64_t v_at = page * a.v.stride_page + in_page * a.v.stride_token + kv_head * a.v.stride_head;
    sum += weight;
    for (int32_t d = 0; d < a.head_dim; d++)
      out[d] += weight * LoadNumber(a.v.dtype, a.v.base, v_at + d);
  }
  const bool none = w.kv_begin >= end;
  for (int32_t d = 0; d < a.head_dim; d++)
    PutElement(a, to, d, none ? 0.0 : out[d] / sum);
  PutLse(a, to, none ? -INFINITY : largest + log(sum));
}

CGR__HOST_DEVICE void RunWork(const FormatAttention &a, const FormatWork &w, int32_t thread, int32_t threads) {
  const int64_t lines = w.line_end - w.line_begin, all = lines * (w.head_end - w.head_begin);
  for (int64_t u = thread; u < all; u += threads) {
    const int64_t line = w.line_begin + u % lines;
    const int32_t head = w.head_begin + static_cast<int32_t>(u / lines);
    AttendRow(a, w, line / w.q_per_kv, head * w.q_per_kv + static_cast<int32_t>(line % w.q_per_kv));
  }
}

// Partials first, first + step, ... into a row of the output; none of them: zeros.
CGR__HOST_DEVICE void MergeRow(const FormatAttention &a, int64_t row, int32_t head, int64_t first, int64_t step, int64_t count) {
  if (row >= a.num_tokens || first < 0 || count < 0 || (count > 0 && first + (count - 1) * step >= a.num_partials)) {
    CountError(a);
    return;
  }
  if (count > 1)
    Count(a.errors + 1);
  const FormatPlace to = OutputOf(a, row, head);
  double largest = -INFINITY, sum = 0.0;
  for (int64_t i = 0; i < count; i++) {
    const double lse = a.partial_lse[(first + i * step) * a.num_q_heads + head];
    largest = lse > largest || lse != lse ? lse : largest;
  }
  const bool none = largest == -INFINITY;
  for (int64_t i = 0; i < count && !none; i++)
    sum += exp(a.partial_lse[(first + i * step) * a.num_q_heads + head] - largest);
  double out[256];
  for (int32_t d = 0; d < a.head_dim; d++)
    out[d] = 0.0;
  for (int64_t i = 0; i < count && !none; i++) {
    const int64_t at = (first + i * step) * a.num_q_heads + head;
    const double weight = exp(a.partial_lse[at] - largest) / sum;
    for (int32_t d = 0; d < a.head_dim; d++)
      out[d] += weight * a.partial_out[at * a.head_dim + d];
  }
  for (int32_t d = 0; d < a.head_dim; d++)
    PutElement(a, to, d, out[d]);
  PutLse(a, to, none ? -INFINITY : largest + log(sum));
}

CGR__HOST_DEVICE FormatWork WorkOf(const FormatAttention &a, int32_t request) {
  FormatWork w = {};
  w.request = request;
  w.q_per_kv = a.num_q_heads / a.num_kv_heads;
  w.head_end = a.num_kv_heads;
  w.first_row = a.query_start_loc[request];
  w.rows = a.query_start_loc[request + 1] - w.first_row;
  w.line_end = w.rows * w.q_per_kv;
  w.first_partial = -1;
  if (!IsFlashInfer(a)) {
    w.kv_len = a.seq_lens[request];
    return w;
  }
  const int64_t pages = a.kv_indptr[request + 1] - a.kv_indptr[request];
  w.kv_len = pages == 0 ? 0 : (pages - 1) * a.page_size + a.kv_last_page_len[request];
  return w;
}

// --------------------------------------------------------------------------------------------------------------- FlashMLA

CGR__HOST_DEVICE void RunFlashMla(const FormatAttention &a, int32_t part, int32_t thread, int32_t threads) {
  const int64_t at = int64_t{ part } * 32, splits = int64_t{ a.flashmla.num_parts } * 32;
  const bool v1 = a.flashmla.layout == CGR_FLASHMLA_V1;
  const int32_t begin = WordAt(a, at, 0), end = WordAt(a, at, v1 ? 2 : 1);
  const int32_t begin_block = WordAt(a, at, v1 ? 1 : 2), end_block = WordAt(a, at, 3);
  if (begin >= a.num_requests)
    return;
  if (begin < 0 || end >= a.num_requests) {
    CountError(a);
    return;
  }
  for (int32_t r = begin; r <= end; r++) {
    FormatWork w = WorkOf(a, r);
    const int64_t size = a.flashmla.block_size;
    w.kv_begin = (r == begin ? begin_block : 0) * size;
    w.kv_end = r == end ? end_block * size : w.kv_len;
    w.kv_end = w.kv_end < w.kv_len ? w.kv_end : w.kv_len;
    const int32_t first = WordAt(a, splits, r);
    const bool is_split = v1           ? WordAt(a, splits, r + 1) - first != 1
                          : r == begin ? WordAt(a, at, 5) != 0
                                       : r == end && WordAt(a, at, 6) != 0;
    if (is_split) {
      w.first_partial = int64_t{ first + (r == begin ? WordAt(a, at, 4) : 0) } * a.flashmla.max_query_len;
      w.partial_stride = 1;
    }
    RunWork(a, w, thread, threads);
  }
}

CGR__HOST_DEVICE void MergeFlashMla(const FormatAttention &a, int32_t request, int32_t thread, int32_t threads) {
  const int64_t splits = int64_t{ a.flashmla.num_parts } * 32;
  const int64_t first = WordAt(a, splits, request), count = WordAt(a, splits, request + 1) - first;
  const int64_t row = a.query_start_loc[request], rows = a.query_start_loc[request + 1] - row;
  for (int64_t u = thread; u < rows * a.num_q_heads && count != 1; u += threads)
    MergeRow(a, row + u / a.num_q_heads, static_cast<int32_t>(u % a.num_q_heads),
             first * a.flashmla.max_query_len + u / a.num_q_heads, a.flashmla.max_query_len, count);
}

// -------------------------------------------------------------------------------------------------------- FlashAttention-3

CGR__HOST_DEVICE int32_t Fa3Word(const FormatAttention &a, int32_t at, int32_t i) { return WordAt(a, 0, int64_t{ at } + i); }
CGR__HOST_DEVICE int32_t Fa3Splits(const FormatAttention &a, int32_t entry) {
  return a.fa3.num_splits > 1 && a.fa3.at_num_splits >= 0 ? Fa3Word(a, a.fa3.at_num_splits, entry) : 1;
}
CGR__HOST_DEVICE int32_t Fa3Request(const FormatAttention &a, int32_t entry) {
  return a.fa3.at_batch_idx >= 0 ? Fa3Word(a, a.fa3.at_batch_idx, entry) : entry;
}
CGR__HOST_DEVICE int32_t Fa3Tiles(const FormatAttention &a, int32_t entry) {
  if (a.fa3.at_num_m_blocks >= 0)
    return Fa3Word(a, a.fa3.at_num_m_blocks, entry);
  return (Fa3Word(a, a.fa3.at_seqlen_q, entry) + a.fa3.tile_m - 1) / a.fa3.tile_m;
}

CGR__HOST_DEVICE int64_t SmallerOf(int64_t a, int64_t b) { return a < b ? a : b; }

// Tile `tile` of an entry, without windows.
CGR__HOST_DEVICE void RunFa3Tile(const FormatAttention &a, int32_t entry, int64_t tile, int32_t thread, int32_t threads) {
  const int32_t request = Fa3Request(a, entry), splits = Fa3Splits(a, entry), m_tiles = Fa3Tiles(a, entry);
  if (request < 0 || request >= a.num_requests || splits < 1 || splits > a.fa3.num_splits) {
    CountError(a);
    return;
  }
  FormatWork w = WorkOf(a, request);
  w.q_per_kv = a.fa3.pack_gqa ? w.q_per_kv : 1;
  const int32_t heads = a.num_q_heads / w.q_per_kv;
  int64_t m, head, split = 0;
  if (a.fa3.head_swizzle && splits == 1) {
    const int64_t in_l2 = Fa3Word(a, a.fa3.at_nheads_in_l2, entry), section = tile / (in_l2 * m_tiles);
    const int64_t rest = tile % (in_l2 * m_tiles), here = SmallerOf(in_l2, heads - section * in_l2);
    m = rest / here;
    head = section * in_l2 + rest % here;
  } else {
    m = tile % m_tiles;
    head = tile / m_tiles / splits;
    split = tile / m_tiles % splits;
  }
  m = a.fa3.head_swizzle ? m_tiles - 1 - m : m;
  w.head_begin = static_cast<int32_t>(head);
  w.head_end = w.head_begin + 1;
  w.line_begin = m * a.fa3.tile_m;
  w.line_end = SmallerOf(w.line_begin + a.fa3.tile_m, w.rows * w.q_per_kv);
  const int64_t last = ((m + 1) * a.fa3.tile_m - 1) / w.q_per_kv + 1 + w.kv_len - w.rows, size = a.fa3.tile_n;
  const int64_t end = SmallerOf((w.kv_len + size - 1) / size, (last + size - 1) / size), each = (end + splits - 1) / splits;
  w.kv_begin = split * each * size;
  w.kv_end = SmallerOf(SmallerOf((split + 1) * each, end) * size, w.kv_len);
  if (splits > 1) {
    w.first_partial = split * a.num_tokens + w.first_row;
    w.partial_stride = 1;
  }
  RunWork(a, w, thread, threads);
}

// What the tile counter deals out, the same for all threads of a CTA.
CGR__HOST_DEVICE int32_t DealFa3(const FormatAttention &a) {
  int32_t *counter = reinterpret_cast<int32_t *>(a.words) + a.fa3.at_semaphore;
#ifdef __CUDA_ARCH__
  __shared__ int32_t dealt;
  __syncthreads(); // all have read the last one
  if (threadIdx.x == 0)
    dealt = atomicAdd(counter, 1);
  __syncthreads();
  return dealt;
#else
  return (*counter)++;
#endif
}

// A CTA begins with the tile of its own number.
CGR__HOST_DEVICE void RunFa3(const FormatAttention &a, int32_t cta, int32_t thread, int32_t threads) {
  int64_t next = cta;
  int32_t entry = 0;
  int64_t before = 0; // tiles of the entries before
  for (;;) {
    while (entry < a.num_requests) {
      const int64_t heads = a.fa3.pack_gqa ? a.num_kv_heads : a.num_q_heads;
      const int64_t tiles = Fa3Tiles(a, entry) * heads * Fa3Splits(a, entry);
      if (next < before + tiles)
        break;
      before += tiles;
      entry++;
    }
    if (entry == a.num_requests)
      return;
    RunFa3Tile(a, entry, next - before, thread, threads);
    next = int64_t{ DealFa3(a) } + a.num_ctas;
  }
}

// Also resets the tile counter, for the next layer of the same plan.
CGR__HOST_DEVICE void MergeFa3(const FormatAttention &a, int32_t entry, int32_t thread, int32_t threads) {
  if (entry == 0 && thread == 0)
    reinterpret_cast<int32_t *>(a.words)[a.fa3.at_semaphore] = 0;
  const int32_t request = Fa3Request(a, entry), splits = Fa3Splits(a, entry);
  if (request < 0 || request >= a.num_requests) {
    CountError(a);
    return;
  }
  const int64_t row = a.query_start_loc[request], rows = a.query_start_loc[request + 1] - row;
  for (int64_t u = thread; u < rows * a.num_q_heads && splits > 1; u += threads)
    MergeRow(a, row + u / a.num_q_heads, static_cast<int32_t>(u % a.num_q_heads), row + u / a.num_q_heads, a.num_tokens, splits);
}

// -------------------------------------------------------------------------------------------------------------- FlashInfer

CGR__HOST_DEVICE bool IsDecode(const FormatAttention &a) { return a.format == Format::kFlashInferDecode; }
CGR__HOST_DEVICE bool IsSplit(const FormatAttention &a) { return a.flashinfer.info[IsDecode(a) ? 9 : 14] != 0; }

CGR__HOST_DEVICE void RunFlashInfer(const FormatAttention &a, int32_t cta, int32_t thread, int32_t threads) {
  const int64_t *info = a.flashinfer.info;
  const bool decode = IsDecode(a), split = IsSplit(a);
  const bool has_mask = split || (!decode && a.flashinfer_layout == CGR_FLASHINFER_V0_7_1); // all plans are for graphs
  if (has_mask && a.words[info[decode ? 6 : 12] + cta] == 0)
    return;
  const int32_t request = WordAt(a, info[decode ? 3 : 4], cta);
  const int64_t kv_tile = WordAt(a, info[decode ? 4 : 6], cta), q_tile = decode ? 0 : WordAt(a, info[5], cta);
  const int64_t chunk = WordAt(a, info[decode ? 7 : 9], 0);
  if (request < 0 || request >= a.num_requests || kv_tile < 0 || q_tile < 0 || (split && chunk <= 0)) {
    CountError(a);
    return;
  }
  FormatWork w = WorkOf(a, request);
  if (decode) { // row i is request i
    w.first_row = request;
    w.rows = 1;
    w.line_end = w.q_per_kv;
  } else {
    w.line_begin = q_tile * info[3];
    w.line_end = SmallerOf(w.line_begin + info[3], w.rows * w.q_per_kv);
  }
  w.kv_end = w.kv_len;
  if (split) {
    const int64_t seen = w.kv_len > 1 ? w.kv_len : 1;
    w.kv_begin = SmallerOf(kv_tile * chunk, w.kv_len);
    w.kv_end = SmallerOf((kv_tile + 1) * chunk, w.kv_len);
    w.partial_stride = decode ? 0 : (seen + chunk - 1) / chunk;
    w.first_partial = decode ? cta : WordAt(a, info[8], request) + kv_tile;
  }
  RunWork(a, w, thread, threads);
}

// `row`: of the output.
CGR__HOST_DEVICE void MergeFlashInfer(const FormatAttention &a, int32_t row, int32_t thread, int32_t threads) {
  const int64_t *info = a.flashinfer.info;
  const bool decode = IsDecode(a);
  if (!IsSplit(a) || (!decode && row >= WordAt(a, info[2], 0)))
    return;
  const int64_t indptr = decode ? info[5] : info[7], first = WordAt(a, indptr, row);
  for (int32_t head = thread; head < a.num_q_heads; head += threads)
    MergeRow(a, row, head, first, 1, WordAt(a, indptr, row + 1) - first);
}

// -------------------------------------------------------------------------------------------------------------- the phases

// First: padding tokens, about which no kernel below knows.
CGR__HOST_DEVICE void ClearToken(const FormatAttention &a, int32_t token, int32_t thread, int32_t threads) {
  for (int32_t head = thread; head < a.num_q_heads; head += threads) {
    const FormatPlace to = OutputOf(a, token, head);
    for (int32_t d = 0; d < a.head_dim; d++)
      PutElement(a, to, d, 0.0);
    PutLse(a, to, -INFINITY);
  }
}

CGR__HOST_DEVICE void RunCta(const FormatAttention &a, int32_t cta, int32_t thread, int32_t threads) {
  if (a.format == Format::kFa3)
    RunFa3(a, cta, thread, threads);
  else if (a.format == Format::kFlashMla)
    RunFlashMla(a, cta, thread, threads);
  else
    RunFlashInfer(a, cta, thread, threads);
}

CGR__HOST_DEVICE int32_t NumMerges(const FormatAttention &a) {
  return a.format == Format::kFlashInferPrefill ? a.num_tokens : a.num_requests;
}
CGR__HOST_DEVICE void RunMerge(const FormatAttention &a, int32_t entry, int32_t thread, int32_t threads) {
  if (a.format == Format::kFa3)
    MergeFa3(a, entry, thread, threads);
  else if (a.format == Format::kFlashMla)
    MergeFlashMla(a, entry, thread, threads);
  else
    MergeFlashInfer(a, entry, thread, threads);
}

} // namespace cgr_test
