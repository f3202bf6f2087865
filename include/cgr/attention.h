/* Attention: groups of pages, layers, views of memory, the attention call, and backends. */
#ifndef CGR_ATTENTION_H
#define CGR_ATTENTION_H

#include "cgr/device.h"
#include "cgr/needs.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cgr_recorder cgr_recorder;

/* ----------------------------------------------------------------------------------------------------------------- views */

/* A tensor [tokens, heads, head_dim] whose last dimension is dense: element (t, h, d) is at data + t * stride_token +
 * h * stride_head + d, counted in elements, even if two of them share a byte. The address and the strides are multiples of 16
 * bytes. Heads of one token do not overlap, and neither do tokens. */
typedef struct cgr_view {
  void *data;
  int32_t dtype; /* cgr_dtype */
  int32_t reserved;
  int64_t stride_token, stride_head;
} cgr_view;

/* Where K or V of a layer is: element (page p, token t of the page, KV head h, d) is at base + p * stride_page + t *
 * stride_token + h * stride_head + d, counted in elements, in 64 bits. All usual cache layouts are expressed by these strides.
 * The address and the strides are multiples of 16 bytes. Only a layer whose backend has CGR_BACKEND_APPENDS may have a cache of
 * 4 bits (fp4_e2m1, i4); its head dims are even. `scale` is for caches of 8 bits or fewer: factors in device memory, one per
 * (page, token, head, d) with strides in elements, 0 to broadcast. A value is its element times its factor; without factors it
 * is the element. Factors that the engine gives are finite and above 0, which nothing checks; the append writes 0 for
 * a head of zeros. Factors overlap neither each other nor any cache. Several views may share factors whose page and token strides
 * are 0; other factors are shared only by K and V that share their memory. Replays read factors anew; a change also changes the
 * values that a cache holds. Factors of tokens belong to the page: who copies a page copies them, too.
 *
 * The library's append quantises into caches of 8 bits (fp8_e4m3, fp8_e5m2, i8) for the library's own attention, and for an
 * engine's backend without CGR_BACKEND_APPENDS. It divides each value by its factor in fp32, rounds to nearest, ties to even,
 * and saturates at 448, 57344 or 127. NaN becomes 0x7f, and 0 in i8. The engine sets factors whose page and token strides are
 * 0 before the step. An i8 view may have a factor for each page, token and head: the append sets it to the largest magnitude
 * of the head's values, NaN left out, divided by 127. head_dim must be a multiple of 16, and cgr_layer.dtype must be that of k
 * and v in the call (fp32, fp16 or bf16). CGR_ERROR_UNSUPPORTED: i8 without factors, fp8 with factors for each token.
 *
 * The library's own attention reads K of fp8_e4m3, fp8_e5m2 or i8, with V of any of these or of cgr_layer.dtype. i8 has factors,
 * fp8 may have some, V of 16 or 32 bits has none. Strides of page, token, head and d:
 *
 *     0, 0, 0, 0     K and V: one factor for all
 *     0, 0, n, 0     K and V: one for each KV head
 *     0, 0, n, m     V: one for each channel (d) of a KV head
 *     4m, 1, 4n, 0   K of i8: one for each token and KV head, as the append writes them, at a multiple of 16 bytes; m is above 0,
 *                    and so is n, unless there is one KV head
 *
 * q, k and v of the call are fp16 or bf16, on the host fp32 too, and head dims multiples of 16. Sums are fp32; softmax weights are
 * rounded to fp16 before they meet V of 8 bits. A GPU rounds q to fp16, too, so that a magnitude above 65504 becomes infinite.
 * Codes of NaN and of infinities are read as these.
 * CGR_ERROR_UNSUPPORTED: K of 16 or 32 bits with V of 8, factors with other strides. */
typedef struct cgr_kv_view {
  void *base;
  int32_t dtype; /* cgr_dtype */
  int32_t reserved;
  int64_t stride_page, stride_token, stride_head;
  float *scale;
  int64_t scale_stride_page, scale_stride_token, scale_stride_head, scale_stride_d;
} cgr_kv_view;

/* Order of a page's dimensions in memory. */
typedef enum cgr_kv_layout {
  CGR_LAYOUT_NHD = 1, /* [page_size][num_kv_heads][head_dim] */
  CGR_LAYOUT_HND = 2  /* [num_kv_heads][page_size][head_dim] */
} cgr_kv_layout;

/* The view of a tensor [pages] x layout that holds K alone, or V alone. Takes head dims and dtypes that a tensor can have, read
 * by kernels or not; cgr_validate says what a layer's attention runs on.
 * Threads any · Capture ok · Sync never · Alloc never */
CGR_API cgr_status cgr_kv_view_make(cgr_kv_layout layout, void *base, cgr_dtype dtype, int32_t page_size, int32_t num_kv_heads,
                                    int32_t head_dim, cgr_kv_view *view);

/* The two views of one tensor [pages][2] x layout: each page holds its K and then its V.
 * Threads any · Capture ok · Sync never · Alloc never */
