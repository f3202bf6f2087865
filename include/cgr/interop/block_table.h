/* Block tables in the order of the batch, for kernels like TRT-LLM-gen and XQA, on the host or on a device. Not included by
 * cgr.h. */
#ifndef CGR_INTEROP_BLOCK_TABLE_H
#define CGR_INTEROP_BLOCK_TABLE_H

#include "cgr/attention.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What kernels like TRT-LLM-gen and XQA read, as vLLM's FlashInfer backend calls them: a table of pages in the order of the
 * batch, lengths and running sums of tokens. The numbers up to whole_query are the key.
 *
 * Such kernels take a mixed batch in two launches. With max_prefill_query_len the requests before first_prefill are the decodes,
 * which have the first arrays. The others are the prefills, which have arrays of their own (prefill_* of the layout): entry j is
 * that of request first_prefill + j. Both kinds of arrays have num_requests entries, padding after the last one, so that no
 * launch depends on how many decodes and prefills there are.
 *
 * If the engine's pages are larger than the kernel's, the table has those of the kernel. Page p of the pool is then n =
 * page_size / kernel_page_size pages of the kernel, p * n .. p * n + n - 1, which follow each other in memory.
 *
 * On the device, a request is empty if its row or length is out of range, or its length is below its new tokens. A page outside
 * the pool is replaced by read_trash_page, of whose n pages each stands for the one at its place. */
typedef struct cgr_block_table_input {
  uint32_t size;
  int32_t num_requests;           /* B, padding included, 1 .. 4096 */
  int32_t query_len;              /* most query tokens of a request, with prefills of a decode, 1 .. 2^24; 0: num_tokens divided by
                                     num_requests */
  int32_t max_seq_len;            /* tokens of the longest sequence that the key is for; B times that is below 2^31 */
  int32_t max_pages;              /* P: entries of a row that is written: max_seq_len / kernel_page_size rounded up .. 2^27 */
  int32_t page_size;              /* of page_table: a multiple of kernel_page_size, at most 65536 */
  int32_t kv_layout;              /* CGR_LAYOUT_HND, the one that they read, or 0 */
  int32_t read_trash_page;        /* a page of the pool that may be read and means nothing */
  int32_t num_rows;               /* rows of page_table, one of padding included, 1 .. 2^20 + 1 */
  int32_t kernel_page_size;       /* 16, 32, 64 or, for XQA alone, 128: what such kernels read; 0: page_size */
  int64_t num_pages;              /* of the pool; the kernel's pages in it are below 2^31 */
  int64_t page_table_stride;      /* words from one row to the next: max_seq_len / page_size rounded up .. 2^31 */
  const int32_t *page_table;      /* [num_rows][page_table_stride] */
  const int32_t *rows;            /* [num_requests] of page_table */
  const int32_t *seq_lens;        /* [num_requests] tokens in the cache, the new ones included */
  const int32_t *query_start_loc; /* [num_requests + 1] running sum of query tokens, at most query_len of each request, or
                                     max_prefill_query_len of each prefill; read up to the live ones. The device checks only
                                     decodes, with num_tokens */
  const int32_t *live_requests;   /* [1] 0 .. num_requests; NULL: all are live */
  const int32_t *first_prefill;   /* [1] 0 .. the live requests (CGR_COUNT_DECODES, say); NULL without max_prefill_query_len */
  int32_t num_tokens;             /* num_requests * query_len: decode i then has query_len tokens from i * query_len on, where
                                     kernels that take q_len_per_req look for them; on the device a decode whose tokens are
                                     elsewhere is empty. 0: decodes may have fewer, and the kernel reads query_start_loc. Any
                                     other number is refused */
  int32_t max_prefill_query_len;  /* query tokens of a prefill, 1 .. 2^24; 0: the batch has no prefills */
  int32_t whole_query;            /* not 0: the prefills' query_start_loc counts from the batch's first token, for a kernel that
                                     is given the whole batch's q, as in a graph; 0: from the first prefill on */
  /* What else such a kernel takes by value; scales are finite. The planner does not read it, but a graph keeps it: layout.hash
   * covers it, and cgr_block_table_check_replay compares it. Whatever the kernel is not given may stay 0. */
  int32_t window_left;            /* as the kernel takes it: any number */
  double bmm1_scale;              /* cgr_block_table_bmm1_scale */
  double bmm2_scale;              /* cgr_block_table_bmm2_scale */
  double o_sf_scale;              /* of an output in blocks of 4 bits (nvfp4): its scale, by which bmm2_scale is not divided */
  const float *sinks;             /* the address alone is kept and compared */
} cgr_block_table_input;
#define CGR_BLOCK_TABLE_INPUT_INIT                                                                                             \
  { (uint32_t)sizeof(cgr_block_table_input), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, 0, 0, 0, 0,  \
    0, 0, 0, NULL }

