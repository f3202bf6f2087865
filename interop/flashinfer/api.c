/* The public functions of FlashInfer's plans on the host: validation, then host.c. */
#include <stdio.h>

#include "base/choices.h"
#include "base/range.h"
#include "base/sized.h"
#include "base/status.h"
#include "interop/flashinfer/host.h"
#include "interop/limits.h"

#define MAX_FLOAT_BYTES ((int64_t)1 << 62) /* sums stay below 2^63 */

/* ---------------------------------------------------------------------------------------------------------------- keys */

static cgr_status check_flashinfer_heads(const char *function, int32_t num_q_heads, int32_t num_kv_heads) {
  if (num_q_heads % num_kv_heads == 0)
    return CGR_OK;
  return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "%s: num_q_heads is %d, expected a multiple of num_kv_heads (%d)", function,
                   num_q_heads, num_kv_heads);
}

static int32_t min_chunk(int32_t page_size) { return page_size < 128 ? 128 / page_size : 1; }

cgr_status cgr__flashinfer_read_decode_key(const char *function, const cgr_flashinfer_decode_input *input,
                                           cgr_flashinfer_decode_input *in, cgr__flashinfer_key *key, bool *open) {
  char what[64];
  snprintf(what, sizeof what, "%s: input", function);
  CGR__TRY(cgr__sized_read(what, "CGR_FLASHINFER_DECODE_INPUT_INIT", input, in, sizeof *in));
  const cgr__field_range ranges[] = {
    { "num_requests", in->num_requests, 1, CGR__MAX_REQUESTS },
    { "num_q_heads", in->num_q_heads, 1, CGR__MAX_Q_HEADS },
    { "num_kv_heads", in->num_kv_heads, 1, CGR__MAX_Q_HEADS },
    { "head_dim", in->head_dim, 1, CGR__MAX_HEAD_DIM },
    { "page_size", in->page_size, 1, CGR__FORMATS_MAX_PAGE_SIZE },
    { "num_multiprocessors", in->num_multiprocessors, 1, CGR__FORMATS_MAX_SMS },
    { "blocks_per_multiprocessor", in->blocks_per_multiprocessor, 1, CGR__FLASHINFER_MAX_CTAS },
  };
  CGR__TRY(CGR__CHECK_RANGES(function, ranges));
  CGR__TRY(check_flashinfer_heads(function, in->num_q_heads, in->num_kv_heads));
  snprintf(what, sizeof what, "%s: reserved", function);
  CGR__TRY(cgr__check_unused(what, in->reserved));
  int32_t max_grid = in->num_multiprocessors * in->blocks_per_multiprocessor;
  bool fills = (int64_t)in->num_requests * in->num_kv_heads >= max_grid;
  *key = (cgr__flashinfer_key){ .decode = true,
                                .graph = in->graph != 0,
                                .split_kv = !fills,
                                .mode = fills ? CGR__FLASHINFER_WHOLE : CGR__FLASHINFER_SEARCH,
                                .num_requests = in->num_requests,
                                .uniform_rows = 1,
                                .num_q_heads = in->num_q_heads,
                                .q_per_kv = in->num_q_heads / in->num_kv_heads,
                                .head_dim = in->head_dim,
                                .cta_tile_q = 1,
                                .page_size = in->page_size,
                                .max_pages = INT32_MAX / in->page_size,
                                .window_pages = INT32_MAX,
                                .min_chunk = min_chunk(in->page_size),
                                .max_tiles = max_grid / in->num_kv_heads };
  key->tiles = fills ? in->num_requests : key->max_tiles;
  cgr__flashinfer_set_places(key);
  *open = !key->graph;
  return CGR_OK;
}

/* -------------------------------------------------------------------------------------------------------------- prefill */