CGR_API cgr_status cgr_kv_view_make_pair(cgr_kv_layout layout, void *base, cgr_dtype dtype, int32_t page_size,
                                         int32_t num_kv_heads, int32_t head_dim, cgr_kv_view *k, cgr_kv_view *v);

/* The view of a dense tensor [tokens][num_heads][head_dim]; of elements of 4 bits head_dim is even, here and above. What a kernel
 * needs beyond that (alignment, the head dims of a layer) is checked when the view is used.
 * Threads any · Capture ok · Sync never · Alloc never */
CGR_API cgr_status cgr_view_make(void *data, cgr_dtype dtype, int32_t num_heads, int32_t head_dim, cgr_view *view);

/* ---------------------------------------------------------------------------------------------------------------- groups */

/* A group: the layers that share one page table. Each group has page numbers of its own and reserves two of them. A row needs
 * pages in every group for all tokens that it has in the group's length set, ceil(tokens / page_size) of them, except those that
 * no layer of the group sees any more (cgr_request_drop_pages). So a smaller pool is enough for a group of layers with windows:
 * for each request it holds the pages of the window and of a step's new tokens, and one page more. Layers of different groups may
 * share memory; the engine then gives each of its pages to one group at a time.
 *
 * The engine may keep the table itself, on the device: `page_table` [max_rows + 1][page_table_stride], whose last row belongs to
 * padding and holds the read-trash page everywhere. A step reads the rows of its requests from its first kernel to its last, so
 * the engine writes them in stream order before the step, or while no step that uses them is in flight. The host then cannot
 * check page numbers; guards on the device do (CGR_GUARD_PAGE). Entries of pages that no layer sees any more may be anything,
 * unless on-demand buffers or the engine's kernels read them; the read-trash page is good for all.
 *
 * Backends' kernels may have smaller pages than the group. With n = page_size / kernel_page_size, a page p of the group is then
 * their pages p * n .. p * n + n - 1. CGR_BUFFER_KV_INDICES, _BLOCK_TABLE and _PREFILL_BLOCK_TABLE list those; _KV_INDPTR,
 * _KV_LAST_PAGE_LEN and the prefills' buffers of these names count them. All else has pages of page_size, and so has the
 * library's own attention. A backend that appends may divide a page as its kernels like. A layer with any other backend then
 * needs stride_page = page_size * stride_token in k, in v and in their factors, so that the smaller pages follow each other in
 * memory; HND with several heads does not have that. */
typedef struct cgr_group {
  uint32_t size;
  int32_t page_size;         /* tokens per page: a multiple of 16, at most 1024; 0: 16 */
  int64_t num_pages;         /* pages in the pool, the two reserved ones included; 3 or more, and n times as many are at most
                                2^31 - 1 */
  int32_t read_trash_page;   /* reserved: what a guarded read reads instead of a bad page. Never written; the engine fills it once
                                with finite values (zeros, say), and its factors, if every token has its own */
  int32_t write_trash_page;  /* reserved: never read. Both 0: the trash pages are 0 and 1 */
  const int32_t *page_table; /* the engine's own table; NULL: cgr_request_set_pages fills the library's. As there, a page that
                                replaces another below a row's length must have its tokens before the row's next step with
                                tokens */
  int64_t page_table_stride; /* elements from row to row: ceil(max_seq_len / page_size) .. 2^31; for a group of another length
                                set, with its max_other_lens */
  int32_t length_set;        /* whose tokens its pages hold; the same for all its layers with a cache; 0: the sequences */
  int32_t kernel_page_size;  /* tokens of a page for the engine's backends: page_size, or a power of two that divides it; 0:
                                page_size. See above for what smaller ones need */
  int32_t program;           /* whose tokens its pages hold: 0 .. num_programs - 1; above 0 only with length_set 0 */
  int32_t reserved;          /* 0 */
} cgr_group;
#define CGR_GROUP_INIT { (uint32_t)sizeof(cgr_group), 0, 0, 0, 0, NULL, 0, 0, 0, 0, 0 }

/* ---------------------------------------------------------------------------------------------------------------- layers */

typedef enum cgr_layer_flag {
  CGR_LAYER_BIDIRECTIONAL = 1, /* a query also attends to the keys after it */
  CGR_LAYER_NO_CACHE = 2,      /* k and v of the step itself, no pages: see cgr_layer */
  CGR_LAYER_ALIBI_SQRT = 4     /* ALiBi on the square root of the distance */
} cgr_layer_flag;

