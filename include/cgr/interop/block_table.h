/* Block tables in the order of the batch, for kernels like TRT-LLM-gen and XQA, on the host or on a device. Not included by
 * cgr.h. */
#ifndef CGR_INTEROP_BLOCK_TABLE_H
#define CGR_INTEROP_BLOCK_TABLE_H

#include "cgr/attention.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What kernels like TRT-LLM-gen and XQA read, as vLLM's FlashInfer backend calls them: a table of pages in the order of the
 * batch, lengths and running sums of tokens. The fields before the arrays are the key.
 *
 * On the device, a request whose row or length is out of range is empty, and a page outside the pool is replaced by
 * read_trash_page. */
typedef struct cgr_block_table_input {
  uint32_t size;
  int32_t num_requests;           /* B, padding included, 1 .. 4096 */
  int32_t query_len;              /* query tokens of each request of the key, 1 .. 2^24 */
  int32_t max_seq_len;            /* tokens of the longest sequence that the key is for; B times that is below 2^31 */
  int32_t max_pages;              /* P: entries of a row that is written, at least max_seq_len / page_size rounded up */
  int32_t page_size;              /* 16, 32 or 64: what such kernels read */
  int32_t kv_layout;              /* CGR_LAYOUT_HND, the one that they read, or 0 */
  int32_t read_trash_page;        /* a page of the pool that may be read and means nothing */
  int32_t num_rows;               /* rows of page_table, one of padding included, 1 .. 2^20 + 1 */
  int32_t reserved;
  int64_t num_pages;              /* of the pool, below 2^31 */
  int64_t page_table_stride;      /* words from one row to the next, at least max_seq_len / page_size rounded up */
  const int32_t *page_table;      /* [num_rows][page_table_stride] */
  const int32_t *rows;            /* [num_requests] of page_table */
  const int32_t *seq_lens;        /* [num_requests] tokens in the cache, the new ones included */
  const int32_t *query_start_loc; /* [num_requests + 1] running sum of query tokens, at most query_len of each request; read up to
                                     the live ones */
  const int32_t *live_requests;   /* [1] 0 .. num_requests; NULL: all are live */
} cgr_block_table_input;
#define CGR_BLOCK_TABLE_INPUT_INIT                                                                                             \
  { (uint32_t)sizeof(cgr_block_table_input), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, NULL, NULL, NULL, NULL, NULL }

/* What follows from the key: where things are in the memory that is written, and the scalars that such kernels take. */
typedef struct cgr_block_table_layout {
  uint32_t size;
  int32_t query_len;      /* q_len_per_req */
  int32_t max_query_len;  /* max_q_len: the same */
  int32_t max_seq_len;    /* max_kv_len */
  size_t bytes;           /* of all */
  size_t block_table;     /* byte of i32 [num_requests][max_pages]: pages, then the read-trash page; padding the same */
  size_t seq_lens;        /* byte of i32 [num_requests]; padding 0 */
  size_t query_start_loc; /* byte of i32 [num_requests + 1]; padding repeats the last value */
  size_t kv_start_loc;    /* byte of i32 [num_requests + 1]: running sum of seq_lens; padding repeats the last value */
} cgr_block_table_layout;
#define CGR_BLOCK_TABLE_LAYOUT_INIT { (uint32_t)sizeof(cgr_block_table_layout), 0, 0, 0, 0, 0, 0, 0, 0 }

/* The arrays are not read.
 * Threads any · Capture ok · Sync never · Alloc never */
CGR_API cgr_status cgr_block_table_get_layout(const cgr_block_table_input *input, cgr_block_table_layout *layout);

/* From host arrays. `memory` is aligned to 16 bytes. Rows, lengths, pages and sums out of range are refused here. All words are
 * written.
 * Threads any · Capture ok · Sync never · Alloc never */
CGR_API cgr_status cgr_block_table_build(const cgr_block_table_input *input, void *memory, size_t bytes);

/* The same by one kernel on `stream`: arrays and `memory` are memory of the device, and are read and written when it runs. The
 * first call on a device loads the kernel, and must not be inside a capture.
 * Threads any · Capture adds · Sync never · Alloc cold */
CGR_API cgr_status cgr_block_table_enqueue(cgr_device *device, const cgr_block_table_input *input, void *memory, size_t bytes,
                                           cudaStream_t stream);

/* The two scales of such kernels. Q K^T is multiplied by q_scale * k_scale * softmax_scale, P V by v_scale / o_scale. q_scale,
 * k_scale and v_scale turn stored values into what they stand for; o_scale does so for an output that is stored as FP8, and is
 * 1 for others (0 is taken as 1). A captured graph keeps the scales of its recording.
 * Threads any · Capture ok · Sync never · Alloc never */
CGR_API double cgr_block_table_bmm1_scale(double q_scale, double k_scale, double softmax_scale);
CGR_API double cgr_block_table_bmm2_scale(double v_scale, double o_scale);

#ifdef __cplusplus
}
#endif
#endif
