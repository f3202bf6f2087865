// cgr_fa3_size and cgr_fa3_build: what they refuse, and the messages; sizes; and derived values that the records of the real
// planners do not cover, against the numbers in their sources.
#include <functional>
#include <memory>

#include "tests/support/expect.h"
#include "tests/support/fa3_case.h"

namespace cgr_test {
namespace {

constexpr int32_t kPoison = int32_t(0xA5A5A5A5);

// A batch of 4 requests that is accepted.
struct Given : Fa3Case {
  alignas(16) int32_t metadata[1 + 4 * 8 + 4];
  size_t bytes = 4 * (1 + 4 * 4);
  Given() {
    input = Fa3Key();
    Add(1, 100);
    Add(64, 8192);
    Add(0, 0);
    Add(3, 0);
    Bind();
    std::fill(std::begin(metadata), std::end(metadata), kPoison);
  }
  cgr_status Build() { return cgr_fa3_build(&input, metadata, bytes); }
};

void ExpectBuildRefused(cgr_status status, const Words &words, const std::function<void(Given &)> &change) {
  auto given = std::make_unique<Given>();
  change(*given);
  ExpectMessage(given->Build(), status, words);
  ExpectMessage(CGR_OK, CGR_OK, { "cgr_fa3_build" });
  for (int32_t word : given->metadata)
    ASSERT_EQ(word, kPoison) << "something was written";
}

// Both functions refuse it, for the same reason.
void ExpectRefused(cgr_status status, const Words &words, const std::function<void(cgr_fa3_input &)> &change) {
  cgr_fa3_input in = Fa3Key();
  cgr_fa3_sizes s = CGR_FA3_SIZES_INIT;
  change(in);
  ExpectMessage(cgr_fa3_size(&in, &s), status, words);
  ExpectMessage(CGR_OK, CGR_OK, { "cgr_fa3_size" });
  EXPECT_EQ(s.metadata_bytes, 0u);
  ExpectBuildRefused(status, words, [&](Given &g) { change(g.input); });
}

TEST(Fa3Api, RefusesNumbersOutOfTheirRanges) {
  const struct {
    const char *name;
    int32_t cgr_fa3_input::*field;
    int32_t low, high;
  } ranges[] = {
    { "num_requests", &cgr_fa3_input::num_requests, 1, 4096 },
    { "max_requests", &cgr_fa3_input::max_requests, 0, 4096 },
    { "num_tokens", &cgr_fa3_input::num_tokens, 0, 1 << 24 },
    { "num_q_heads", &cgr_fa3_input::num_q_heads, 1, 1024 },
    { "num_kv_heads", &cgr_fa3_input::num_kv_heads, 1, 1024 },
    { "head_dim", &cgr_fa3_input::head_dim, 8, 256 },
    { "head_dim_v", &cgr_fa3_input::head_dim_v, 0, 512 },
    { "page_size", &cgr_fa3_input::page_size, 0, 1 << 30 },
    { "max_query_len", &cgr_fa3_input::max_query_len, 1, 1 << 30 },
    { "max_seq_len", &cgr_fa3_input::max_seq_len, 0, 1 << 30 },
    { "window_left", &cgr_fa3_input::window_left, 0, INT32_MAX },
    { "window_right", &cgr_fa3_input::window_right, 0, 0 },
    { "attention_chunk", &cgr_fa3_input::attention_chunk, 0, INT32_MAX },
    { "pack_gqa", &cgr_fa3_input::pack_gqa, -1, 1 },
    { "num_splits", &cgr_fa3_input::num_splits, 0, 255 },
    { "num_multiprocessors", &cgr_fa3_input::num_multiprocessors, 1, 4096 },
    { "tile_m", &cgr_fa3_input::tile_m, 0, 512 },
    { "tile_n", &cgr_fa3_input::tile_n, 16, 512 },
  };
  for (const auto &r : ranges) {
    auto set = [&](int32_t value) {
      return [&r, value](cgr_fa3_input &in) {
        in.tile_m = std::string(r.name) == "tile_n" ? 64 : 0;
        in.*r.field = value;
      };
    };
    const std::string expected = "expected " + std::to_string(r.low) + " .. " + std::to_string(r.high);
    ExpectRefused(CGR_ERROR_INVALID_ARGUMENT, { std::string(r.name) + " is " + std::to_string(r.low - 1), expected },
                  set(r.low - 1));
    if (r.high < INT32_MAX)
      ExpectRefused(CGR_ERROR_INVALID_ARGUMENT, { std::string(r.name) + " is " + std::to_string(r.high + 1), expected },
                    set(r.high + 1));
  }
  ExpectRefused(CGR_ERROR_INVALID_ARGUMENT, { "tile_n is 0, expected 16 .. 512" }, [](cgr_fa3_input &in) { in.tile_m = 64; });
  ExpectRefused(CGR_ERROR_INVALID_ARGUMENT, { "tile_m is 0, expected 16 .. 512" }, [](cgr_fa3_input &in) { in.tile_n = 64; });
  ExpectRefused(CGR_ERROR_UNSUPPORTED, { "attention_chunk is 1, expected 0", "vLLM" }, [](cgr_fa3_input &in) {
    in.layout = CGR_FA3_VLLM;
    in.attention_chunk = 1;
  });
}

TEST(Fa3Api, RefusesWhatDoesNotFitTogether) {
  ExpectRefused(CGR_ERROR_INVALID_ENUM, { "layout is 2", "cgr_fa3_layout (0 upstream, 1 vllm)" },
                [](cgr_fa3_input &in) { in.layout = 2; });
  ExpectRefused(CGR_ERROR_INVALID_ENUM, { "dtype is 1 (fp32)" }, [](cgr_fa3_input &in) { in.dtype = CGR_DTYPE_FP32; });
  ExpectRefused(CGR_ERROR_NEWER_STRUCT, { "reserved is 7" }, [](cgr_fa3_input &in) { in.reserved = 7; });
  ExpectRefused(CGR_ERROR_INVALID_STRUCT, { "input: size is 3" }, [](cgr_fa3_input &in) { in.size = 3; });
  ExpectRefused(CGR_ERROR_INVALID_ARGUMENT, { "num_q_heads is 33", "num_kv_heads (8)" },
                [](cgr_fa3_input &in) { in.num_q_heads = 33; });
  ExpectRefused(CGR_ERROR_INVALID_ARGUMENT, { "head_dim is 100", "multiple of 8" }, [](cgr_fa3_input &in) { in.head_dim = 100; });
  ExpectRefused(CGR_ERROR_INVALID_ARGUMENT, { "head_dim_v is 12" }, [](cgr_fa3_input &in) { in.head_dim_v = 12; });
  ExpectRefused(CGR_ERROR_INVALID_ARGUMENT, { "head_dim is 72", "multiple of 16" }, [](cgr_fa3_input &in) {
    in.dtype = CGR_DTYPE_FP8_E4M3;
    in.head_dim = 72;
  });
  ExpectRefused(CGR_ERROR_INVALID_ARGUMENT, { "max_query_len is 536870912", "2147483648 rows" },
                [](cgr_fa3_input &in) { in.max_query_len = 1 << 29; });
  ExpectRefused(CGR_ERROR_TOO_MANY_REQUESTS, { "num_requests is 4", "max_requests (3)" },
                [](cgr_fa3_input &in) { in.max_requests = 3; });
}

TEST(Fa3Api, RefusesNullAndWrongMemory) {
  cgr_fa3_input in = Fa3Key();
  cgr_fa3_sizes s = CGR_FA3_SIZES_INIT;
  ExpectMessage(cgr_fa3_size(nullptr, &s), CGR_ERROR_NULL_POINTER, { "cgr_fa3_size: input" });
  ExpectMessage(cgr_fa3_size(&in, nullptr), CGR_ERROR_NULL_POINTER, { "cgr_fa3_size: sizes" });
  ExpectMessage(cgr_fa3_build(nullptr, &in, 100), CGR_ERROR_NULL_POINTER, { "cgr_fa3_build: input" });
  Given given;
  ExpectMessage(cgr_fa3_build(&given.input, nullptr, 100), CGR_ERROR_NULL_POINTER, { "cgr_fa3_build: metadata" });
  ExpectMessage(cgr_fa3_build(&given.input, given.metadata + 1, 100), CGR_ERROR_INVALID_ARGUMENT, { "multiple of 16" });
  ExpectBuildRefused(CGR_ERROR_NULL_POINTER, { "query_start_loc", "5" }, [](Given &g) { g.input.query_start_loc = nullptr; });
  ExpectBuildRefused(CGR_ERROR_NULL_POINTER, { "seq_lens", "4" }, [](Given &g) { g.input.seq_lens = nullptr; });
  ExpectBuildRefused(CGR_ERROR_INVALID_ARGUMENT, { "bytes is 67", "68" }, [](Given &g) { g.bytes--; });
  ExpectBuildRefused(CGR_ERROR_INVALID_ARGUMENT, { "bytes is 68", "132" }, [](Given &g) { g.input.max_requests = 5; });
}

TEST(Fa3Api, RefusesLengthsPastTheKeys) {
  ExpectBuildRefused(CGR_ERROR_INVALID_ARGUMENT, { "query_start_loc[2] is 0 after 1" }, [](Given &g) { g.starts[2] = 0; });
  ExpectBuildRefused(CGR_ERROR_INVALID_ARGUMENT, { "query_start_loc[1] is 65 after 0", "64 (max_query_len)" },
                     [](Given &g) { g.starts[1] = 65; });
  ExpectBuildRefused(CGR_ERROR_INVALID_ARGUMENT, { "query_start_loc[1] is 2147483647 after -2147483648" }, [](Given &g) {
    g.starts[0] = INT32_MIN;
    g.starts[1] = INT32_MAX;
  });
  ExpectBuildRefused(CGR_ERROR_INVALID_ARGUMENT, { "seq_lens[1] is 8193", "8192 (max_seq_len)" },
                     [](Given &g) { g.lens[1] = 8193; });
  ExpectBuildRefused(CGR_ERROR_INVALID_ARGUMENT, { "seq_lens[3] is -1" }, [](Given &g) { g.lens[3] = -1; });
  ExpectBuildRefused(CGR_ERROR_TOO_MANY_TOKENS, { "query_start_loc has ", "at most 3 (num_tokens)" },
                     [](Given &g) { g.input.num_tokens = 3; });
  for (int32_t live : { -1, 5 })
    ExpectBuildRefused(CGR_ERROR_INVALID_ARGUMENT, { "*live_requests is " + std::to_string(live), "0 .. 4" }, [live](Given &g) {
      g.live = live;
      g.input.live_requests = &g.live;
    });
  Given given; // anything may follow the live ones
  given.live = 1;
  given.input.live_requests = &given.live;
  given.starts[2] = -5;
  given.lens[3] = INT32_MIN;
  CGR_EXPECT_OK(given.Build());
}

TEST(Fa3Api, SizesFollowFromTheKey) {
  cgr_fa3_input in = Fa3Key();
  cgr_fa3_sizes s = CGR_FA3_SIZES_INIT;
  in.num_requests = 6;
  in.max_requests = 257;
  in.num_tokens = 100;
  in.head_dim_v = 64;
  CGR_ASSERT_OK(cgr_fa3_size(&in, &s));
  EXPECT_EQ(s.metadata_bytes, 4u * (1 + 4 * 260));
  EXPECT_EQ(s.used_words, 4 * 8 + 1);
  EXPECT_EQ(s.partial_out_bytes, 4u * 32 * 32 * 100 * 64);
  EXPECT_EQ(s.partial_lse_bytes, 4u * 32 * 32 * 100);
  EXPECT_EQ(std::vector<int32_t>({ s.at_num_splits, s.at_num_m_blocks, s.at_batch_idx, s.at_nheads_in_l2, s.at_seqlen_q }),
            std::vector<int32_t>({ 0, 8, 16, 24, -1 }));
  in.layout = CGR_FA3_VLLM;
  CGR_ASSERT_OK(cgr_fa3_size(&in, &s));
  EXPECT_EQ(std::vector<int32_t>({ s.at_seqlen_q, s.at_num_splits, s.at_nheads_in_l2, s.at_num_m_blocks, s.at_batch_idx }),
            std::vector<int32_t>({ 0, 8, 16, -1, -1 }));
  in.num_splits = 1;
  in.causal = 0;
  CGR_ASSERT_OK(cgr_fa3_size(&in, &s));
  EXPECT_EQ(s.used_words, 8 + 1);
  EXPECT_EQ(s.at_num_splits, -1);
  EXPECT_EQ(s.partial_out_bytes + s.partial_lse_bytes, 0u);
}

// Tiles of head dims that the records do not have, from hopper/tile_size.h of both projects.
TEST(Fa3Api, TilesAreThoseOfTheKernels) {
  enum { kFull, kCausal, kLocal };
  const struct {
    int32_t layout, fp8, dim, dim_v, mask, page, max_query_len, tile_m, tile_n;
  } rows[] = {
    { 0, 0, 64, 0, kFull, 0, 1000, 192, 192 },    { 0, 0, 64, 0, kCausal, 0, 1000, 192, 128 },
    { 0, 0, 64, 0, kFull, 16, 1000, 192, 128 },   { 0, 0, 64, 0, kFull, 192, 1000, 192, 192 },
    { 0, 0, 64, 256, kFull, 0, 1000, 128, 96 },   { 0, 0, 64, 512, kCausal, 0, 1000, 64, 64 },
    { 0, 0, 80, 0, kFull, 0, 1000, 192, 144 },    { 0, 0, 96, 0, kLocal, 0, 1000, 192, 128 },
    { 0, 0, 128, 0, kFull, 176, 1000, 128, 176 }, { 0, 0, 128, 0, kFull, 176, 32, 128, 128 },
    { 0, 0, 192, 0, kFull, 0, 1000, 128, 112 },   { 0, 0, 192, 128, kCausal, 0, 1000, 128, 128 },
    { 0, 0, 192, 0, kLocal, 0, 1000, 128, 96 },   { 0, 0, 192, 0, kFull, 16, 1000, 128, 96 },
    { 0, 0, 256, 0, kFull, 0, 1000, 128, 80 },    { 0, 0, 256, 0, kLocal, 16, 1000, 128, 64 },
    { 0, 1, 64, 0, kFull, 0, 1000, 192, 160 },    { 0, 1, 96, 0, kFull, 0, 1000, 192, 128 },
    { 0, 1, 128, 0, kFull, 0, 1000, 128, 224 },   { 0, 1, 128, 0, kFull, 16, 1000, 128, 160 },
    { 0, 1, 192, 0, kLocal, 16, 1000, 128, 128 }, { 0, 1, 192, 0, kFull, 16, 1000, 128, 160 },
    { 0, 1, 256, 0, kFull, 0, 1000, 128, 128 },   { 0, 1, 256, 0, kLocal, 0, 1000, 128, 64 },
    { 1, 0, 64, 0, kFull, 0, 1000, 192, 192 },    { 1, 0, 64, 0, kFull, 16, 1000, 192, 160 },
    { 1, 0, 64, 0, kLocal, 0, 1000, 192, 160 },   { 1, 0, 64, 0, kCausal, 16, 1000, 192, 128 },
    { 1, 0, 64, 0, kCausal, 16, 16, 64, 192 },    { 1, 0, 64, 0, kLocal, 16, 16, 192, 160 },
    { 1, 0, 128, 0, kFull, 0, 16, 64, 176 },      { 1, 0, 128, 0, kFull, 16, 16, 64, 128 },
    { 1, 0, 128, 0, kFull, 0, 17, 128, 160 },     { 1, 0, 96, 0, kFull, 0, 1, 192, 144 },
    { 1, 0, 192, 0, kFull, 0, 1000, 128, 96 },    { 1, 0, 192, 128, kFull, 0, 1000, 128, 128 },
    { 1, 0, 256, 0, kCausal, 0, 1000, 128, 80 },  { 1, 1, 64, 0, kCausal, 16, 16, 64, 128 },
    { 1, 1, 128, 0, kCausal, 16, 16, 64, 96 },    { 1, 1, 64, 0, kFull, 16, 1000, 192, 128 },
    { 1, 1, 96, 0, kFull, 16, 1000, 128, 128 },   { 1, 1, 128, 0, kFull, 16, 1000, 128, 192 },
    { 1, 1, 192, 0, kFull, 16, 1000, 128, 96 },   { 1, 1, 256, 0, kLocal, 16, 1000, 128, 64 },
  };
  for (const auto &r : rows) {
    cgr_fa3_input in = Fa3Key();
    cgr_fa3_sizes s = CGR_FA3_SIZES_INIT;
    in.layout = r.layout;
    in.dtype = r.fp8 ? CGR_DTYPE_FP8_E4M3 : CGR_DTYPE_FP16;
    in.head_dim = r.dim;
    in.head_dim_v = r.dim_v;
    in.causal = r.mask == kCausal;
    in.window_left = r.mask == kLocal ? 300 : 0;
    in.page_size = r.page;
    in.max_query_len = r.max_query_len;
    CGR_ASSERT_OK(cgr_fa3_size(&in, &s));
    EXPECT_TRUE(s.tile_m == r.tile_m && s.tile_n == r.tile_n)
        << s.tile_m << " x " << s.tile_n << ", expected " << r.tile_m << " x " << r.tile_n << ": layout " << r.layout << " fp8 "
        << r.fp8 << " dims " << r.dim << " " << r.dim_v << " mask " << r.mask << " page " << r.page << " query "
        << r.max_query_len;
  }
}

// A cap makes other tiles for upstream's fp8 kernels with a window, in head dims of 97 to 192, and for no others:
// hopper/tile_size.h of both projects.
TEST(Fa3Api, SoftcapChangesTilesWhereTheKernelsDo) {
  enum { kFull, kCausal, kLocal };
  const struct {
    int32_t layout, fp8, dim, mask, page, capped, plain; // the last two: tile_n; tile_m is 128 in all
  } rows[] = {
    { 0, 1, 128, kLocal, 0, 192, 224 }, { 0, 1, 112, kLocal, 0, 192, 224 },  { 0, 1, 128, kLocal, 16, 160, 160 },
    { 0, 1, 128, kFull, 0, 224, 224 },  { 0, 1, 128, kCausal, 0, 224, 224 }, { 0, 1, 192, kLocal, 0, 128, 160 },
    { 0, 1, 160, kLocal, 0, 128, 160 }, { 0, 1, 192, kLocal, 16, 128, 128 }, { 0, 1, 192, kFull, 0, 160, 160 },
    { 0, 1, 192, kFull, 16, 160, 160 }, { 0, 1, 256, kLocal, 0, 64, 64 },    { 0, 0, 128, kLocal, 0, 128, 128 },
    { 0, 0, 192, kLocal, 0, 96, 96 },   { 0, 0, 192, kFull, 0, 112, 112 },   { 1, 1, 128, kLocal, 0, 192, 192 },
    { 1, 1, 192, kLocal, 0, 96, 96 },   { 1, 0, 128, kLocal, 0, 128, 128 },  { 1, 0, 192, kLocal, 0, 96, 96 },
  };
  for (const auto &r : rows) {
    for (int32_t softcap : { 0, 1 }) {
      cgr_fa3_input in = Fa3Key();
      cgr_fa3_sizes s = CGR_FA3_SIZES_INIT;
      in.layout = r.layout;
      in.dtype = r.fp8 ? CGR_DTYPE_FP8_E4M3 : CGR_DTYPE_BF16;
      in.head_dim = r.dim;
      in.causal = r.mask == kCausal;
      in.window_left = r.mask == kLocal ? 300 : 0;
      in.page_size = r.page;
      in.max_query_len = 1000;
      in.softcap = softcap;
      CGR_ASSERT_OK(cgr_fa3_size(&in, &s));
      EXPECT_EQ(s.tile_m, 128);
      EXPECT_EQ(s.tile_n, softcap ? r.capped : r.plain) << "layout " << r.layout << " fp8 " << r.fp8 << " dim " << r.dim
                                                        << " mask " << r.mask << " page " << r.page << " softcap " << softcap;
    }
  }
}

// The engine's windows in FlashAttention's terms: W keys are (W - 1, 0) or (W - 1, any); a window past all keys is no window.
TEST(Fa3Api, MasksAreTheirs) {
  auto mask = [](int32_t causal, int32_t left, int32_t right, int32_t query, int32_t dim, int32_t page, int32_t chunk = 0) {
    cgr_fa3_input in = Fa3Key();
    cgr_fa3_sizes s = CGR_FA3_SIZES_INIT;
    in.causal = causal;
    in.window_left = left;
    in.window_right = right;
    in.max_query_len = query;
    in.head_dim = dim;
    in.page_size = page;
    in.attention_chunk = chunk;
    CGR_EXPECT_OK(cgr_fa3_size(&in, &s));
    return std::string(s.is_causal ? "causal" : s.is_local ? "local" : "full");
  };
  EXPECT_EQ(mask(1, 0, 0, 64, 128, 16), "causal");
  EXPECT_EQ(mask(0, 0, 0, 64, 128, 16), "full");
  EXPECT_EQ(mask(1, 1, 0, 64, 128, 16), "local");
  EXPECT_EQ(mask(1, 8191, 0, 64, 128, 16), "local");
  EXPECT_EQ(mask(1, 8192, 0, 64, 128, 16), "causal") << "no key is outside of it";
  EXPECT_EQ(mask(0, 0, 62, 64, 128, 16), "local");
  EXPECT_EQ(mask(0, 0, 63, 64, 128, 16), "full");
  EXPECT_EQ(mask(1, 0, 0, 1, 128, 16), "causal") << "kept for its tiles";
  EXPECT_EQ(mask(1, 0, 0, 1, 128, 0), "full");
  EXPECT_EQ(mask(1, 0, 0, 1, 64, 16), "full");
  EXPECT_EQ(mask(1, 0, 0, 1, 192, 16), "full");
  EXPECT_EQ(mask(1, 500, 0, 1, 64, 16), "local");
  EXPECT_EQ(mask(1, 0, 0, 64, 128, 16, 256), "local");
  EXPECT_EQ(mask(1, 0, 0, 1, 64, 16, 256), "local");
}

TEST(Fa3Api, TheHeuristicIsToldAndCanBeGiven) {
  cgr_fa3_input in = Fa3Key();
  cgr_fa3_sizes s = CGR_FA3_SIZES_INIT;
  in.num_splits = 0;
  in.max_query_len = 1;
  CGR_ASSERT_OK(cgr_fa3_size(&in, &s)); // 33 splits of 8 tiles fill 2 waves; 85 % of a wave is 112.2 SMs
  EXPECT_EQ(s.num_splits, 15);
  in.max_seq_len = 512;
  CGR_ASSERT_OK(cgr_fa3_size(&in, &s));
  EXPECT_EQ(s.num_splits, 1) << "4 KV tiles are not split";
  in.max_seq_len = 8192;
  in.max_query_len = 4096;
  CGR_ASSERT_OK(cgr_fa3_size(&in, &s));
  EXPECT_EQ(s.num_splits, 1) << "enough tiles of queries";
  in.max_seq_len = 1 << 20;
  in.max_query_len = 1 << 20;
  in.causal = 0;
  CGR_ASSERT_OK(cgr_fa3_size(&in, &s));
  EXPECT_EQ(s.num_splits, 11) << "512 MiB of one KV head in stretches of 50";
}

// 850 keys are seen: they make 4 tiles of 224, which are not split, and 5 of the capped kernel's tiles of 192.
TEST(Fa3Api, TheHeuristicCountsTheTilesOfTheCappedKernel) {
  cgr_fa3_input in = Fa3Key();
  cgr_fa3_sizes s = CGR_FA3_SIZES_INIT;
  in.dtype = CGR_DTYPE_FP8_E4M3;
  in.page_size = in.num_splits = 0;
  in.max_query_len = 1;
  in.window_left = 850 - 128;
  CGR_ASSERT_OK(cgr_fa3_size(&in, &s));
  EXPECT_EQ(s.num_splits, 1);
  in.softcap = 1;
  CGR_ASSERT_OK(cgr_fa3_size(&in, &s));
  EXPECT_EQ(s.num_splits, 5);
}

TEST(Fa3Api, GivenTilesAreTaken) {
  cgr_fa3_input in = Fa3Key();
  cgr_fa3_sizes s = CGR_FA3_SIZES_INIT;
  in.tile_m = 48;
  in.tile_n = 272;
  CGR_ASSERT_OK(cgr_fa3_size(&in, &s));
  EXPECT_EQ(s.tile_m, 48);
  EXPECT_EQ(s.tile_n, 272);
}

} // namespace
} // namespace cgr_test