/* An attention layer. What this version or the device does not support is refused at creation, each thing by name
 * (cgr_validate).
 *
 * Windows in other libraries' terms: one of W tokens is window_left = W, FlashAttention's (W - 1, 0); an encoder's,
 * (W - 1, W - 1), is window_left = W and window_right = W - 1 with CGR_LAYER_BIDIRECTIONAL. An
 * encoder's (0, 0), which sees only the query's own token, is window_left = 1 without that flag. No window, (-1, -1), is 0 and 0.
 *
 * A row has a length in each length set: its sequence, set 0, and what the engine sets for others
 * (cgr_request_set_other_length), such as an encoder's. A step has tokens of one set (cgr_variant.length_set), which decides what
 * `record` must do with a layer of set L:
 * - with a cache, in a step of set 0: cgr_record_attention. With L 0 the tokens are appended; a layer of another set (cross
 *   attention: BIDIRECTIONAL, without windows, chunk and slopes) attends to all tokens of L that the row has. A row that has
 *   none gets out 0, lse -inf;
 * - with a cache, in a step of its own set L above 0: the tokens are appended, usually with APPEND_ONLY. Without it they attend
 *   to all tokens of L so far. A layer with kv_source may be left out;
 * - NO_CACHE, in a step of set L: cgr_record_attention. The tokens see only those of their own request in this step, so a
 *   sequence that comes in chunks is attended chunk by chunk. There are no pages: group is 0, k and v are empty, and `dtype` is
 *   needed.
 * In any other step the layer must not be called. */
typedef struct cgr_layer {
  uint32_t size;
  int32_t program;           /* whose steps it is in (programs.h); with a cache: that of its group */
  int32_t group;             /* index into cgr_config.groups; 0 if there are none */
  int32_t backend;           /* 0: the library's own kernels; else an index into cgr_config.backends, plus 1 */
  int32_t length_set;        /* 0: the sequences themselves. With a cache: that of the group */
  int32_t kv_source;         /* 0: its own cache; else an earlier layer, plus 1, whose cache this one reads; it appends nothing */
  uint32_t flags;            /* CGR_LAYER_* */
  int32_t num_q_heads;       /* a multiple of num_kv_heads, at most 1024 */
  int32_t num_kv_heads;      /* 1 or more; divides num_q_heads */
  int32_t head_dim;          /* of q and k, 1 .. 65536 */
  int32_t head_dim_v;        /* of v and out, 1 .. 65536; 0: head_dim */
  int32_t dtype;             /* cgr_dtype of q, k and v in the attention call (q: see q_dtype); 0: that of the cache, if there is
                                one; with a cache of 8 or 4 bits it is not 0 */
  int32_t out_dtype;         /* of out; 0: dtype. The library's own kernels take fp8_e4m3, too (cgr_attention.out_scale); a backend
                                of the engine's also fp4_e2m1, with block scales (cgr_attention.out_block_scale) */
  int32_t window_left;       /* keys that a query sees, up to and including its own; 0: all */
  int32_t window_right;      /* keys after its own, only with BIDIRECTIONAL; 0: all */
  int32_t chunk;             /* tokens per chunk, counted from position 0, or with NO_CACHE from the step's first token of the
                                request; a query sees only its own chunk; 0: off */
  float scale;               /* of q.k: scale first, then softcap, then slopes; 0: 1 / sqrt(head_dim), which is refused if v
                                is a part of k (MLA): there head_dim is the cache's, and not what the model was trained with */
  float softcap;             /* scores become softcap * tanh(score / softcap); 0: off */
  const float *alibi_slopes; /* device, [num_q_heads]; NULL: none. Scores are reduced by slope * distance, in both directions.
                                Every step reads slopes and sinks: they stay where they are while the runtime lives */
  const float *sinks;        /* device, [num_q_heads]: a logit per head that joins the softmax once, and the LSE; -inf, or less than
                                1e38 in magnitude; NULL: none. A query that sees no key has out 0 and LSE -inf all the same */
  cgr_kv_view k, v;          /* ignored with kv_source; with NO_CACHE all is 0 but dtype. They overlap nothing, except that one
                                may be inside the other if the backend has CGR_BACKEND_APPENDS (MLA: v is inside k) */
  int32_t q_dtype;           /* of q, if the engine quantises it before the call; 0: dtype, the only one that the library's own
                                kernels take */
  int32_t num_sinks;         /* elements of sinks: num_q_heads; 0: not compared. A model's file may hold those of another layer */
  int32_t num_alibi_slopes;  /* the same of alibi_slopes */
  int32_t reserved;          /* 0 */
} cgr_layer;
#define CGR_LAYER_INIT                                                                                       \
  { (uint32_t)sizeof(cgr_layer), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0.0f, 0.0f, NULL, NULL,        \
    { NULL, 0, 0, 0, 0, 0, NULL, 0, 0, 0, 0 }, { NULL, 0, 0, 0, 0, 0, NULL, 0, 0, 0, 0 }, 0, 0, 0, 0 }

/* ---------------------------------------------------------------------------------------------------- the attention call */

typedef enum cgr_attention_flag {
  CGR_ATTENTION_NO_APPEND = 1,  /* k and v are in the cache already */
  CGR_ATTENTION_APPEND_ONLY = 2, /* write k and v to the cache and compute nothing */
  CGR_ATTENTION_NON_CAUSAL = 4,  /* in this step a query also attends to the keys after it, though the layer is causal: a draft or
                                    an encoder over a decoder's layers. For backends of the engine's, which get the flag; the
                                    library's own kernels take it only in layers with BIDIRECTIONAL, where it changes nothing */
  CGR_ATTENTION_TILED_SCALES = 8 /* out_block_scale is in tiles, as the matrix products of compute capability 10 read them */
} cgr_attention_flag;

