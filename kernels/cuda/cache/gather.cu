/* The gather: blocks for tiles of output pages, then one for each row of the table, and one that counts the pages that did not
 * fit. A tile is a stretch of K or of V of one page. A lane takes 8 elements at a time, 16 bytes of the output, and has four of
 * them on their way. The grid follows from the capacity and the shape of a page; blocks of pages that no request has read three
 * numbers. */
#include "devices/cuda/launch.cuh"
#include "kernels/cuda/cache/half.cuh"
#include "kernels/cuda/launchers.h"
#include "kernels/gather.h"
#include "kernels/quantise.h"

namespace cgr {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int kUnit = CGR__GATHER_UNIT;
constexpr int kDeep = 4;                  /* units that a thread reads before it writes the first */
constexpr int kTile = kThreads * kDeep;   /* units of a tile */
constexpr int64_t kMostCopying = 1 << 12; /* blocks; each takes more than one tile where there are more */

struct Gather {
  cgr__gather_args args;
  int32_t k_tiles, v_tiles;         /* of a page */
  int32_t page_blocks, tile_blocks; /* page_blocks * tile_blocks blocks copy */
};
static_assert(sizeof(Gather) == sizeof(cgr__gather_args) + 4 * sizeof(int32_t), "no holes");

/* ------------------------------------------------------------------------------------------------------------ conversions */

template <int kDtype> struct Code;

/* cgr__fp8_value in fewer instructions: a code's exponent and mantissa, at their places in fp32, give a number that is too
 * small by a factor of 2^120, subnormal ones too; a GPU multiplies those as fast as others. */
template <> struct Code<CGR_DTYPE_FP8_E4M3> {
  static __device__ __forceinline__ float value(uint32_t code) {
    const uint32_t magnitude = code & 0x7fu;
    const float size = magnitude == 0x7fu ? __uint_as_float(0x7fc00000u) : __uint_as_float(magnitude << 20) * 0x1p120f;
    return __uint_as_float(__float_as_uint(size) | (code & 0x80u) << 24);
  }
};

template <> struct Code<CGR_DTYPE_FP8_E5M2> { /* the upper half of fp16 */
  static __device__ __forceinline__ float value(uint32_t code) { return unpack((code & 0xffu) << 8, false).x; }
};

template <> struct Code<CGR_DTYPE_I8> {
  static __device__ __forceinline__ float value(uint32_t code) { return (float)(int8_t)(code & 0xffu); }
};

/* ------------------------------------------------------------------------------------------------------------------ pages */

/* K or V of one page, from the pool to the output. */
struct Copy {
  const cgr_kv_view &in, &out;
  int32_t page_size, num_kv_heads, head_dim;
  int64_t source, page;
};

struct Place {
  int32_t token, head, d;
};

__device__ __forceinline__ int64_t element(const cgr_kv_view &view, int64_t page, const Place &at) {
  return page * view.stride_page + at.token * view.stride_token + at.head * view.stride_head + at.d;
}

/* Neighbouring units are neighbours in the output; false: there are no more. */
__device__ __forceinline__ bool find_place(const Copy &c, int32_t unit, Place &at) {
  const uint32_t of_head = (uint32_t)c.head_dim / kUnit, run = (uint32_t)unit / of_head;
  const bool heads_first = c.out.stride_head > c.out.stride_token;
  const uint32_t inner = (uint32_t)(heads_first ? c.page_size : c.num_kv_heads), outer = run / inner;
  const int32_t in_outer = (int32_t)(run - outer * inner);
  at.d = (int32_t)((uint32_t)unit - run * of_head) * kUnit;
  at.token = heads_first ? in_outer : (int32_t)outer;
  at.head = heads_first ? (int32_t)outer : in_outer;
  return (int32_t)outer < (heads_first ? c.num_kv_heads : c.page_size);
}

__device__ __forceinline__ void store(const Copy &c, const Place &at, const uint4 &bits) {
  *reinterpret_cast<uint4 *>(static_cast<uint16_t *>(c.out.base) + element(c.out, c.page, at)) = bits;
}

/* Where a unit's elements have one factor, it is read once. */
__device__ __forceinline__ void read_factors(const Copy &c, const Place &at, float (&factor)[kUnit]) {
  const bool varies = c.in.scale_stride_d != 0;
  const float *from = cgr__scale_at(&c.in, c.source, at.token, at.head, at.d);
  factor[0] = from[0];
#pragma unroll
  for (int i = 1; i < kUnit; i++)
    factor[i] = varies ? from[i * c.in.scale_stride_d] : factor[0];
}

template <int kDtype> __device__ __forceinline__ void put_codes(const Copy &c, const Place &at, const uint2 &codes) {
  float x[kUnit];
#pragma unroll
  for (int i = 0; i < kUnit; i++)
    x[i] = Code<kDtype>::value((i < 4 ? codes.x : codes.y) >> 8 * (i & 3));
  if (c.in.scale != nullptr) {
    float factor[kUnit];
    read_factors(c, at, factor);
#pragma unroll
    for (int i = 0; i < kUnit; i++)
      x[i] *= factor[i];
  }
  store(c, at, pack_eight(x, c.out.dtype == CGR_DTYPE_BF16));
}

/* Reads the bits of all of a thread's units before it puts the first. */
template <class Bits, class Put> __device__ __forceinline__ void move_tile(const Copy &c, int32_t first, Put put) {
  constexpr int64_t kBytes = sizeof(Bits) / kUnit; /* of an element */
  Place at[kDeep];
  Bits bits[kDeep];
  bool is_there[kDeep];
#pragma unroll
  for (int k = 0; k < kDeep; k++) {
    is_there[k] = find_place(c, first + k * kThreads, at[k]);
    if (is_there[k])
      bits[k] = *reinterpret_cast<const Bits *>(static_cast<const char *>(c.in.base) + element(c.in, c.source, at[k]) * kBytes);
  }
#pragma unroll
  for (int k = 0; k < kDeep; k++)
    if (is_there[k])
      put(at[k], bits[k]);
}

template <int kDtype> __device__ __forceinline__ void dequantise_tile(const Copy &c, int32_t first) {
  move_tile<uint2>(c, first, [&](const Place &at, const uint2 &codes) { put_codes<kDtype>(c, at, codes); });
}

/* Of a pool of 16 bits: from one dtype to the other, or the bits as they are. */
__device__ __forceinline__ uint4 convert(const uint4 &bits, bool from_bf16, bool to_bf16) {
  if (from_bf16 == to_bf16)
    return bits;
  float x[kUnit];
  unpack_eight(x, bits, from_bf16);
  return pack_eight(x, to_bf16);
}

__device__ __forceinline__ void copy_tile(const Copy &c, int32_t first) {
  const bool from_bf16 = c.in.dtype == CGR_DTYPE_BF16, to_bf16 = c.out.dtype == CGR_DTYPE_BF16;
  move_tile<uint4>(c, first, [&](const Place &at, const uint4 &bits) { store(c, at, convert(bits, from_bf16, to_bf16)); });
}

__device__ __forceinline__ void clear_tile(const Copy &c, int32_t first) {
  Place at;
  for (int k = 0; k < kDeep; k++)
    if (find_place(c, first + k * kThreads, at))
      store(c, at, make_uint4(0, 0, 0, 0));
}

__device__ __forceinline__ void gather_tile(const Copy &c, int32_t tile) {
  const int32_t first = tile * kTile + (int32_t)threadIdx.x;
  if (c.page == 0)
    clear_tile(c, first);
  else if (c.in.dtype == CGR_DTYPE_FP8_E4M3)
    dequantise_tile<CGR_DTYPE_FP8_E4M3>(c, first);
  else if (c.in.dtype == CGR_DTYPE_FP8_E5M2)
    dequantise_tile<CGR_DTYPE_FP8_E5M2>(c, first);
  else if (c.in.dtype == CGR_DTYPE_I8)
    dequantise_tile<CGR_DTYPE_I8>(c, first);
  else
    copy_tile(c, first);
}

__device__ __forceinline__ void gather_pages(const Gather &g, const cgr__gather_range &range, int32_t block) {
  const cgr__gather_args &a = g.args;
  const int64_t written = cgr__gather_written(&a, &range);
  const int32_t first_tile = block % g.tile_blocks;
  for (int64_t page = block / g.tile_blocks; page < written; page += g.page_blocks) {
    const int64_t source = page > 0 ? cgr__gather_source(&a, &range, page) : 0;
    for (int32_t tile = first_tile; tile < g.k_tiles + g.v_tiles; tile += g.tile_blocks)
      if (tile < g.k_tiles)
        gather_tile({ a.k, a.out_k, a.page_size, a.num_kv_heads, a.head_dim, source, page }, tile);
      else
        gather_tile({ a.v, a.out_v, a.page_size, a.num_kv_heads, a.head_dim_v, source, page }, tile - g.k_tiles);
  }
}

/* -------------------------------------------------------------------------------------------------------------- the table */

__device__ __forceinline__ void write_row(const cgr__gather_args &a, const cgr__gather_range &range, int32_t j) {
  cgr__gather_row row = {};
  if (j < range.end - range.first)
    row = cgr__gather_row_of(&a, &range, range.first + j);
  int32_t *to = a.block_table + j * a.table_stride;
  for (int64_t i = threadIdx.x; i < a.table_stride; i += kThreads)
    to[i] = i < row.entries ? (int32_t)(row.page + i) : 0;
}

__device__ __forceinline__ void count_lost(const cgr__gather_args &a, const cgr__gather_range &range) {
  __shared__ int32_t of_warp[kWarps];
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  int32_t lost = 0;
  for (int32_t i = range.first + (int32_t)threadIdx.x; i < range.end; i += kThreads) {
    const cgr__gather_row row = cgr__gather_row_of(&a, &range, i);
    lost += (int32_t)(row.count - row.entries);
  }
  lost = __reduce_add_sync(~0u, lost);
  if (lane == 0)
    of_warp[warp] = lost;
  __syncthreads();
  if (warp == 0) {
    lost = __reduce_add_sync(~0u, lane < kWarps ? of_warp[lane] : 0);
    if (lane == 0)
      *a.overflow = lost;
  }
}

__global__ void __launch_bounds__(kThreads, 4) gather_kernel(const __grid_constant__ Gather g) {
  const cgr__gather_range range = cgr__gather_range_of(&g.args);
  const int32_t block = (int32_t)blockIdx.x, row = block - g.page_blocks * g.tile_blocks;
  if (row < 0)
    gather_pages(g, range, block);
  else if (row < g.args.num_requests)
    write_row(g.args, range, row);
  else
    count_lost(g.args, range);
}

/* ----------------------------------------------------------------------------------------------------------------- launch */

bool is_half(const cgr_kv_view &view) { return view.dtype == CGR_DTYPE_FP16 || view.dtype == CGR_DTYPE_BF16; }

/* Tiles of K or V of a page; 0: no kernel here can run this. */
int32_t count_tiles(const cgr__gather_args &a, const cgr_kv_view &in, const cgr_kv_view &out, int32_t head_dim) {
  if (!is_half(out) || !(is_half(in) || cgr__is_quantised(in.dtype)) || head_dim < 1 || head_dim % kUnit != 0 ||
      a.page_size < 1 || a.num_kv_heads < 1)
    return 0;
  const int64_t heads = (int64_t)a.page_size * a.num_kv_heads;
  if (heads > INT32_MAX / head_dim)
    return 0;
  return (int32_t)((heads * (head_dim / kUnit) + kTile - 1) / kTile);
}

} // namespace
} // namespace cgr