static cgr_status check_prefill_ranges(const char *function, const cgr_flashinfer_prefill_input *in) {
  const cgr__field_range ranges[] = {
    { "num_requests", in->num_requests, 1, CGR__MAX_REQUESTS },
    { "total_num_rows", in->total_num_rows, 0, CGR__MAX_TOKENS },
    { "num_q_heads", in->num_q_heads, 1, CGR__MAX_Q_HEADS },
    { "num_kv_heads", in->num_kv_heads, 1, CGR__MAX_Q_HEADS },
    { "head_dim_qk", in->head_dim_qk, 1, CGR__MAX_HEAD_DIM },
    { "head_dim_vo", in->head_dim_vo, 1, CGR__MAX_HEAD_DIM },
    { "page_size", in->page_size, 1, CGR__FORMATS_MAX_PAGE_SIZE },
    { "kv_dtype_bytes", in->kv_dtype_bytes, 0, 4 },
    { "window", in->window, 0, INT32_MAX },
    { "num_colocated_ctas", in->num_colocated_ctas, 0, INT32_MAX },
    { "uniform_q_len", in->uniform_q_len, 0, in->graph || !in->qo_indptr ? CGR__MAX_TOKENS : 0 },
    { "num_multiprocessors", in->num_multiprocessors, 1, CGR__FORMATS_MAX_SMS },
    { "compute_capability", in->compute_capability, 0, 9999 },
    { "shared_memory", in->shared_memory, 0, INT32_MAX },
  };
  CGR__TRY(CGR__CHECK_RANGES(function, ranges));
  const cgr__field_range split = { "fixed_split_size", in->fixed_split_size, 0, INT32_MAX / in->page_size };
  return cgr__check_ranges(function, &split, 1);
}

/* Whether there is a plan for the attention kernel. Where KV is split, the kernel numbers a query's partials by the keys of its
 * window, and counts none after the query, whatever its mask: no plan can give it those keys. */
static cgr_status check_kernel(const char *function, const cgr_flashinfer_prefill_input *in) {
  CGR__TRY(cgr__check_choice(function, "layout", &cgr__flashinfer_layouts, in->layout));
  if (in->unmasked && in->window > 0 && !in->disable_split_kv)
    return cgr__fail(
        CGR_ERROR_UNSUPPORTED,
        "%s: window is %d with unmasked, expected 0, or disable_split_kv not 0: FlashInfer splits the keys of a window "
        "as if a query saw none after its own",
        function, in->window);
  return CGR_OK;
}

/* What the graph's tiles are, from the numbers of requests and rows. */
static cgr_status set_graph_tiles(const char *function, const cgr_flashinfer_prefill_input *in, cgr__flashinfer_key *key) {
  int64_t tiles, requests = in->num_requests, uniform = (int64_t)in->uniform_q_len * key->q_per_kv;
  if (in->uniform_q_len == 0 && in->total_num_rows < in->num_requests - 1)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "%s: total_num_rows is %d, expected at least %d (num_requests - 1)", function,
                     in->total_num_rows, in->num_requests - 1);
  if (in->uniform_q_len > 0) {
    cgr__flashinfer_set_tile(key, cgr__flashinfer_cta_tile_q(key, uniform));
    tiles = requests * cgr__flashinfer_ceil_div(uniform, key->cta_tile_q);
  } else {
    int64_t longest = ((int64_t)in->total_num_rows - requests + 1) * key->q_per_kv;
    cgr__flashinfer_set_tile(key, cgr__flashinfer_cta_tile_q(key, longest));
    tiles = cgr__flashinfer_ceil_div((int64_t)in->total_num_rows * key->q_per_kv, key->cta_tile_q) + requests - 1;
  }
  if (tiles < key->max_tiles)
    tiles = key->max_tiles;
  if (tiles * key->cta_tile_q > INT32_MAX)
    return cgr__fail(
        CGR_ERROR_INVALID_ARGUMENT,
        "%s: num_requests, total_num_rows and num_q_heads make %lld tiles of %d rows, expected at most 2^31 - 1 rows", function,
        (long long)tiles, key->cta_tile_q);
  key->tiles = (int32_t)tiles;
  return CGR_OK;
}

static cgr__flashinfer_key prefill_key(const cgr_flashinfer_prefill_input *in) {
  int64_t ctas = (int64_t)2 * in->num_multiprocessors - in->num_colocated_ctas;
  bool fixed = in->fixed_split_size > 0 && !in->disable_split_kv;
  cgr__flashinfer_key key = { .graph = in->graph != 0,
                              .only_uniform = in->graph && in->uniform_q_len > 0,
                              .layout = in->layout,
                              .num_requests = in->num_requests,
                              .uniform_rows = in->uniform_q_len > 0 ? in->uniform_q_len : 1,
                              .total_rows = in->total_num_rows,
                              .num_q_heads = in->num_q_heads,
                              .q_per_kv = in->num_q_heads / in->num_kv_heads,
                              .head_dim = in->head_dim_vo,
                              .head_dim_qk = in->head_dim_qk,
                              .kv_dtype_bytes = in->kv_dtype_bytes > 0 ? in->kv_dtype_bytes : 2,
                              .compute_capability = in->compute_capability > 0 ? in->compute_capability : 90,
                              .shared_memory = in->shared_memory > 0 ? in->shared_memory : 232448,
                              .window = in->window,
                              .page_size = in->page_size,
                              .max_pages = INT32_MAX / in->page_size,
                              .fixed_chunk = in->fixed_split_size,
                              .min_chunk = min_chunk(in->page_size),
                              .max_tiles = ctas > 0 ? (int32_t)(ctas / in->num_kv_heads) : 0 };
  key.mode = in->disable_split_kv ? CGR__FLASHINFER_WHOLE : fixed ? CGR__FLASHINFER_FIXED : CGR__FLASHINFER_SEARCH;
  key.split_kv = !in->disable_split_kv;
  return key;
}