typedef enum cgr_transform_flag {
  CGR_TRANSFORM_NORM_PLUS_ONE = 1, /* the norms multiply by 1 + weight, as Gemma's do */
  CGR_TRANSFORM_INTERLEAVED = 2    /* rope turns elements 2i and 2i + 1 (GPT-J); without it i and i + rotary_dim / 2 (NeoX) */
} cgr_transform_flag;

/* What is done first to q, k and v of a step's tokens, by the kernel that also appends: x + bias; then x / sqrt(mean of x^2 over
 * the head + norm_epsilon) * weight; then rope, where a pair (x, y) becomes (x cos - y sin, y cos + x sin) by the angles of the
 * token's position (CGR_BUFFER_POSITIONS). Each is left out where its pointer is NULL; v gets its bias alone. All is computed in
 * fp32 and rounded once, to the call's dtype.
 * - The call that attends transforms q, in place. The call that appends transforms k and v on their way to the cache, and their
 *   views stay as they are: the cache gets what the append makes of the rounded values. In a CGR_LAYER_NO_CACHE layer k and v are
 *   transformed in place. With NO_APPEND, or in a layer that appends nothing in this step, k and v are not touched; with
 *   APPEND_ONLY, q is not. Padded tokens stay as they are.
 * - The dtype is fp32, fp16 or bf16, that of q too; head_dim and head_dim_v are multiples of 8, 8 .. 1024, with rope at least 16.
 *   CGR_ERROR_UNSUPPORTED: another dtype or head dim, or a q_dtype that is not dtype.
 * - A view that is transformed in place overlaps no other that the call uses, except that out may be exactly q. Such a view, out
 *   and lse do not overlap the arrays below. Overlaps are refused if addresses and strides show them.
 * - The arrays are aligned to 16 bytes. Replays read them anew, and graphs hold their regions.
 * - A layer's backend without CGR_BACKEND_APPENDS finds q transformed, and NULL in cgr_attention.transform. One with it gets the
 *   struct as it is and does all of this itself: only size, flags, norm_epsilon and reserved are checked. */
typedef struct cgr_qkv_transform {
  uint32_t size;
  uint32_t flags;                       /* CGR_TRANSFORM_* */
  const void *q_bias, *k_bias, *v_bias; /* device, of the layer's dtype: [num_q_heads][head_dim], [num_kv_heads][head_dim],
                                           [num_kv_heads][head_dim_v]; NULL: none */
  const void *q_norm, *k_norm;          /* device, of the layer's dtype: [head_dim] weights; NULL: no norm */
  const float *cos_sin;  /* device, [num_positions][rotary_dim]: a row has the cosines of rotary_dim / 2 angles, then their sines;
                            NULL: no rope */
  int32_t num_positions; /* at least max_seq_len, or the max_other_lens of the step's length set; 0 without rope */
  int32_t rotary_dim;    /* rope turns so many elements of each head of q and k, the first ones: a multiple of 16 up to head_dim;
                            0: head_dim, which must then be such a multiple. 0 without rope */
  float norm_epsilon;    /* 0 or more, finite; 0: 1e-6 */
  int32_t reserved;      /* 0 */
} cgr_qkv_transform;
#define CGR_QKV_TRANSFORM_INIT \
  { (uint32_t)sizeof(cgr_qkv_transform), 0, NULL, NULL, NULL, NULL, NULL, NULL, 0, 0, 0.0f, 0 }

/* One layer's attention in one step: k and v of the step's tokens go to the cache, then every query attends to its sequence. The
 * views cover the padded token count; padded tokens are not read as q, k and v, and get out = 0, lse = -inf.
 * out may be exactly q: the same address, dtype and strides, and head_dim_v the same as head_dim. Otherwise out and lse must
 * overlap neither q nor each other nor, in a layer without a cache, k or v; that is refused if addresses and strides show it. One
 * rule is not checked: none of q, k, v, out and lse may overlap the cache that the layer reads (with kv_source, its source's) or
 * writes. q may be read while k and v are still on their way to the cache, so results would be wrong without a message. */