/* What follows from the key: where things are in the memory that is written, and the scalars that such kernels take. */
typedef struct cgr_block_table_layout {
  uint32_t size;
  int32_t query_len;      /* q_len_per_req */
  int32_t max_query_len;  /* max_q_len: the same */
  int32_t max_seq_len;    /* max_kv_len */
  size_t bytes;           /* of all */
  size_t block_table;     /* byte of i32 [num_requests][max_pages]: the kernel's pages, then the first one of the read-trash page;
                             padding the same */
  size_t seq_lens;        /* byte of i32 [num_requests]; padding 0 */
  size_t query_start_loc; /* byte of i32 [num_requests + 1]; padding repeats the last value */
  size_t kv_start_loc;    /* byte of i32 [num_requests + 1]: running sum of seq_lens; padding repeats the last value */
  uint64_t hash;          /* of the key and of all that the kernel takes by value, within a process: two inputs with the same hash
                             may share a graph */
  int32_t kernel_page_size;
  int32_t max_prefill_query_len;  /* max_q_len of the prefills; their max_kv_len is max_seq_len */
  /* Without prefills these are 0. */
  size_t prefill_block_table;     /* byte of i32 [num_requests][max_pages], as block_table */
  size_t prefill_seq_lens;        /* byte of i32 [num_requests]; padding 0 */
  size_t prefill_query_start_loc; /* byte of i32 [num_requests + 1], from 0 on without whole_query; padding repeats the last */
  size_t prefill_kv_start_loc;    /* byte of i32 [num_requests + 1]: running sum of prefill_seq_lens, of tokens, not of pages */
  size_t counts;                  /* byte of i32 [2][4], of the decodes and of the prefills: live requests, their query tokens,
                                     the most query tokens of one, the longest sequence; for launches outside of graphs */
} cgr_block_table_layout;
#define CGR_BLOCK_TABLE_LAYOUT_INIT { (uint32_t)sizeof(cgr_block_table_layout), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/* The arrays are not read. CGR_ERROR_UNSUPPORTED: a layout or page size that such kernels do not read.
 * CGR_ERROR_PAGE_OUT_OF_RANGE: read_trash_page. CGR_ERROR_INVALID_ARGUMENT: other numbers. The functions below refuse the same.
 * Threads any · Capture ok · Sync never · Alloc never */
CGR_API cgr_status cgr_block_table_get_layout(const cgr_block_table_input *input, cgr_block_table_layout *layout);

/* From host arrays. `memory` is aligned to 16 bytes. Rows, lengths and sums out of range are refused here
 * (CGR_ERROR_INVALID_ARGUMENT), and so are pages (CGR_ERROR_PAGE_OUT_OF_RANGE). All words are written.
 * Threads any · Capture ok · Sync never · Alloc never */
CGR_API cgr_status cgr_block_table_build(const cgr_block_table_input *input, void *memory, size_t bytes);

/* The same by one kernel on `stream`: arrays and `memory` are memory of the device, and are read and written when it runs. The
 * first call on a device loads the kernel, and must not be inside a capture.
 * Threads any · Capture adds · Sync never · Alloc cold */
CGR_API cgr_status cgr_block_table_enqueue(cgr_device *device, const cgr_block_table_input *input, void *memory, size_t bytes,
                                           cudaStream_t stream);

/* Whether a launch that a graph keeps would be the same today: it was captured with the input `captured`, and an eager step would
 * now have `now`. Compares the key and what the kernel takes by value, sinks by their address; the other arrays are not compared,
 * and may be NULL. CGR_ERROR_STALE_GRAPH names the first field that differs, with both values: capture again. A backend calls it
 * in plan_host, which comes before every replay.
 * Threads any · Capture ok · Sync never · Alloc never */
CGR_API cgr_status cgr_block_table_check_replay(const cgr_block_table_input *captured, const cgr_block_table_input *now);

/* The two scales of such kernels. Q K^T is multiplied by q_scale * k_scale * softmax_scale, P V by v_scale / o_scale. q_scale,
 * k_scale and v_scale turn stored values into what they stand for; o_scale does so for an output that is stored as FP8, and is
 * 1 for others (0 is taken as 1). A captured graph keeps the scales of its recording: put them into the input.
 * Threads any · Capture ok · Sync never · Alloc never */
CGR_API double cgr_block_table_bmm1_scale(double q_scale, double k_scale, double softmax_scale);
CGR_API double cgr_block_table_bmm2_scale(double v_scale, double o_scale);

#ifdef __cplusplus
}
#endif
#endif
