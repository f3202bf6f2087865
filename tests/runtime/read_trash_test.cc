// Read-trash pages that hold NaN or an infinity are named, by group, page, layer, K or V, over the validation layer: once a step
// has completed, and by the next prepare. Finite pages of any layout are left alone.
#include <cstring>

#include "tests/support/engine.h"
#include "tests/support/gate.h"
#include "tests/support/seed.h"
#include "tests/support/violations.h"

namespace cgr_test {
namespace {

class ReadTrash : public OverDevices {
protected:
  std::unique_ptr<Engine> Make(Random &random) {
    const std::vector<KvLayout> layouts = { KvLayout::kNhd,         KvLayout::kHnd,          KvLayout::kKvPages,
                                            KvLayout::kPairs,       KvLayout::kLayersInPage, KvLayout::kLayersInPageHnd,
                                            KvLayout::kHeadsInToken };
    EngineOptions options = OptionsFor(GetParam());
    options.handle = violations_.Open(GetParam());
    options.layout = layouts[size_t(random.Pick(0, int64_t(layouts.size()) - 1))];
    options.page_size = random.OneIn(2) ? 16 : 32;
    if (!GetParam().HasCudaKernels())
      options.dtype = random.OneIn(2) ? CGR_DTYPE_FP32 : random.OneIn(2) ? CGR_DTYPE_FP16 : CGR_DTYPE_BF16;
    if (options.dtype != CGR_DTYPE_FP32)
      options.feed = Feed::kUploads;
    if (random.OneIn(3)) // a page whose heads do not adjoin
      options.kv_order = random.OneIn(2) ? "bthkl" : "bhtlk";
    const int32_t heads = random.Pick32(1, 2);
    for (LayerOptions &layer : options.layers)
      layer.num_kv_heads = options.kv_order.empty() ? random.Pick32(1, 2) : heads;
    return std::make_unique<Engine>(options);
  }
  Violations violations_;
};

// The bytes of a bad value, which one in three times is an infinity.
std::vector<unsigned char> Bad(int32_t dtype, Random &random) {
  const bool infinite = random.OneIn(3), negative = random.OneIn(2);
  const uint32_t sign = negative ? 1 : 0, fraction = infinite ? 0 : 1;
  uint32_t word = sign << 31 | 0x7f800000u | fraction;
  uint16_t half = uint16_t(sign << 15 | (dtype == CGR_DTYPE_FP16 ? 0x7c00u : 0x7f80u) | fraction);
  std::vector<unsigned char> bytes(cgr_dtype_size(cgr_dtype(dtype)));
  std::memcpy(bytes.data(), dtype == CGR_DTYPE_FP32 ? static_cast<const void *>(&word) : &half, bytes.size());
  return bytes;
}

TEST_P(ReadTrash, NanIsNamed) {
  SeededRandom random;
  for (int run = 0; run < 24 && !HasFatalFailure(); run++) {
    auto engine = Make(random);
    const size_t before = violations_.size();
    const int32_t l = random.Pick32(0, 1), is_v = random.Pick32(0, 1);
    const LayerOptions &layer = engine->o.layers[size_t(l)];
    const cgr_kv_view view = engine->caches.View(l, is_v != 0 ? kV : kK);
    const int32_t token = random.Pick32(0, engine->o.page_size - 1), head = random.Pick32(0, layer.num_kv_heads - 1);
    const int64_t element = token * view.stride_token + head * view.stride_head + random.Pick(0, layer.head_dim - 1);
    const std::vector<unsigned char> bad = Bad(view.dtype, random);
    unsigned char *at = static_cast<unsigned char *>(view.base) + size_t(element) * bad.size();
    const std::vector<unsigned char> good = engine->Read<unsigned char>(at, bad.size());
    engine->Write(at, bad.data(), bad.size());
    CGR_ASSERT_OK(engine->Capture());
    const std::string place = "page 0 of group 0";
    const Words words = { place, "layers[" + std::to_string(l) + "]." + (is_v != 0 ? "v" : "k"),
                          "token " + std::to_string(token) + ", head " + std::to_string(head), "in step 1" };
    const int32_t row = engine->Start(5);
    ASSERT_EQ(violations_.size(), before + 1);
    for (const std::string &word : words)
      EXPECT_NE(violations_.Last().find(word), std::string::npos) << violations_.Last() << ": lacks " << word;
    ExpectMessage(engine->Prepare(engine->Decode({ row })), CGR_ERROR_STATE, words);
    EXPECT_EQ(violations_.size(), before + 1) << "it has been told";

    engine->Step(engine->Decode({ row }));
    EXPECT_EQ(violations_.size(), before + 2) << "it is still there";
    ExpectMessage(engine->Prepare(engine->Decode({ row })), CGR_ERROR_STATE, { place, "in step 2" });
    engine->Write(at, good.data(), good.size());
    for (int n = 0; n < 20; n++)
      engine->Step(engine->Decode({ row }));
    EXPECT_EQ(violations_.size(), before + 2);
    engine->Write(at, bad.data(), bad.size());
    for (int n = 0; n < 17 && violations_.size() == before + 2; n++)
      engine->Step(engine->Decode({ row }));
    EXPECT_EQ(violations_.size(), before + 3) << "it is looked at again and again";
    engine->Write(at, good.data(), good.size());
  }
}

// What the engine enqueues on the step's stream comes first, and nothing waits for it.
TEST_P(ReadTrash, IsReadInStreamOrder) {
  if (!GetParam().HasThreads())
    GTEST_SKIP() << "this device runs steps only at a wait";
  Random random(3);
  auto engine = Make(random);
  const cgr_kv_view view = engine->caches.View(0, kK);
  const size_t size = cgr_dtype_size(cgr_dtype(view.dtype));
  const std::vector<unsigned char> ones(size, 0xff);
  engine->Write(view.base, ones.data(), size);
  {
    Gate gate(engine->dev, engine->stream);
    CGR_EXPECT_OK(cgr_fill(engine->dev, view.base, 0, size, engine->stream));
    const int32_t row = engine->Open();
    engine->Reserve(row, 5);
    CGR_EXPECT_OK(engine->Warmup());
    CGR_ASSERT_OK(engine->Prepare({ Engine::Chunk(row, 5) }));
    CGR_ASSERT_OK(engine->Launch());
  }
  engine->CheckAll();
  EXPECT_EQ(violations_.All(), std::vector<std::string>());
}

CGR_INSTANTIATE_OVER_FEW_DEVICES(ReadTrash);

} // namespace
} // namespace cgr_test