static cgr_status check_implied_rows(const char *function, const cgr_flashinfer_prefill_input *in,
                                     const cgr__flashinfer_key *key) {
  int64_t rows = (int64_t)in->num_requests * key->uniform_rows;
  if (in->qo_indptr || rows <= in->total_num_rows)
    return CGR_OK;
  return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "%s: total_num_rows is %d, expected at least %lld: %d for each request", function,
                   in->total_num_rows, (long long)rows, key->uniform_rows);
}

cgr_status cgr__flashinfer_read_prefill_key(const char *function, const cgr_flashinfer_prefill_input *input,
                                            cgr_flashinfer_prefill_input *in, cgr__flashinfer_key *key, bool *open) {
  char what[64];
  snprintf(what, sizeof what, "%s: input", function);
  CGR__TRY(cgr__sized_read(what, "CGR_FLASHINFER_PREFILL_INPUT_INIT", input, in, sizeof *in));
  CGR__TRY(check_prefill_ranges(function, in));
  CGR__TRY(check_flashinfer_heads(function, in->num_q_heads, in->num_kv_heads));
  snprintf(what, sizeof what, "%s: reserved", function);
  CGR__TRY(cgr__check_unused(what, in->reserved));
  CGR__TRY(check_kernel(function, in));
  *key = prefill_key(in);
  *open = !key->graph || (key->mode == CGR__FLASHINFER_FIXED && !in->force_split_kv);
  CGR__TRY(check_implied_rows(function, in, key));
  if (!key->graph)
    return CGR_OK;
  CGR__TRY(set_graph_tiles(function, in, key));
  cgr__flashinfer_set_places(key);
  return CGR_OK;
}

/* -------------------------------------------------------------------------------------------------------------- lengths */

static cgr_status name_length(const char *function, const cgr__flashinfer_key *key, const cgr__flashinfer_arrays *arrays,
                              int32_t request, bool rows) {
  const int32_t *indptr = rows ? arrays->qo_indptr : arrays->kv_indptr;
  const char *name = rows ? "qo_indptr" : "kv_indptr";
  char uniform[64] = "";
  if (request < 0)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "%s: qo_indptr[0] is %d, expected 0", function, indptr[0]);
  int32_t begin = indptr[request], end = indptr[request + 1];
  if (begin < 0)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "%s: %s[%d] is %d, expected at least 0", function, name, request, begin);
  if (rows && key->only_uniform)
    snprintf(uniform, sizeof uniform, ", and %d rows (uniform_q_len) or none", key->uniform_rows);
  int64_t most = rows ? key->total_rows : (int64_t)begin + key->max_pages;
  return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "%s: %s[%d] is %d, expected %d (%s[%d]) .. %lld%s%s", function, name, request + 1,
                   end, begin, name, request, (long long)most, rows ? " (total_num_rows)" : "", uniform);
}

static cgr_status check_flashinfer_lengths(const char *function, const cgr__flashinfer_key *key,
                                           const cgr__flashinfer_arrays *arrays) {
  int32_t request;
  bool rows;
  if (!arrays->kv_indptr)
    return cgr__fail(CGR_ERROR_NULL_POINTER, "%s: kv_indptr is NULL, expected %d numbers", function, key->num_requests + 1);
  if (cgr__flashinfer_lengths_fit(key, arrays, &request, &rows))
    return CGR_OK;
  return name_length(function, key, arrays, request, rows);
}