typedef struct cgr_attention {
  uint32_t size;
  int32_t layer;  /* index into cgr_config.layers */
  uint32_t flags; /* CGR_ATTENTION_* */
  uint32_t reserved;
  cgr_view q;     /* [num_tokens, num_q_heads, head_dim] */
  cgr_view k;     /* [num_tokens, num_kv_heads, head_dim], or with k2 the first part of it; unused with NO_APPEND, kv_source, or
                     keys of another length set */
  cgr_view v;     /* [num_tokens, num_kv_heads, head_dim_v], as k. If the layer's backend has CGR_BACKEND_APPENDS, it may be
                     inside k */
  cgr_view out;   /* [num_tokens, num_q_heads, head_dim_v] */
  cgr_view lse;   /* fp32 [num_tokens, num_q_heads]: natural logarithm of the sum of exp(score); data NULL: not wanted. Strides
                     count elements and need no alignment beyond 4 bytes: num_q_heads, 1 for [tokens, heads], and
                     1, num_tokens for [heads, tokens] */
  const float *q_scale;   /* device, one number, aligned to 4 bytes: what q's values of 8 bits are multiplied by; NULL: 1. Only
                             for a layer with a backend of the engine's whose q_dtype has 8 bits; replays read it anew */
  const float *out_scale; /* the counterpart of out and out_dtype, for any backend: out is the result divided by it; NULL: 1. Both
                             are finite and above 0, which nothing checks. The library's own kernels round to nearest, ties to
                             even, saturate at 448, and make 0x7f of NaN */
  cgr_view out_block_scale; /* written, with out: needed if out_dtype is fp4_e2m1 (nvfp4), and data NULL otherwise. A result is its
                               element times the scale of its block times *out_scale (1 if NULL). fp8_e4m3 [num_tokens, num_q_heads,
                               head_dim_v / 16]: a scale for each 16 neighbouring elements of a head. Any strides and addresses
                               will do. With TILED_SCALES strides are 0, the address is a multiple of 16, and there are whole
                               tiles of 128 tokens x 4 blocks. With n = num_q_heads * head_dim_v / 16 blocks of a token, the scale
                               of token t and block b is at ((t / 128) * ((n + 3) / 4) + b / 4) * 512 + t % 32 * 16 +
                               t % 128 / 32 * 4 + b % 4. The backend also fills the rest of the last tiles if a kernel reads it.
                               head_dim_v is a multiple of 16 */
  cgr_view k2; /* the second part of each head of K, as MLA's k_pe next to kv_c; data NULL: k has whole heads. With it k is
                  [num_tokens, num_kv_heads, head_dim_v] and k2 [num_tokens, num_kv_heads, head_dim - head_dim_v], both of
                  cgr_layer.dtype, and used where k is. Only for a layer whose head_dim is above its head_dim_v, and whose backend
                  has CGR_BACKEND_APPENDS */
  const cgr_qkv_transform *transform; /* biases, norms and rope, read during the call; NULL: q, k and v are ready */
} cgr_attention;
#define CGR_ATTENTION_INIT                                                                                          \
  { (uint32_t)sizeof(cgr_attention), 0, 0, 0, { NULL, 0, 0, 0, 0 }, { NULL, 0, 0, 0, 0 }, { NULL, 0, 0, 0, 0 },     \
    { NULL, 0, 0, 0, 0 }, { NULL, 0, 0, 0, 0 }, NULL, NULL, { NULL, 0, 0, 0, 0 }, { NULL, 0, 0, 0, 0 }, NULL }

/* Enqueues append and attention of one layer, inside `record`; a PIECEWISE capture breaks here. Each layer's attention is
 * recorded once per step: a layer that is named twice is refused, and a `record` that leaves one out fails. (Append and
 * attention may be two calls, with APPEND_ONLY and NO_APPEND. With NO_APPEND the cache must hold the step's tokens already.)
 * CGR_ERROR_STATE inside a function of cgr_record_call or a backend's `record`.
 * Threads one · Capture adds · Sync never · Alloc never (cold in a PIECEWISE capture) */
CGR_API cgr_status cgr_record_attention(cgr_recorder *recorder, const cgr_attention *attention);

/* Merges two attentions a and b of the same queries over disjoint sets of keys into the attention over all of these keys:
 * lse = log(exp(a_lse) + exp(b_lse)), out = exp(a_lse - lse) * a + exp(b_lse - lse) * b, in fp32 (Dao et al., Flash-Decoding). A
 * side whose lse is -inf has seen no key: whatever its out holds, even NaN, the other side stays as it is, bit for bit if out has
 * its dtype; with two such sides out is 0 and lse -inf. +inf, which FlashAttention 2 and FlashMLA give for a query without keys,
 * counts as -inf. An lse that is NaN makes out and lse NaN, unless the other side has seen nothing.
 * The views cover the padded token count; padded tokens of a and b are not read, and get out = 0, lse = -inf. out may be the same
 * memory as a or b, with the same dtype and strides, and lse the same as a_lse or b_lse; a chain of merges then needs no memory
 * of its own. What is written may overlap nothing else; that is refused if addresses and strides show it. These lse have the
 * same form as that of cgr_attention: [tokens, heads] is strides num_heads, 1, and [heads, tokens] strides 1, num_tokens. */
typedef struct cgr_merge {
  uint32_t size;
  int32_t num_heads; /* 1 .. 1024 */
  int32_t head_dim;  /* of the outs: a multiple of 8, 8 .. 1024 */
  uint32_t reserved;
  cgr_view a, b;         /* [num_tokens, num_heads, head_dim], of fp32, fp16 or bf16 each */
  cgr_view a_lse, b_lse; /* fp32 [num_tokens, num_heads], natural logarithms; strides as those of cgr_attention.lse */
  cgr_view out;          /* as a and b; may have another dtype */
  cgr_view lse;          /* as a_lse and b_lse; data NULL: not wanted */
} cgr_merge;
#define CGR_MERGE_INIT                                                                                              \
  { (uint32_t)sizeof(cgr_merge), 0, 0, 0, { NULL, 0, 0, 0, 0 }, { NULL, 0, 0, 0, 0 }, { NULL, 0, 0, 0, 0 },         \
    { NULL, 0, 0, 0, 0 }, { NULL, 0, 0, 0, 0 }, { NULL, 0, 0, 0, 0 } }