extern "C" int cgr__cuda_gather(const void *args, cudaStream_t stream) {
  cgr::Gather g = {};
  g.args = *static_cast<const cgr__gather_args *>(args);
  const cgr__gather_args &a = g.args;
  g.k_tiles = cgr::count_tiles(a, a.k, a.out_k, a.head_dim);
  g.v_tiles = cgr::count_tiles(a, a.v, a.out_v, a.head_dim_v);
  if (g.k_tiles == 0 || g.v_tiles == 0)
    return (int)cudaErrorNotSupported;
  if (a.capacity < 1 || a.num_requests < 1)
    return (int)cudaErrorInvalidValue;
  const int64_t tiles = (int64_t)g.k_tiles + g.v_tiles, most = cgr::kMostCopying;
  g.tile_blocks = (int32_t)(tiles < most ? tiles : most);
  const int64_t rounds = most / g.tile_blocks;
  g.page_blocks = (int32_t)(a.capacity < rounds ? a.capacity : rounds);
  const int64_t blocks = (int64_t)g.page_blocks * g.tile_blocks + a.num_requests + 1;
  return cgr::launch(cgr::gather_kernel, &g, dim3((unsigned)blocks), dim3(cgr::kThreads), 0, stream);
}

extern "C" int cgr__cuda_gather_preload(void) { return cgr::preload(cgr::gather_kernel, 0); }