/* Completes a key that depends on the lengths. */
static cgr_status complete_key(const char *function, cgr__flashinfer_key *key, const cgr__flashinfer_arrays *arrays) {
  cgr__flashinfer_batch batch;
  CGR__TRY(check_flashinfer_lengths(function, key, arrays));
  if (!cgr__flashinfer_complete_key(key, arrays, &batch))
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "%s: the lengths make %lld tiles and %lld partial rows, expected at most %d",
                     function, (long long)batch.tiles, (long long)batch.partials, INT32_MAX);
  int64_t rows = cgr__flashinfer_partial_rows(key), most = MAX_FLOAT_BYTES / 4 / key->num_q_heads / (key->head_dim + 1);
  if (key->split_kv && rows > most)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT,
                     "%s: the lengths make %lld rows of partials with num_q_heads %d and head_dim_vo %d, expected at most %lld, "
                     "for a float workspace of 2^62 bytes",
                     function, (long long)rows, key->num_q_heads, key->head_dim, (long long)most);
  return CGR_OK;
}

/* ------------------------------------------------------------------------------------------------------------ workspaces */

static int64_t rounded_to_16(int64_t bytes) { return (bytes + 15) / 16 * 16; }

cgr_flashinfer_plan cgr__flashinfer_describe(const cgr__flashinfer_key *key) {
  const cgr__flashinfer_places *at = &key->at;
  int64_t split_rows = key->split_kv ? cgr__flashinfer_partial_rows(key) : 0;
  int64_t s_bytes = key->num_q_heads * split_rows * 4, s_offset = rounded_to_16(s_bytes * key->head_dim);
  int64_t merge = at->merge_indptr < 0 ? 0 : at->merge_indptr, mask = at->valid_mask < 0 ? 0 : at->valid_mask;
  int64_t rows = at->total_num_rows < 0 ? 0 : at->total_num_rows;
  const int64_t decode[] = { key->tiles,   0,    s_offset,          at->request_indices, at->kv_tile_indices,
                             at->o_indptr, mask, at->kv_chunk_size, key->graph,          key->split_kv };
  const int64_t prefill[] = { key->tiles,
                              key->total_rows,
                              rows,
                              key->cta_tile_q,
                              at->request_indices,
                              at->q_tile_indices,
                              at->kv_tile_indices,
                              merge,
                              at->o_indptr,
                              at->kv_chunk_size,
                              0,
                              s_offset,
                              mask,
                              key->graph,
                              key->split_kv };
  cgr_flashinfer_plan plan = CGR_FLASHINFER_PLAN_INIT;
  plan.num_info = key->decode ? 10 : 15;
  for (int32_t i = 0; i < plan.num_info; i++)
    plan.info[i] = key->decode ? decode[i] : prefill[i];
  plan.int_bytes = (uint64_t)at->bytes;
  plan.float_bytes = (uint64_t)(s_offset + s_bytes);
  return plan;
}

cgr_status cgr__flashinfer_check_float(const char *function, const cgr_flashinfer_plan *plan, uint64_t float_bytes) {
  if (float_bytes == 0 || float_bytes >= plan->float_bytes)
    return CGR_OK;
  return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "%s: float_workspace_bytes is %llu, expected at least %llu", function,
                   (unsigned long long)float_bytes, (unsigned long long)plan->float_bytes);
}

cgr_status cgr__flashinfer_check_memory(const char *function, const cgr_flashinfer_plan *plan, const void *int_workspace,
                                        size_t int_bytes) {
  CGR__REQUIRE(int_workspace, function);
  if ((uintptr_t)int_workspace % 16 != 0)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "%s: int_workspace is %p, expected a multiple of 16", function, int_workspace);
  if (int_bytes >= plan->int_bytes)
    return CGR_OK;
  return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "%s: int_bytes is %zu, expected at least %llu", function, int_bytes,
                   (unsigned long long)plan->int_bytes);
}

/* ---------------------------------------------------------------------------------------------------------------- calls */

/* Everything but the writing of `output`. */
static cgr_status size_plan(const char *function, cgr__flashinfer_key *key, bool open, const cgr__flashinfer_arrays *arrays,
                            uint64_t float_bytes, cgr_flashinfer_plan *plan) {
  if (open)
    CGR__TRY(complete_key(function, key, arrays));
  *plan = cgr__flashinfer_describe(key);
  return cgr__flashinfer_check_float(function, plan, float_bytes);
}