/* Enqueues a merge on the recorder's stream: inside `record`, a function of cgr_record_call or a backend's `record`; always at
 * once, since no PIECEWISE capture breaks here. In a capture the graph holds the regions in which the views begin; those of a
 * merge made between pieces, at replay, are not known: name them with cgr_record_use. CGR_ERROR_STATE inside a backend's `plan`.
 * Threads one · Capture adds · Sync never · Alloc never (cold in a capture) */
CGR_API cgr_status cgr_record_merge(cgr_recorder *recorder, const cgr_merge *merge);

/* -------------------------------------------------------------------------------------------------------------- backends */

/* What the attention of a backend can do inside a FULL graph; the graph mode is lowered by it, once, at creation. */
typedef enum cgr_graph_support {
  CGR_SUPPORT_DEFAULT = 0, /* that of the library's own kernels: ALWAYS */
  CGR_SUPPORT_NEVER = 1,   /* it is called between the pieces of PIECEWISE graphs */
  CGR_SUPPORT_UNIFORM_SINGLE_TOKEN_DECODE = 2, /* steps of one new token per request */
  CGR_SUPPORT_UNIFORM_BATCH = 3,               /* steps of the same number of new tokens per request, exactly the key's; with
                                                  CGR_BACKEND_BOUNDS at most the key's */
  CGR_SUPPORT_ALWAYS = 4                       /* any batch that fits the key */
} cgr_graph_support;

typedef enum cgr_backend_flag {
  CGR_BACKEND_APPENDS = 1,      /* its `record` writes k and v to the cache; otherwise the library has done so before */
  CGR_BACKEND_PLANS_FIRST = 2,  /* its `plan` reads neither staged buffers nor on-demand buffers: it is enqueued before these,
                                   right after the step's first kernel */
  CGR_BACKEND_UNIFORM_SPLIT = 4, /* its decodes all have as many new tokens as the first request (CGR_COUNT_DECODES). Needs a
                                    reorder_threshold */
  CGR_BACKEND_BOUNDS = 8,        /* below CGR_SUPPORT_ALWAYS: in the steps that its support names, requests may have fewer new
                                    tokens than the key's query_len. If all attention in use that is below ALWAYS has this,
                                    uniform graphs serve such batches */
  CGR_BACKEND_PLANS_BOUNDS = 16, /* its plan_host takes lengths that are upper bounds (CGR_PLAN_BOUNDS). Without this, preparing a
                                    step that has such lengths is CGR_ERROR_BUSY until the results are there that make them exact */
  CGR_BACKEND_DECODES_DRAFTS = 32 /* its decodes may have 1 + num_draft_tokens new tokens: its reorder_threshold counts as at
                                     least that. Needs a reorder_threshold */
} cgr_backend_flag;

/* What a plan may be made for. Nothing else of a layer is compared: alibi_slopes, sinks, kv_source and views may differ. */
typedef enum cgr_planned {
  CGR_PLANNED_GROUP = 1,    /* group */
  CGR_PLANNED_HEADS = 2,    /* num_q_heads, num_kv_heads */
  CGR_PLANNED_HEAD_DIM = 4, /* head_dim, head_dim_v */
  CGR_PLANNED_DTYPE = 8,    /* dtype, q_dtype, out_dtype, k.dtype, v.dtype */
  CGR_PLANNED_WINDOW = 16,  /* window_left, window_right, chunk, flags: all of CGR_LAYER_* */
  CGR_PLANNED_SCALE = 32,   /* scale */
  CGR_PLANNED_SOFTCAP = 64  /* softcap */
} cgr_planned;

/* What is known of a step that a backend plans for. plan_host is told for each step. `plan` is told in eager steps; in a capture
 * it gets CAPTURE alone, and what it enqueues there serves every replay, FAST or not: a graph has one way to plan. */
typedef enum cgr_plan_flag {
  CGR_PLAN_CAPTURE = 1, /* a graph is captured, or about to be: there is no step yet. plan_host gets a batch as large as the key */
  CGR_PLAN_FAST = 2,    /* the step computes nothing that anyone waits for: one without requests, or with cgr_batch.plan_flags.
                           Plan as quickly as possible. The plan may be unbalanced; the attention's results must not change */
  CGR_PLAN_BOUNDS = 4   /* lengths are upper bounds: a row has guesses of a step that had not completed when this one was
                           prepared, or may have ended in it (stops.h). On the device they are exact */
} cgr_plan_flag;

