// The README's table of the kinds of attention must say what the registry of kernel kinds says: each of its lines is made here by
// asking the registry. After a change, the failure prints what the README should have.
#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <vector>

#include "cgr/names.h"
#include "tests/support/attention_kinds.h"
#include "tests/support/layer_case.h"

namespace cgr_test {
namespace {

constexpr char kBegin[] = "<!-- kinds of attention: tests/kernels/support_table_test.cc -->\n";
constexpr char kEnd[] = "<!-- end of kinds -->\n";

using Ask = std::function<void(cgr_layer *)>;

const cgr__kernel_kind *Serves(const cgr_device_info &device, const Ask &ask) {
  cgr_layer layer = PlainLayer();
  ask(&layer);
  cgr__findings findings;
  cgr__findings_init(&findings, nullptr, 0);
  return cgr__kernel_kind_choose(&device, &layer, 8192, &findings);
}

const float kFloat = 1.0f;

// ------------------------------------------------------------------------------------------------------------------ columns

std::string Dtypes(const cgr_device_info &device) {
  std::string text;
  for (int32_t dtype : { CGR_DTYPE_BF16, CGR_DTYPE_FP16, CGR_DTYPE_FP32 })
    if (Serves(device, [=](cgr_layer *l) { SetDtype(l, dtype); }) != nullptr)
      text += (text.empty() ? "" : ", ") + std::string(cgr_dtype_name(cgr_dtype(dtype)));
  return text;
}

// "8 to 256, multiples of 8", if exactly these are served.
std::string HeadDims(const cgr_device_info &device, bool of_v) {
  std::vector<int32_t> dims;
  for (int32_t dim = 1; dim <= 1024; dim++) {
    const Ask ask = [=](cgr_layer *l) {
      l->head_dim = of_v ? l->head_dim : dim;
      l->head_dim_v = dim;
    };
    if (Serves(device, ask) != nullptr)
      dims.push_back(dim);
  }
  if (dims.size() < 3)
    return of_v ? "as in q and k" : "none";
  const int32_t step = dims[1] - dims[0];
  for (size_t i = 1; i < dims.size(); i++)
    EXPECT_EQ(dims[i] - dims[i - 1], step);
  return std::to_string(dims.front()) + " to " + std::to_string(dims.back()) + ", multiples of " + std::to_string(step);
}

// A kind, and what a layer of that kind asks for.
struct Kind {
  const char *row, *name; // in the table, and in the list of pairs
  Ask ask;
};
std::vector<Kind> Kinds() {
  return {
    { "sliding windows to the left", "a window", [](cgr_layer *l) { l->window_left = 128; } },
    { "windows to both sides", "a window to both sides",
      [](cgr_layer *l) { l->window_left = 128, l->window_right = 127, l->flags |= CGR_LAYER_BIDIRECTIONAL; } },
    { "both directions (encoders)", "both directions", [](cgr_layer *l) { l->flags |= CGR_LAYER_BIDIRECTIONAL; } },
    { "chunked local attention", "chunks", [](cgr_layer *l) { l->chunk = 8192; } },
    { "soft cap", "a soft cap", [](cgr_layer *l) { l->softcap = 30.0f; } },
    { "ALiBi", "ALiBi", [](cgr_layer *l) { l->alibi_slopes = &kFloat; } },
    { "ALiBi of the square root of the distance", "ALiBi of the square root",
      [](cgr_layer *l) { l->alibi_slopes = &kFloat, l->flags |= CGR_LAYER_ALIBI_SQRT; } },
    { "sinks", "sinks", [](cgr_layer *l) { l->sinks = &kFloat; } },
    { "keys of the step, without a cache", "no cache", [](cgr_layer *l) { l->flags |= CGR_LAYER_NO_CACHE; } },
    { "keys of another length set (cross attention)", "cross attention",
      [](cgr_layer *l) { l->length_set = 1, l->flags |= CGR_LAYER_BIDIRECTIONAL; } },
    { "q of another dtype than the cache", "q of another dtype", [](cgr_layer *l) { l->dtype = l->out_dtype = CGR_DTYPE_FP16; } },
    { "out of another dtype than q", "out of another dtype", [](cgr_layer *l) { l->out_dtype = CGR_DTYPE_FP16; } },
    { "caches with scales (quantised)", "a cache with scales", [](cgr_layer *l) { l->k.scale = const_cast<float *>(&kFloat); } },
  };
}

// The pairs of kinds that a device serves separately but not together.
std::string Pairs(const cgr_device_info &device) {
  std::string text;
  const std::vector<Kind> kinds = Kinds();
  for (size_t a = 0; a < kinds.size(); a++)
    for (size_t b = a + 1; b < kinds.size(); b++) {
      const Ask both = [&](cgr_layer *l) { kinds[a].ask(l), kinds[b].ask(l); };
      if (Serves(device, kinds[a].ask) != nullptr && Serves(device, kinds[b].ask) != nullptr && Serves(device, both) == nullptr)
        text += std::string(text.empty() ? "" : "; ") + kinds[a].name + " and " + kinds[b].name;
    }
  return text.empty() ? "none" : text;
}

// -------------------------------------------------------------------------------------------------------------------- table

std::string Table() {
  const cgr_device_info cuda = CudaInfo(80, 0, 108, 163 * 1024), host = HostInfo();
  std::string text = kBegin;
  auto row = [&](const std::string &name, const std::string &on_cuda, const std::string &on_host) {
    text += "| " + name + " | " + on_cuda + " | " + on_host + " |\n";
  };
  row("attention with the library's own kernels", "CUDA, compute capability 8.0 and later", "host");
  text += "|---|---|---|\n";
  row("dtypes of q, K, V, out", Dtypes(cuda), Dtypes(host));
  row("head dims", HeadDims(cuda, false), HeadDims(host, false));
  row("head dims of v apart from q and k", HeadDims(cuda, true), HeadDims(host, true));
  for (const Kind &kind : Kinds()) {
    auto answer = [&](const cgr_device_info &device) { return Serves(device, kind.ask) != nullptr ? "yes" : "refused by name"; };
    row(kind.row, answer(cuda), answer(host));
  }
  row("refused together, by name", Pairs(cuda), Pairs(host));
  return text + kEnd;
}

std::string ReadMe() {
  std::ifstream file("README.md");
  EXPECT_TRUE(file.good()) << "no README.md next to the test";
  return { std::istreambuf_iterator<char>(file), {} };
}

TEST(SupportTable, OfTheReadMeIsWhatTheRegistrySays) {
  const std::string text = ReadMe(), expected = Table();
  const size_t begin = text.find(kBegin), end = text.find(kEnd);
  ASSERT_NE(begin, std::string::npos) << "the README lacks\n" << expected;
  ASSERT_NE(end, std::string::npos) << "the README lacks\n" << expected;
  EXPECT_EQ(text.substr(begin, end + sizeof kEnd - 1 - begin), expected) << "the README should have\n" << expected;
}

// The code that makes the lines distinguishes what is served from what is not.
TEST(SupportTable, AsksTheRegistry) {
  cgr_device_info small = CudaInfo(80, 0, 1, 60 * 1024); // so little shared memory that wide heads do not fit
  EXPECT_EQ(HeadDims(small, false), "8 to 64, multiples of 8");
  EXPECT_EQ(Dtypes(CudaInfo(75)), "");
  EXPECT_EQ(Serves(CudaInfo(75), [](cgr_layer *) {}), nullptr);
}

} // namespace
} // namespace cgr_test