static cgr_status build_plan(const char *function, cgr__flashinfer_key *key, bool open, const cgr__flashinfer_arrays *arrays,
                             uint64_t float_bytes, void *int_workspace, size_t int_bytes, cgr_flashinfer_plan *output) {
  cgr_flashinfer_plan plan;
  char what[64];
  snprintf(what, sizeof what, "%s: plan", function);
  if (output)
    CGR__TRY(cgr__sized_check(what, "CGR_FLASHINFER_PLAN_INIT", output));
  CGR__TRY(size_plan(function, key, open, arrays, float_bytes, &plan));
  CGR__TRY(cgr__flashinfer_check_memory(function, &plan, int_workspace, int_bytes));
  CGR__TRY(check_flashinfer_lengths(function, key, arrays));
  if (!cgr__flashinfer_fill(key, arrays, int_workspace))
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT,
                     "%s: fixed_split_size is %d, which cuts these lengths into more tiles than the graph has, expected at most "
                     "%d tiles: take a larger one, or a graph for more rows",
                     function, key->fixed_chunk, key->tiles);
  if (output)
    cgr__sized_write(output, &plan, sizeof plan);
  return CGR_OK;
}

cgr_status cgr_flashinfer_decode_size(const cgr_flashinfer_decode_input *input, cgr_flashinfer_plan *plan) {
  const char *function = "cgr_flashinfer_decode_size";
  cgr_flashinfer_decode_input in;
  cgr_flashinfer_plan full;
  cgr__flashinfer_key key;
  bool open;
  CGR__TRY(cgr__sized_check("cgr_flashinfer_decode_size: plan", "CGR_FLASHINFER_PLAN_INIT", plan));
  CGR__TRY(cgr__flashinfer_read_decode_key(function, input, &in, &key, &open));
  const cgr__flashinfer_arrays arrays = { NULL, in.kv_indptr, in.live_requests };
  CGR__TRY(size_plan(function, &key, open, &arrays, in.float_workspace_bytes, &full));
  cgr__sized_write(plan, &full, sizeof full);
  return CGR_OK;
}

cgr_status cgr_flashinfer_prefill_size(const cgr_flashinfer_prefill_input *input, cgr_flashinfer_plan *plan) {
  const char *function = "cgr_flashinfer_prefill_size";
  cgr_flashinfer_prefill_input in;
  cgr_flashinfer_plan full;
  cgr__flashinfer_key key;
  bool open;
  CGR__TRY(cgr__sized_check("cgr_flashinfer_prefill_size: plan", "CGR_FLASHINFER_PLAN_INIT", plan));
  CGR__TRY(cgr__flashinfer_read_prefill_key(function, input, &in, &key, &open));
  const cgr__flashinfer_arrays arrays = { in.qo_indptr, in.kv_indptr, in.live_requests };
  CGR__TRY(size_plan(function, &key, open, &arrays, in.float_workspace_bytes, &full));
  cgr__sized_write(plan, &full, sizeof full);
  return CGR_OK;
}

cgr_status cgr_flashinfer_decode_build(const cgr_flashinfer_decode_input *input, void *int_workspace, size_t int_bytes,
                                       cgr_flashinfer_plan *plan) {
  const char *function = "cgr_flashinfer_decode_build";
  cgr_flashinfer_decode_input in;
  cgr__flashinfer_key key;
  bool open;
  CGR__TRY(cgr__flashinfer_read_decode_key(function, input, &in, &key, &open));
  const cgr__flashinfer_arrays arrays = { NULL, in.kv_indptr, in.live_requests };
  return build_plan(function, &key, open, &arrays, in.float_workspace_bytes, int_workspace, int_bytes, plan);
}

cgr_status cgr__flashinfer_build_prefill(const char *function, const cgr_flashinfer_prefill_input *input, void *int_workspace,
                                         size_t int_bytes, cgr_flashinfer_plan *plan) {
  cgr_flashinfer_prefill_input in;
  cgr__flashinfer_key key;
  bool open;
  CGR__TRY(cgr__flashinfer_read_prefill_key(function, input, &in, &key, &open));
  const cgr__flashinfer_arrays arrays = { in.qo_indptr, in.kv_indptr, in.live_requests };
  return build_plan(function, &key, open, &arrays, in.float_workspace_bytes, int_workspace, int_bytes, plan);
}

cgr_status cgr_flashinfer_prefill_build(const cgr_flashinfer_prefill_input *input, void *int_workspace, size_t int_bytes,
                                        cgr_flashinfer_plan *plan) {
  return cgr__flashinfer_build_prefill("cgr_flashinfer_prefill_build", input, int_workspace, int_bytes, plan);
}