/* What a backend's state is for: the steps of one graph, or all eager steps. */
typedef struct cgr_plan_key {
  uint32_t size;
  int32_t kind;         /* cgr_graph_kind; NONE: eager steps, of any counts up to those below */
  int32_t num_requests; /* padded */
  int32_t num_tokens;   /* padded */
  int32_t query_len;    /* of every request; 0: they differ */
  uint32_t variant;     /* 0 for eager steps, of whatever variant: see cgr_plan_step and cgr_record_info */
  int32_t draft;        /* 0 */
  int32_t program;      /* of the graph; 0 for eager steps, of whatever program: see cgr_plan_step and cgr_record_info */
  cgr_device *device;
  void *workspace;      /* the backend's device memory, aligned to 256 bytes; NULL: it asked for none. This and plan keep one
                           address for the runtime's life, in every key, and `create` gets them already */
  uint64_t workspace_bytes;
  void *plan;           /* device memory that holds what plan_host gave for the step, before `plan` and `record`; zeros if it was
                           not called */
  uint64_t plan_bytes;
} cgr_plan_key;
#define CGR_PLAN_KEY_INIT { (uint32_t)sizeof(cgr_plan_key), 0, 0, 0, 0, 0, 0, 0, NULL, NULL, 0, NULL, 0 }

/* A step as the host knows it, for plans that are made there. The arrays are host memory, valid during the call. */
typedef struct cgr_plan_step {
  uint32_t size;
  uint32_t flags;           /* CGR_PLAN_* */
  int32_t draft;            /* 0 */
  int32_t num_requests;     /* real */
  int32_t num_tokens;       /* real */
  int32_t padded_requests;  /* those of the key; an eager step has only its own, at least 1 */
  int32_t padded_tokens;
  int32_t max_query_len;    /* of this step, at least 1 */
  int32_t max_seq_len;      /* the same */
  int32_t num_decodes;      /* as CGR_COUNT_DECODES; -1 with CAPTURE, or if no backend in use has a reorder_threshold */
  int32_t num_decode_tokens;
  int32_t length_set;       /* whose tokens the step has: those of the variant */
  const int32_t *rows;            /* [padded_requests]; padding max_rows */
  const int32_t *query_start_loc; /* [padded_requests + 1]; padding repeats the last value */
  const int32_t *seq_lens;        /* [padded_requests] tokens in the cache, this step's included, in its length set; padding 0 */
  void *plan;                     /* out, plan_bytes, aligned to 64: all of it travels. It still holds what an older step left */
  uint64_t plan_bytes;
  int32_t max_decode_query_len;   /* of the decodes alone; 0 if there are none. This and the next three are -1 where num_decodes
                                     is */
  int32_t max_prefill_query_len;  /* the same of the other requests */
  int32_t max_decode_seq_len;     /* the largest of the decodes' seq_lens; 0 if there are none */
  int32_t max_prefill_seq_len;    /* the same of the other requests */
  uint32_t variant;               /* of the key that the step runs as */
  int32_t program;                /* whose step it is */
} cgr_plan_step;
#define CGR_PLAN_STEP_INIT \
  { (uint32_t)sizeof(cgr_plan_step), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, NULL, NULL, NULL, NULL, 0, 0, 0, 0, 0, 0, 0 }

/* The engine's attention kernels, as a value: layers name it (cgr_layer.backend), and cgr_record_attention calls it.
 * `context` lives until the runtime is destroyed; the struct is copied. */
