// Shapes with random weights: their sizes, the numbers, and the program that runs them.
#include <cmath>
#include <string>

#include "cgr/cgr.h"
#include "examples/llama/error.h"
#include "examples/llama/random.h"
#include "examples/llama/room.h"
#include "examples/llama/shapes.h"
#include "tests/examples/model_folder.h"

namespace {

TEST(LlamaRandomWeights, ShapesHaveTheParametersOfTheirModels) {
  const std::vector<std::pair<const char *, int64_t>> shapes = { { "1b", 1235814400 }, { "8b", 8030261248 }, { "tiny", 164160 } };
  for (const auto &[name, parameters] : shapes) {
    llama_model *model = nullptr;
    ASSERT_EQ(llama_shape_open(name, &model), 0) << llama_message();
    EXPECT_EQ(llama_parameters(model), parameters) << name;
    llama_model_close(model);
  }
}

// A head that differs from the embedding, biases and the norms of heads count, too.
TEST(LlamaRandomWeights, CountsEveryTensor) {
  Folder folder;
  std::vector<Tensor> tensors = TinyTensors();
  folder.Write("config.json", TinyConfig());
  for (bool tied : { true, false }) {
    if (!tied)
      tensors.push_back(MakeTensor("lm_head.weight", "F32", { 32, 16 }));
    folder.Write("model.safetensors", SafeTensors(tensors));
    llama_model *model = nullptr;
    ASSERT_EQ(llama_model_open(folder.path(), &model), 0) << llama_message();
    int64_t count = 0;
    for (const Tensor &tensor : tensors)
      count += tensor.shape[0] * (tensor.shape.size() > 1 ? tensor.shape[1] : 1);
    EXPECT_EQ(llama_parameters(model), count);
    model->config.qkv_bias = model->config.o_bias = model->config.qk_norm = true;
    EXPECT_EQ(llama_parameters(model), count + 32 + 16 + 16);
    llama_model_close(model);
  }
}

TEST(LlamaRandomWeights, NumbersAreAlmostNormal) {
  const int n = 1000000;
  double sum = 0.0, squares = 0.0, products = 0.0, before = 0.0;
  int beyond = 0;
  for (int i = 0; i < n; i++) {
    const double x = static_cast<double>(llama_random_normal(7, static_cast<uint64_t>(i)));
    sum += x;
    squares += x * x;
    products += x * before;
    beyond += std::fabs(x) > 2.0;
    before = x;
  }
  EXPECT_NEAR(sum / n, 0.0, 0.005);
  EXPECT_NEAR(squares / n, 1.0, 0.005);
  EXPECT_NEAR(products / n, 0.0, 0.005);
  EXPECT_NEAR(static_cast<double>(beyond) / n, 0.045, 0.005); // of a normal distribution 0.0455
}

// Logits of a run with random weights of this seed.
std::string Logits(const std::string &seed, const std::string &dtype) {
  Folder folder;
  const cgr_test::Outcome outcome = RunOnHost("--random-weights tiny --prompt-ids 1,2,3 --tokens 4 --quiet --seed " + seed +
                                              " --dtype " + dtype + " --logits " + folder.File("logits"));
  EXPECT_EQ(outcome.status, 0) << outcome.text;
  return folder.Read("logits");
}

TEST(LlamaRandomWeights, ASeedGivesTheSameBits) {
  for (const char *dtype : { "fp32", "bf16" }) {
    const std::string one = Logits("1", dtype);
    EXPECT_GT(one.size(), 4u * 512 * sizeof(float));
    EXPECT_EQ(Logits("1", dtype), one);
    EXPECT_NE(Logits("2", dtype), one);
  }
}

TEST(LlamaRandomWeights, SaysWhatItNeeds) {
  EXPECT_EQ(RunOnHost("--random-weights tiny").text,
            "llama: no prompt is given, expected --prompt-ids: this model's tokens are not bytes\n");
  EXPECT_EQ(RunOnHost("--random-weights 2b").text, "llama: --random-weights is 2b, expected 1b, 8b or tiny\n");
  EXPECT_EQ(RunOnHost("--random-weights=").text, "llama: --random-weights is empty, expected 1b, 8b or tiny\n");
  EXPECT_EQ(RunOnHost("--random-weights tiny --model a").text,
            "llama: --model and --random-weights are both given, expected one of them\n");
}

TEST(LlamaRandomWeights, KnowsTheRoomOfADevice) {
  cgr_device_info info = CGR_DEVICE_INFO_INIT;
  info.memory_total = 64000;
  info.memory_free = 10000;
  info.kind = CGR_DEVICE_KIND_CUDA;
  EXPECT_EQ(llama_room(&info), 8000u);
  info.memory_free = 1000;
  EXPECT_EQ(llama_room(&info), 0u);
  info.kind = CGR_DEVICE_KIND_HOST;
  EXPECT_EQ(llama_room(&info), 62000u);
  EXPECT_EQ(llama_room_check("the weights in bf16 take", 1000, 1000), 0);
  EXPECT_EQ(llama_room_check("the weights in bf16 take", 16100000000, 3000000000), -1);
  EXPECT_STREQ(llama_message(), "the weights in bf16 take 16.1 GB, expected at most the 3.0 GB that the device has room for");
}

} // namespace
