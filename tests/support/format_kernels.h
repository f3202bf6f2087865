// Attention kernels, for CUDA and for the host, that read the plans of other projects' kernels as those kernels do: they cut as
// the plan says, put partial results where the plan puts them, and merge them by the plan's indices. They read only the plan, the
// persistent buffers and the pages; launches follow from the key. In fp64, and slow.
#pragma once

#include "cgr/cgr.h"
#include "cgr/interop/fa3.h"
#include "cgr/interop/flashinfer.h"

namespace cgr_test {

enum class Format : int32_t { kFa3, kFlashMla, kFlashInferDecode, kFlashInferPrefill };

// What FlashMLA's kernels know besides the words.
struct FlashMlaShape {
  int32_t layout, num_parts, block_size, max_query_len; // the latter: rows of a partial
};

struct FormatAttention {
  Format format;
  int32_t num_ctas, num_requests, num_tokens; // padded
  int32_t num_q_heads, num_kv_heads, head_dim, page_size;
  int32_t num_pages, reserved;
  double scale;
  cgr_view q, out, lse;
  cgr_kv_view k, v;
  const int32_t *query_start_loc, *seq_lens;
  const int32_t *block_table; // [num_requests][block_table_stride]; FA3, FlashMLA
  int64_t block_table_stride;
  const int32_t *kv_indices, *kv_indptr, *kv_last_page_len; // FlashInfer
  unsigned char *words;                                     // the plan
  double *partial_out;                                      // [num_partials][num_q_heads][head_dim]
  double *partial_lse;                                      // [num_partials][num_q_heads]
  int64_t num_partials;
  int32_t *errors; // [0] counts words that would take a kernel out of its arrays, [1] rows with more than one partial
  cgr_fa3_sizes fa3;
  FlashMlaShape flashmla;
  cgr_flashinfer_plan flashinfer;
  int32_t flashinfer_layout, reserved_end;
};

// For a backend's `record`. `on_cuda`: with kernels; else with a host function.
cgr_status EnqueueFormat(cgr_device *device, bool on_cuda, const FormatAttention &args, cudaStream_t stream);

} // namespace cgr_test

// The launcher of format_kernels.cu: a cudaError_t.
extern "C" int test_format_attention(const cgr_test::FormatAttention *args, cudaStream_t stream);
