// The plans of a set of layers: which layers share a plan, and that the room set aside is enough for every layer. Sizes are
// computed again here, from the text of planners/attention/plans.h, kernels/attention.h and planners/attention/plan.h.
#include <algorithm>
#include <cstring>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "base/limits.h"
#include "kernels/attention.h"
#include "kernels/cuda/attention/sm80/kind.h"
#include "kernels/registry.h"
#include "planners/attention/plan_host.h"
#include "tests/support/layer_case.h"
#include "tests/support/seed.h"

namespace cgr_test {
namespace {

std::vector<cgr_device_info> Devices() { return { HostInfo(), CudaInfo(80), CudaInfo(90) }; }

cgr_layer Layer(int32_t num_q_heads, int32_t num_kv_heads, int32_t head_dim) {
  cgr_layer layer = PlainLayer();
  layer.num_q_heads = num_q_heads;
  layer.num_kv_heads = num_kv_heads;
  layer.head_dim = layer.head_dim_v = head_dim;
  return layer;
}

// The kernel kind of plain layers. It is also asked what plans are made of for layers and memory that it cannot run with.
const cgr__kernel_kind *KernelKindOf(cgr_device_info device) {
  device.shared_memory = 0; // not known
  cgr__findings findings;
  cgr__findings_init(&findings, nullptr, 0);
  cgr_layer layer = PlainLayer();
  const cgr__kernel_kind *kernel_kind = cgr__kernel_kind_choose(&device, &layer, 1, &findings);
  EXPECT_NE(kernel_kind, nullptr);
  return kernel_kind;
}

struct Made {
  cgr__plans plans;
  std::vector<cgr_finding> findings;
};

constexpr cgr__plan_options kOptions = { 0, 256, 8192, false };

// Layers that `without` names have no kernel kind.
Made Make(const cgr_device_info &device, const std::vector<cgr_layer> &layers, const cgr__plan_options &options = kOptions,
          const std::set<size_t> &without = {}) {
  std::vector<const cgr__kernel_kind *> kernel_kinds(layers.size(), KernelKindOf(device));
  for (size_t i : without)
    kernel_kinds[i] = nullptr;
  Made made;
  std::memset(static_cast<void *>(&made.plans), 0xA5, sizeof made.plans);
  made.findings.resize(64);
  cgr__findings findings;
  cgr__findings_init(&findings, made.findings.data(), 64);
  cgr__kernel_kinds_plan(&device, layers.data(), kernel_kinds.data(), int32_t(layers.size()), &options, &made.plans, &findings);
  made.findings.resize(size_t(findings.count));
  EXPECT_EQ(findings.layer, -1) << "what is found next is not about a layer";
  return made;
}

// ------------------------------------------------------------------------------------------------------------------- parts

// Dynamic shared memory of a CTA: two stages of K and V, and three query tiles of 16 lines.
constexpr int32_t Own(int32_t head_dim) { return (2 * 2 * 64 + 3 * 16) * head_dim * 2; }

TEST(Plans, HaveAPartForEachCtaThatTheDeviceHolds) {
  struct Case {
    const char *name;
    int32_t capability, multiprocessors, shared_memory, head_dim, ctas;
  };
  const Case cases[] = { { "A100", 80, 108, 167936, 128, 2 },
                         { "A100", 80, 108, 167936, 64, 2 },
                         { "H200", 90, 132, 233472, 128, 2 },
                         { "H200", 90, 132, 233472, 64, 2 },
                         { "B200", 100, 148, 233472, 128, 2 },
                         { "B200", 100, 148, 233472, 64, 2 },
                         { "L40S", 89, 142, 102400, 128, 1 },
                         { "room for the tiles of two and no more", 90, 10, 2 * Own(128), 128, 1 },
                         { "and for what else they take", 90, 10, 2 * (Own(128) + 2560), 128, 2 },
                         { "and one byte less", 90, 10, 2 * (Own(128) + 2560) - 1, 128, 1 },
                         { "one that says nothing", 90, 10, 0, 128, 1 } };
  for (const Case &c : cases) {
    SCOPED_TRACE(std::string(c.name) + " at head dim " + std::to_string(c.head_dim));
    cgr_device_info device = CudaInfo(c.capability, 0, c.multiprocessors, c.shared_memory);
    cgr_layer layer = Layer(32, 8, c.head_dim);
    EXPECT_EQ(cgr__plan_device_parts(&KernelKindOf(device)->plan, &device, &layer), c.multiprocessors * c.ctas);
    const cgr__plans plans = Make(device, { layer }).plans;
    const cgr__plan_class plan = plans.classes[0];
    const int32_t own = Own(c.head_dim), taken = std::max(own, plans.shared_bytes[0]);
    EXPECT_GT((c.ctas + 1) * (taken + 1024), c.shared_memory) << "a multiprocessor holds one more";
    EXPECT_LE(c.ctas * (taken + 2560), std::max(c.shared_memory, own + 2560)) << "it does not hold those of the plan";
    EXPECT_LE(plans.shared_bytes[0], CGR__MMA_MOST_PADDING) << "the launcher gives no more";
    EXPECT_LE(plan.num_parts * plan.stripes, c.multiprocessors * c.ctas);
    EXPECT_GE(plan.num_parts * plan.stripes * 64, c.multiprocessors * c.ctas * 63) << "too many stay idle";
  }
}

// The query lengths that a launch is given determine how many lines its items have at most.
TEST(Plans, TellTheMostLinesOfAnItem) {
  struct Case {
    int32_t max_query_len, decode_query_len, block_heads, lines;
  };
  const Case cases[] = { { 0, 1, 4, 64 },    { 1, 1, 4, 4 },
                         { 1, 4, 4, 4 },     { 2, 4, 4, 8 },
                         { 4, 4, 4, 16 },    { 5, 4, 4, 64 },
                         { 1, 1, 16, 16 },   { 1, 1, 17, 17 },
                         { 1, 1, 64, 64 },   { 16, 16, 1, 16 },
                         { 17, 16, 1, 64 },  { -1, 1, 4, 64 },
                         { 3, 100, 40, 64 }, { INT32_MAX, INT32_MAX, 64, 64 } };
  for (const Case &c : cases) {
    cgr__attention_args args = {};
    args.max_query_len = c.max_query_len;
    args.plan_class.decode_query_len = c.decode_query_len;
    args.block_heads = c.block_heads;
    EXPECT_EQ(cgr__attention_most_lines(&args, 64), c.lines) << c.max_query_len << " tokens of " << c.block_heads << " heads";
  }
}

TEST(Plans, HaveNoMorePartsThanThereMayBe) {
  cgr_layer layer = PlainLayer();
  for (int32_t multiprocessors : { 0, 1, 2047, 2048, 2049, 1 << 20 }) {
    cgr_device_info device = CudaInfo(90, 0, multiprocessors);
    EXPECT_EQ(cgr__plan_device_parts(&KernelKindOf(device)->plan, &device, &layer),
              std::min(std::max(1, 2 * multiprocessors), CGR__MAX_PARTS));
  }
  cgr_device_info host = HostInfo();
  for (int32_t processors : { 1, 8, 64 }) { // the host's plans are the same wherever they are made
    host.num_multiprocessors = processors;
    EXPECT_EQ(cgr__plan_device_parts(&KernelKindOf(host)->plan, &host, &layer), 8);
    EXPECT_EQ(Make(host, { layer }).plans.shared_bytes[0], 0);
  }
}

TEST(Plans, HaveThePartsThatTheUserGives) {
  for (const cgr_device_info &device : Devices()) {
    for (int32_t parts : { 1, 7, CGR__MAX_PARTS }) {
      cgr__plan_options options = kOptions;
      options.num_parts = parts;
      Made made = Make(device, { Layer(8, 8, 64), Layer(64, 8, 128) }, options);
      ASSERT_EQ(made.plans.num_classes, 2);
      for (int32_t i = 0; i < 2; i++)
        EXPECT_EQ(made.plans.classes[i].num_parts * made.plans.classes[i].stripes, parts);
      EXPECT_EQ(made.plans.num_partials, int64_t{ 4 } * parts);
    }
  }
}

// ----------------------------------------------------------------------------------------------------------------- classes

// 4096 requests and parts take 163,920 bytes plus a fixed amount.
TEST(Plans, NeedThePlannersSharedMemory) {
  for (int32_t num_parts : { 100, 4096 })
    for (int32_t max_requests : { 1, 4096 }) {
      const int64_t in_stripe =
          Make(HostInfo(), { PlainLayer() }, { num_parts, max_requests, 8192, false }).plans.classes[0].num_parts;
      const int64_t bytes = 5120 + 16 * (int64_t(max_requests) + 2) + 24 * (in_stripe + 2);
      for (int32_t shared_memory : { 0, 102400, int32_t(bytes) - 1, int32_t(bytes), 233472 })
        for (cgr_device_info device : { CudaInfo(90), HostInfo() }) {
          SCOPED_TRACE(std::to_string(num_parts) + " parts, " + std::to_string(max_requests) + " requests, " +
                       std::to_string(shared_memory) + " bytes");
          device.shared_memory = shared_memory;
          Made made = Make(device, { PlainLayer(), PlainLayer() }, { num_parts, max_requests, 8192, false });
          bool refused = device.kind == CGR_DEVICE_KIND_CUDA && shared_memory > 0 && bytes > shared_memory;
          ASSERT_EQ(made.findings.size(), refused ? 1u : 0u);
          if (!refused)
            continue;
          EXPECT_EQ(made.findings[0].status, CGR_ERROR_UNSUPPORTED);
          EXPECT_STREQ(made.findings[0].field, "num_parts");
          EXPECT_NE(std::string(made.findings[0].text).find(std::to_string(bytes)), std::string::npos);
          EXPECT_NE(std::string(made.findings[0].text).find("is " + std::to_string(num_parts) + ","), std::string::npos);
        }
    }
}

// Layers that differ in properties that do not decide who works on what, among them one without a kernel kind, which has a
// counter but no plan.
TEST(Plans, AreSharedByLayersThatAreEqualInThem) {
  static float number = 1.0f;
  for (const cgr_device_info &device : Devices()) {
    std::vector<cgr_layer> layers(6, Layer(32, 8, 128));
    layers[1].scale = 3.0f;
    layers[2].group = 2;
    layers[3].softcap = 30.0f;
    layers[4].sinks = layers[4].alibi_slopes = &number;
    layers[5].kv_source = 1;
    layers[5].flags = CGR_LAYER_ALIBI_SQRT;
    layers.insert(layers.begin(), Layer(1, 1, 8));
    Made made = Make(device, layers, kOptions, { 0 });
    EXPECT_TRUE(made.findings.empty());
    EXPECT_EQ(made.plans.num_classes, 1);
    for (size_t i = 1; i < layers.size(); i++)
      EXPECT_EQ(made.plans.class_of[i], 0);
    EXPECT_EQ(made.plans.num_counters, made.plans.num_partials + 7);
    EXPECT_EQ(made.plans.partial_dim, 128);
  }
}

TEST(Plans, OfNoLayersAreNothing) {
  cgr_device_info device = CudaInfo(90);
  for (const Made &made : { Make(device, {}), Make(device, { PlainLayer(), PlainLayer() }, kOptions, { 0, 1 }) }) {
    EXPECT_TRUE(made.findings.empty());
    EXPECT_EQ(made.plans.num_classes, 0);
    EXPECT_EQ(made.plans.plan_words, 0);
    EXPECT_EQ(made.plans.num_partials, 0);
    EXPECT_EQ(made.plans.partial_vectors, 0);
  }
}

// Each property that a plan depends on, by itself, and the field of the class that shows it.
TEST(Plans, AreApartForLayersThatDifferInThem) {
  struct Difference {
    const char *name;
    std::function<void(cgr_layer *)> make;
    std::function<int32_t(const cgr__plan_class &)> of;
    int32_t before, after;
  };
  const std::vector<Difference> differences = {
    { "KV heads", [](cgr_layer *l) { l->num_kv_heads = 4, l->num_q_heads = 16; },
      [](const cgr__plan_class &c) { return c.head_blocks * c.stripes; }, 8, 4 },
    { "blocks of query heads", [](cgr_layer *l) { l->num_q_heads = 8 * 65; },
      [](const cgr__plan_class &c) { return c.head_blocks * c.stripes; }, 8, 16 },
    { "query heads", [](cgr_layer *l) { l->num_q_heads = 64; }, [](const cgr__plan_class &c) { return c.decode_query_len; }, 4,
      2 },
    { "query heads of a tile", [](cgr_layer *l) { l->num_q_heads = 8 * 9; },
      [](const cgr__plan_class &c) { return c.prefill_tile_q; }, 16, 4 },
    { "head dim", [](cgr_layer *l) { l->head_dim = l->head_dim_v = 64; }, [](const cgr__plan_class &c) { return c.cost_kv; },
      2000, 1000 },
    { "window to the left", [](cgr_layer *l) { l->window_left = 128; }, [](const cgr__plan_class &c) { return c.window_left; }, 0,
      128 },
    { "window to the right", [](cgr_layer *l) { l->window_right = 7; }, [](const cgr__plan_class &c) { return c.window_right; },
      0, 7 },
    { "both directions", [](cgr_layer *l) { l->flags = CGR_LAYER_BIDIRECTIONAL; },
      [](const cgr__plan_class &c) { return c.bidirectional; }, 0, 1 },
    { "length set", [](cgr_layer *l) { l->length_set = 2; }, [](const cgr__plan_class &c) { return c.length_set; }, 0, 2 },
  };
  for (const cgr_device_info &device : Devices()) {
    for (const Difference &difference : differences) {
      SCOPED_TRACE(difference.name);
      std::vector<cgr_layer> layers(4, Layer(32, 8, 128));
      difference.make(&layers[1]);
      layers[3] = layers[1];
      Made made = Make(device, layers);
      EXPECT_TRUE(made.findings.empty());
      ASSERT_EQ(made.plans.num_classes, 2);
      for (size_t i = 0; i < 4; i++)
        EXPECT_EQ(made.plans.class_of[i], i % 2) << i;
      EXPECT_EQ(difference.of(made.plans.classes[0]), difference.before);
      EXPECT_EQ(difference.of(made.plans.classes[1]), difference.after);
    }
  }
}

// Windows of 1, 2, 3, ...: the kind that is one too many is named each time; layers of the kinds before it are served.
TEST(Plans, NameTheLayerOfAKindTooMany) {
  for (const cgr_device_info &device : Devices()) {
    std::vector<cgr_layer> layers;
    for (int32_t i = 0; i < CGR__MAX_CLASSES + 5; i++) {
      layers.push_back(PlainLayer());
      layers.back().window_left = 1 + i % (CGR__MAX_CLASSES + 1); // layer 16 is one more; then 1, 2, 3, 4 again
    }
    layers.push_back(layers[CGR__MAX_CLASSES]);
    EXPECT_TRUE(Make(device, { layers.begin(), layers.begin() + CGR__MAX_CLASSES }).findings.empty());
    Made made = Make(device, layers);
    EXPECT_EQ(made.plans.num_classes, CGR__MAX_CLASSES);
    for (size_t i = 0; i < layers.size(); i++) {
      size_t kind = i % (CGR__MAX_CLASSES + 1);
      if (kind != CGR__MAX_CLASSES && i + 1 < layers.size()) {
        EXPECT_EQ(made.plans.class_of[i], kind) << i;
      }
    }
    ASSERT_EQ(made.findings.size(), 2u);
    for (size_t f = 0; f < 2; f++) {
      int32_t layer = f == 0 ? CGR__MAX_CLASSES : CGR__MAX_CLASSES + 5;
      EXPECT_EQ(made.findings[f].status, CGR_ERROR_UNSUPPORTED);
      EXPECT_EQ(made.findings[f].layer, layer);
      EXPECT_EQ(std::string(made.findings[f].field).rfind("layers[" + std::to_string(layer) + "].", 0), 0u);
      EXPECT_NE(std::string(made.findings[f].text).find("16"), std::string::npos) << made.findings[f].text;
      EXPECT_NE(std::string(made.findings[f].text).find("expected"), std::string::npos) << made.findings[f].text;
    }
  }
}

// Items are counted in 32 bits. With 64 query heads to a KV head, every token is a separate tile for each KV head, and each
// request may have one more.
TEST(Plans, NameTheLayerWhosePlanIsTooLarge) {
  const cgr__plan_options options = { 0, 4096, 1 << 24, false };
  cgr_device_info device = CudaInfo(90);
  EXPECT_TRUE(Make(device, { PlainLayer(), Layer(127 * 64, 127, 64) }, options).findings.empty());
  Made made = Make(device, { PlainLayer(), Layer(128 * 64, 128, 64), PlainLayer() }, options);
  ASSERT_EQ(made.findings.size(), 1u);
  EXPECT_EQ(made.findings[0].status, CGR_ERROR_UNSUPPORTED);
  EXPECT_EQ(made.findings[0].layer, 1);
  EXPECT_STREQ(made.findings[0].field, "layers[1].num_kv_heads");
  std::string text = made.findings[0].text;
  for (int64_t number : { int64_t{ 128 }, int64_t{ 1 } << 24, ((int64_t{ 1 } << 24) + 4096) * 128 })
    EXPECT_NE(text.find(std::to_string(number)), std::string::npos) << text;
  EXPECT_NE(text.find("expected"), std::string::npos) << text;
  EXPECT_EQ(made.plans.num_classes, 1) << "the others have theirs";
  EXPECT_EQ(made.plans.class_of[2], 0);
}

// A prefill queue's head goes on counting after its last tile: the number of tiles ends early enough that it never passes 2^31.
TEST(Plans, LeaveRoomForThePrefillQueueToCountOn) {
  cgr_device_info device = CudaInfo(90);
  const int64_t most = INT32_MAX - 4 * int64_t{ CGR__MAX_PARTS };
  for (int32_t more : { 0, 1 }) {
    const cgr__plan_options options = { 0, 4096, int32_t(most / 128) - 4096 + more, false };
    EXPECT_EQ(Make(device, { Layer(128 * 64, 128, 64) }, options).findings.size(), size_t(more));
  }
}

TEST(Plans, CutTilesTheSameWayWhenBatchesMustNotMatter) {
  for (const cgr_device_info &device : Devices()) {
    const cgr__kernel_kind *kernel_kind = KernelKindOf(device);
    ASSERT_GE(kernel_kind->plan.max_splits, 1);
    ASSERT_LE(kernel_kind->plan.max_splits, CGR__MAX_SPLITS);
    cgr__plan_options options = kOptions;
    EXPECT_EQ(Make(device, { PlainLayer() }, options).plans.classes[0].max_splits, 0);
    options.batch_invariant = true;
    cgr__plans plans = Make(device, { PlainLayer() }, options).plans;
    EXPECT_EQ(plans.classes[0].max_splits, kernel_kind->plan.max_splits);
    EXPECT_EQ(plans.num_partials,
              int64_t{ plans.classes[0].num_parts } * plans.classes[0].stripes * (kernel_kind->plan.max_splits + 1));
    EXPECT_EQ(plans.partial_vectors, plans.num_partials * plans.decode_lines[0]) << "the prefill queue needs none";
  }
}

// ------------------------------------------------------------------------------------------------------------------- tiles

// For each number of query heads to a KV head: the blocks by counting, and the largest tiles that fit.
TEST(Plans, HaveTilesWhoseLinesFit) {
  for (const cgr_device_info &device : Devices()) {
    const cgr__kernel_kind *kernel_kind = KernelKindOf(device);
    for (int32_t q_per_kv = 1; q_per_kv <= CGR__MAX_Q_HEADS; q_per_kv++) {
      SCOPED_TRACE(std::string(kernel_kind->name) + " " + std::to_string(q_per_kv));
      cgr_layer layer = Layer(3 * q_per_kv, 3, 64);
      int32_t heads = cgr__plan_block_heads(&kernel_kind->plan, &layer), blocks = 0;
      for (int32_t head = 0; head < q_per_kv; head += heads)
        blocks += 3;
      ASSERT_EQ(heads, std::min(q_per_kv, 64));
      ASSERT_EQ(cgr__plan_head_blocks(&kernel_kind->plan, &layer), blocks);
      const cgr__plan_class c = Make(device, { layer }).plans.classes[0];
      ASSERT_EQ(c.head_blocks * c.stripes, blocks);
      ASSERT_GE(c.decode_query_len, 1);
      ASSERT_LE(c.decode_query_len * heads, std::max(16, heads));
      ASSERT_GT((c.decode_query_len + 1) * heads, 16);
      ASSERT_GE(c.prefill_tile_q, 1);
      ASSERT_EQ(c.prefill_tile_q & (c.prefill_tile_q - 1), 0);
      ASSERT_LE(c.prefill_tile_q * heads, 64);
      ASSERT_GT(2 * c.prefill_tile_q * heads, 64);
    }
  }
}

// ------------------------------------------------------------------------------------------------------------------- sizes

std::vector<cgr_layer> RandomLayers(Random &random) {
  const int32_t q_per_kv_counts[] = { 1, 2, 3, 4, 5, 6, 7, 8, 16, 31, 32, 33, 40, 63, 64, 65, 128 };
  std::vector<cgr_layer> layers;
  for (int64_t i = random.Pick(1, 12); i > 0; i--) {
    int32_t num_kv_heads = 1 << random.Pick(0, 3), q_per_kv = q_per_kv_counts[random.Pick(0, 16)];
    layers.push_back(Layer(num_kv_heads * q_per_kv, num_kv_heads, random.OneIn(2) ? 64 : 128));
    layers.back().window_left = random.OneIn(4) ? 100 : 0;
  }
  return layers;
}

// Tiles of a batch that fills the prefill queue: each request has one token more than the decode section takes or, if that makes
// more tiles, than some number of whole tiles takes. One request also gets the tokens that are left.
int64_t MostTiles(const cgr__plan_class &c, int64_t max_requests, int64_t max_tokens) {
  int64_t step = c.prefill_tile_q, least = c.decode_query_len + 1, most = 0;
  for (int64_t len : { least, (least - 1 + step - 1) / step * step + 1 }) {
    int64_t requests = std::min(max_requests, max_tokens / len);
    if (requests == 0)
      continue;
    int64_t longest = len + max_tokens - requests * len;
    most = std::max(most, (requests - 1) * ((len + step - 1) / step) + (longest + step - 1) / step);
  }
  return most;
}

// The room that attention of one layer takes: its partials, which hold its tiles line by line.
void ExpectRoom(const cgr__plans &plans, size_t index, const cgr_layer &layer, const cgr__plan_options &options) {
  const cgr__plan_class &c = plans.classes[plans.class_of[index]];
  int64_t heads = std::min(layer.num_q_heads / layer.num_kv_heads, 64), parts = c.num_parts * c.stripes, splits = c.max_splits;
  int64_t decode_lines = plans.decode_lines[plans.class_of[index]], prefill_lines = plans.prefill_lines[plans.class_of[index]];
  int64_t decode_partials = parts * (splits > 0 ? splits + 1 : 2), prefill_partials = splits > 0 ? 0 : 2 * parts;
  EXPECT_EQ(c.head_blocks * c.stripes, layer.num_kv_heads * ((layer.num_q_heads / layer.num_kv_heads + 63) / 64));
  EXPECT_EQ(c.window_left, layer.window_left);
  EXPECT_EQ(c.max_requests, options.max_requests);
  EXPECT_EQ(c.decode_tile_kv, 64);
  EXPECT_EQ(c.prefill_tile_kv, 64);
  EXPECT_GE(decode_lines, c.decode_query_len * heads) << "a partial of the decode section does not hold a tile";
  EXPECT_GE(prefill_lines, c.prefill_tile_q * heads) << "a partial of the prefill queue does not hold a tile";
  EXPECT_GE(plans.num_partials, decode_partials + prefill_partials);
  EXPECT_GE(plans.partial_vectors, decode_partials * decode_lines + prefill_partials * prefill_lines);
  EXPECT_GE(plans.partial_dim, layer.head_dim);
  EXPECT_GE(c.max_entries, MostTiles(c, options.max_requests, options.max_tokens));
  if (splits == 0) { // a few tiles become fewer than 2 G splits in all head blocks together
    EXPECT_GE(int64_t{ c.max_entries } * c.head_blocks, 2 * c.num_parts - 1);
  }
}

// The plans are one after the other, aligned, and are as long as their parts say.
void ExpectApart(const cgr__plans &plans) {
  int64_t end = 0;
  for (int32_t i = 0; i < plans.num_classes; i++) {
    const cgr__plan_class &c = plans.classes[i];
    int64_t bytes = 64 + int64_t{ 48 } * c.num_parts + (int64_t{ c.max_requests } + 3) / 4 * 16 + int64_t{ 32 } * c.max_entries;
    EXPECT_EQ(plans.offset[i] % 4, 0);
    EXPECT_GE(plans.offset[i], end);
    end = plans.offset[i] + bytes / 4;
  }
  EXPECT_EQ(plans.plan_words, end);
}

TEST(Plans, HoldEveryLayer) {
  ForSeeds(2000, [&](Random &random) {
    cgr_device_info device =
        random.OneIn(3) ? HostInfo() : CudaInfo(90, 0, random.Pick32(1, 200), random.OneIn(2) ? 102400 : 233472);
    cgr__plan_options options = { random.OneIn(2) ? 0 : random.Pick32(1, 3600), random.Pick32(1, 600), 0, random.OneIn(3) };
    options.max_tokens = options.max_requests + random.Pick32(0, random.OneIn(2) ? 500 : 50000);
    std::vector<cgr_layer> layers = RandomLayers(random);
    Made made = Make(device, layers, options);
    EXPECT_TRUE(made.findings.empty());
    for (size_t i = 0; i < layers.size(); i++) {
      SCOPED_TRACE("layer " + std::to_string(i) + " of " + std::to_string(layers[i].num_q_heads) + " and " +
                   std::to_string(layers[i].num_kv_heads) + " heads");
      ASSERT_LT(made.plans.class_of[i], made.plans.num_classes);
      ExpectRoom(made.plans, i, layers[i], options);
    }
    EXPECT_EQ(made.plans.num_counters, made.plans.num_partials + int64_t(layers.size()));
    ExpectApart(made.plans);
  });
}

// 6 and 7 query heads to a KV head make the same plan, of 2 tokens to a tile, but differ in lines. The order must not matter.
TEST(Plans, HoldTheLinesOfAllThatShareOne) {
  for (const cgr_device_info &device : Devices()) {
    for (bool larger_first : { false, true }) {
      std::vector<cgr_layer> layers = { Layer(6 * 4, 4, 64), Layer(7 * 4, 4, 64) };
      if (larger_first)
        std::swap(layers[0], layers[1]);
      cgr__plans plans = Make(device, layers).plans;
      ASSERT_EQ(plans.num_classes, 1);
      EXPECT_EQ(plans.decode_lines[0], 14);
    }
  }
}

// An H200 by hand: 264 CTAs, 33 for each of 8 heads. With 4 query heads to a KV head, a tile has 4 tokens (16 lines) in the
// decode section and 16 (64 lines) in the prefill queue; 256 requests, 8192 tokens in all, fill the prefill queue with 512 whole
// and 256 partial tiles.
TEST(Plans, OfAnH200AsByHand) {
  cgr__plans plans = Make(CudaInfo(90), { Layer(32, 8, 128), Layer(32, 8, 128) }).plans;
  const cgr__plan_class &c = plans.classes[0];
  EXPECT_EQ(plans.num_classes, 1);
  EXPECT_EQ(c.num_parts, 33);
  EXPECT_EQ(c.head_blocks, 1);
  EXPECT_EQ(c.stripes, 8);
  EXPECT_EQ(c.decode_query_len, 4);
  EXPECT_EQ(c.prefill_tile_q, 16);
  EXPECT_EQ(c.max_entries, 768);
  EXPECT_EQ(plans.decode_lines[0], 16);
  EXPECT_EQ(plans.prefill_lines[0], 64);
  EXPECT_EQ(plans.plan_words, (64 + 33 * 48 + 256 * 4 + 768 * 32) / 4);
  EXPECT_EQ(plans.num_partials, 4 * 264);
  EXPECT_EQ(plans.num_counters, 4 * 264 + 2);
  EXPECT_EQ(plans.partial_vectors, 2 * 264 * 16 + 2 * 264 * 64);
  EXPECT_EQ(plans.partial_dim, 128);
}

// 2619 and 3201 MHz, 5120 and 6144 bits. A part next to q tiles takes 920 ns for 32 KB, so 10.9 parts of each stripe saturate an
// H100 and 15.996 an H200; 16 may have decodes, one for each of 132 multiprocessors. A KV tile of the queue takes 1800 ns, a q
// tile 7000, where one of the decode section's costs 2000 units.
TEST(Plans, LeaveRoomByTheMemorysRate) {
  const std::pair<uint64_t, int32_t> cards[] = { { 2 * 2619000000ull * 5120 / 8, 11 }, { 2 * 3201000000ull * 6144 / 8, 16 } };
  for (const auto &[rate, memory_parts] : cards) {
    cgr_device_info device = CudaInfo(90);
    device.memory_bandwidth = rate;
    const cgr__plans plans = Make(device, { Layer(32, 8, 128) }).plans;
    EXPECT_EQ(plans.classes[0].memory_parts, memory_parts);
    EXPECT_EQ(plans.classes[0].mixed_parts, 16);
    EXPECT_EQ(plans.classes[0].prefill_cost_tile, 15217);
    EXPECT_EQ(plans.classes[0].prefill_cost_kv, 3913);
  }
}

// A GPU's decodes take as long as their bytes, and half as many parts of half as long KV tiles saturate the memory, too. Q tiles
// compute, whatever the bytes. The host computes always.
TEST(Plans, CountTheBytesOfTheCache) {
  for (cgr_dtype dtype : { CGR_DTYPE_FP8_E4M3, CGR_DTYPE_FP8_E5M2 }) {
    cgr_layer halves = Layer(32, 8, 128), codes = halves;
    codes.k.dtype = codes.v.dtype = dtype;
    cgr_device_info device = CudaInfo(90);
    device.memory_bandwidth = 3352000000000;
    const cgr__plans on_gpu = Make(device, { halves, codes }).plans;
    ASSERT_EQ(on_gpu.num_classes, 2);
    const cgr__plan_class &two = on_gpu.classes[0], &one = on_gpu.classes[1];
    EXPECT_EQ(one.cost_kv * 2, two.cost_kv);
    EXPECT_EQ(one.memory_parts, two.memory_parts);
    EXPECT_EQ(one.prefill_cost_kv, two.prefill_cost_kv);
    EXPECT_EQ(Make(HostInfo(), { halves, codes }).plans.num_classes, 1);
  }
}

// Wherever and whatever: at least one part, and no more than there are.
TEST(Plans, LeaveRoomOnAnyDevice) {
  ForSeeds(2000, [&](Random &random) {
    cgr_device_info device = random.OneIn(4) ? HostInfo() : CudaInfo(90, 0, random.Pick32(1, 200));
    device.memory_bandwidth = random.OneIn(3) ? 0 : uint64_t(random.Bits()) >> random.Pick(0, 40);
    const cgr__plan_options options = { random.OneIn(2) ? 0 : random.Pick32(1, 600), 8, 64, false };
    const int32_t heads = random.Pick32(1, 12);
    const cgr__plans plans = Make(device, { Layer(heads, heads, 64 << random.Pick(0, 2)) }, options).plans;
    const cgr__plan_class &c = plans.classes[0];
    ASSERT_EQ(plans.num_classes, 1);
    ASSERT_TRUE(c.mixed_parts >= 1 && c.mixed_parts <= c.num_parts) << c.mixed_parts << " of " << c.num_parts;
    ASSERT_TRUE(c.memory_parts >= 0 && c.memory_parts <= c.num_parts) << c.memory_parts << " of " << c.num_parts;
    ASSERT_GE(c.prefill_cost_kv, 1);
  });
}

} // namespace
} // namespace cgr_test