typedef struct cgr_backend {
  uint32_t size;
  int32_t reorder_threshold; /* new tokens up to which a request counts as a decode (a chunk of a prompt too): batches then have
                                their decodes first (cgr_step_prepare refuses others; requests without tokens may stand
                                anywhere), and cgr_record_info and CGR_BUFFER_COUNTS tell the split. 0: any order. The
                                smallest one above 0 of the backends in use counts. If one of them has UNIFORM_SPLIT, the split
                                is uniform for all: the other backends may then get prefills as short as a decode. Batches need
                                no other order */
  const char *name;          /* for messages; 1 to 31 characters, copied; no two backends share one */
  void *context;             /* first argument of the functions */
  /* Every reason why it cannot run this layer on this device: returns how many, and writes up to `capacity` (32), with status,
   * field (a member of cgr_layer) and text. Called once per layer by cgr_validate, cgr_runtime_memory and cgr_runtime_create, if
   * there is a device; fields of the layer that cgr itself has refused read 0, and for a bad group `group` is a stand-in with the
   * smallest numbers. NULL: it can run all. */
  int32_t (*check)(void *context, const cgr_device_info *device, const cgr_group *group, const cgr_layer *layer,
                   cgr_finding *findings, int32_t capacity);
  /* What a FULL graph can hold of it, for layers of this group; asked once per group. NULL without support_layer, or
   * an unknown value, means NEVER. */
  cgr_graph_support (*support)(void *context, const cgr_device_info *device, const cgr_group *group);
  /* Enqueues one layer's attention on the recorder's stream: at once in FULL captures and eager steps, between two pieces at
   * every replay of a PIECEWISE graph, with real counts in cgr_record_info; a PIECEWISE capture does not call it
   * (cgr_runtime_warmup does). `attention` is valid only during the call; it has this library's size, and its views have been
   * checked. attention->layer indexes cgr_config.layers, of which the engine keeps what it needs: views, group, scale. Pages
   * are in row CGR_BUFFER_REQUEST_ROWS[i] of CGR_BUFFER_PAGE_TABLE (index: the group), lengths in CGR_BUFFER_SEQ_LENS and
   * _QUERY_START_LOC. The backend has to set out to 0, and lse to -inf, for the padded tokens too; nothing checks that. With
   * CGR_BACKEND_APPENDS `attention` may have CGR_ATTENTION_APPEND_ONLY. May call cgr_record_get_info, which also has the state,
   * cgr_record_buffer, cgr_record_call, cgr_record_merge and its like, cgr_gather_enqueue, and what enqueues in device.h;
   * cgr_record_attention is refused. Any status but CGR_OK gives up the step or the capture, as from `record`. */
  cgr_status (*record)(void *context, cgr_recorder *recorder, const cgr_attention *attention);
  uint32_t flags;            /* CGR_BACKEND_* */
  uint32_t planned;          /* CGR_PLANNED_*: what its plan is made for. Layers that name it and differ in one of these are refused
                                at creation: give each kind of layer its own cgr_backend, with its own context. 0: it plans for
                                all */
  uint64_t on_demand;        /* CGR_ON_DEMAND bits (record.h) of the on-demand buffers that `plan` and `record` read */

  /* Planning; all of it may be left 0. Backends that no layer names are not asked. Calls that are refused inside `record` are
   * refused inside these functions too, except cgr_stream_destroy in create and destroy. A workspace takes the place of one of
   * the at most 64 cgr_config.buffers, and so does a plan from the host. */
  uint64_t workspace_bytes;  /* of device memory that the runtime keeps for it, 0 .. 2^40: zeros at first, and again after a step
                                that was given up. It is part of the arena: plan and record write it, and graphs hold its
                                address */
  uint64_t plan_bytes;       /* that plan_host writes for each step, 0 .. 2^24. They travel as staged data does, and take
                                ring_depth times as many bytes of pinned memory */
  /* Makes what the backend keeps for a key: called before each capture of the key, and once for eager steps, when the runtime
   * gets its `record`. *state is NULL at first; what it becomes is given to the other functions. A failure fails the capture.
   * NULL: every state is NULL. */
  cgr_status (*create)(void *context, const cgr_plan_key *key, void **state);
  /* Ends a state: when its graph is given up, captured again, or could not be captured; and with the runtime. By then its graph
   * is gone, and no step that uses it is in flight. NULL: there is nothing to end. Not called without `create`. */
  void (*destroy)(void *context, void *state);
  /* Plans on the host, in cgr_step_prepare, so it has to be quick: no allocation, no waiting. Called for every step that is
   * prepared, even one that is then cancelled or fails, and once after `create`, with CGR_PLAN_CAPTURE: that step has the tokens
   * of the key spread evenly over its requests, and no step uses its plan. A failure refuses the step (CGR_ERROR_CALLBACK, with
   * its message), and nothing of the runtime has changed. Needs plan_bytes. On the device, steps of a warm-up or refused by a
   * guard find zeros in place of the plan, which have to mean no work; and a request that a guard emptied has length 0 there. */
  cgr_status (*plan_host)(void *context, void *state, const cgr_plan_step *step);
  /* Enqueues what plans on the device, from the persistent buffers, on the stream that cgr_record_get_info gives: a branch
   * alongside the first kernels of `record`, joined before the first attention, and before a cgr_record_buffer in `record` for an
   * on-demand buffer. It begins after the on-demand buffers and the staged ones; with CGR_BACKEND_PLANS_FIRST right after the
   * step's first kernel. `flags`: CGR_PLAN_*; `draft`: 0 in this version. Called once for each eager step and for each capture,
   * those of an audit or an estimate too. May call what `record` of a backend may, except cgr_record_call; a failure does what
   * one of `record` does. */
  cgr_status (*plan)(void *context, void *state, cgr_recorder *recorder, uint32_t flags, int32_t draft);
  /* Tells what it can do for such a layer and what it wants of the cache: fills `needs`, which comes as CGR_BACKEND_NEEDS_INIT.
   * cgr_backend_ask calls it before caches exist; fields of the layer that are not known yet are 0. What calls `check` calls it
   * too, once per layer, complete as for `check`: a layer that contradicts the answer is refused. NULL: nothing is told. */
  cgr_status (*describe)(void *context, const cgr_device_info *device, const cgr_layer *layer, cgr_backend_needs *needs);
  /* As `support`, but for one layer, complete as for `check`: for kernels whose answer depends on head counts, say. Asked once per
   * layer. Of all answers of this and of `support` the least counts. With it, `support` may be NULL. */
  cgr_graph_support (*support_layer)(void *context, const cgr_device_info *device, const cgr_group *group, const cgr_layer *layer);
} cgr_backend;
#define CGR_BACKEND_INIT \
  { (uint32_t)sizeof(cgr_backend), 0, NULL, NULL, NULL, NULL, NULL, 0, 0, 0, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL }

#ifdef __cplusplus
}
#endif
#endif
