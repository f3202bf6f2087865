// docs/support.md must say what the library does: the limits are those of base/limits.h, and each line about attention is made
// here by asking the registry of kernel kinds. After a change, this writes both tables anew:
//   CGR_UPDATE_SUPPORT=1 ./bazelw run //tests/kernels:support_table_test
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <vector>

#include "base/limits.h"
#include "cgr/names.h"
#include "tests/support/attention_kinds.h"
#include "tests/support/layer_case.h"

namespace cgr_test {
namespace {

// A generated part of the page is between two comments.
struct Part {
  const char *name;
  std::string text;
  std::string begin() const { return std::string("<!-- ") + name + ": tests/kernels/support_table_test.cc -->\n"; }
  std::string end() const { return std::string("<!-- end of ") + name + " -->\n"; }
};

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

// Of a cache with these dtypes, one factor for each head. Kinds that change V's dtype come last.
void AskFactors(cgr_layer *l, cgr_dtype k, cgr_dtype v) {
  alignas(16) static float factors[4];
  l->k.dtype = k, l->v.dtype = v;
  l->k.scale = factors;
  l->v.scale = cgr_dtype_size(v) == 1 ? factors : nullptr;
  l->k.scale_stride_head = l->v.scale_stride_head = 4;
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
    { "q, k and v of another dtype than a cache of 16 or 32 bits", "q, k and v of another dtype",
      [](cgr_layer *l) { l->dtype = l->out_dtype = CGR_DTYPE_FP16; } },
    { "q of another dtype than k and v (quantised)", "q of another dtype",
      [](cgr_layer *l) { l->q_dtype = CGR_DTYPE_FP8_E4M3; } },
    { "out of another 16- or 32-bit dtype than q", "out of another dtype", [](cgr_layer *l) { l->out_dtype = CGR_DTYPE_FP16; } },
    { "out of fp8_e4m3, divided by a scale", "out of fp8_e4m3", [](cgr_layer *l) { l->out_dtype = CGR_DTYPE_FP8_E4M3; } },
    { "caches of fp8_e4m3, fp8_e5m2 or i8, head dims multiples of 16", "a cache of fp8",
      [](cgr_layer *l) { l->k.dtype = l->v.dtype = CGR_DTYPE_FP8_E4M3; } },
    { "factors of these caches: one for all, or one for each KV head (i8 requires them)", "a cache of i8 with factors",
      [](cgr_layer *l) { AskFactors(l, CGR_DTYPE_I8, CGR_DTYPE_I8); } },
    { "the factors of K in i8: one for each token and KV head, written by the append", "a cache of i8 with factors of tokens",
      [](cgr_layer *l) {
        AskFactors(l, CGR_DTYPE_I8, CGR_DTYPE_I8);
        l->k.scale_stride_page = 64, l->k.scale_stride_token = 1, l->v.scale_stride_d = 0;
      } },
    { "the factors of V: one for each channel of a KV head", "a cache of 8 bits with factors of channels",
      [](cgr_layer *l) {
        AskFactors(l, CGR_DTYPE_FP8_E4M3, CGR_DTYPE_FP8_E4M3);
        l->v.scale_stride_d = 1, l->k.scale_stride_page = l->k.scale_stride_token = 0;
      } },
    { "K and V of different 8-bit dtypes", "K and V of different 8 bits",
      [](cgr_layer *l) { AskFactors(l, CGR_DTYPE_I8, CGR_DTYPE_FP8_E5M2); } },
    { "K of 8 bits, V of the call's dtype", "K alone of 8 bits",
      [](cgr_layer *l) { AskFactors(l, CGR_DTYPE_I8, static_cast<cgr_dtype>(l->dtype)); } },
    { "K of 16 bits and V of 8", "V alone of 8 bits", [](cgr_layer *l) { l->v.dtype = CGR_DTYPE_FP8_E4M3; } },
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
        text += std::string("- ") + kinds[a].name + " and " + kinds[b].name + "\n";
    }
  return text.empty() ? "- none\n" : text;
}

// ------------------------------------------------------------------------------------------------------------------- tables

std::string KindsOfAttention() {
  const cgr_device_info cuda = CudaInfo(80, 0, 108, 163 * 1024), host = HostInfo();
  std::string text = "| | CUDA, compute capability 8.0 and later | host |\n|---|---|---|\n";
  auto row = [&](const std::string &name, const std::string &on_cuda, const std::string &on_host) {
    text += "| " + name + " | " + on_cuda + " | " + on_host + " |\n";
  };
  row("dtypes of q, K, V, out", Dtypes(cuda), Dtypes(host));
  row("head dims of q and k", HeadDims(cuda, false), HeadDims(host, false));
  row("other head dims of v", HeadDims(cuda, true), HeadDims(host, true));
  for (const Kind &kind : Kinds()) {
    auto answer = [&](const cgr_device_info &device) { return Serves(device, kind.ask) != nullptr ? "yes" : "no"; };
    row(kind.row, answer(cuda), answer(host));
  }
  const bool alike = Pairs(cuda) == Pairs(host);
  text += std::string("\nNot combined, on ") + (alike ? "either device" : "CUDA") + ":\n\n" + Pairs(cuda);
  return alike ? text : text + "\nNot combined, on the host:\n\n" + Pairs(host);
}

std::string Limits() {
  std::string text = "| what | at most |\n|---|---:|\n";
  const std::pair<const char *, int64_t> limits[] = {
    { "requests in a step (`max_requests`)", CGR__MAX_REQUESTS },
    { "tokens in a step (`max_tokens`)", CGR__MAX_TOKENS },
    { "tokens of a sequence (`max_seq_len`)", CGR__MAX_SEQ_LEN },
    { "open requests (`max_rows`)", CGR__MAX_ROWS },
    { "layers with attention", CGR__MAX_LAYERS },
    { "groups of layers with their own page table", CGR__MAX_GROUPS },
    { "length sets (the sequences, and the tokens of encoders)", CGR__MAX_SETS },
    { "tokens in a page", CGR__MAX_PAGE_SIZE },
    { "captured sizes of decode steps; of mixed steps", CGR__MAX_BUCKETS },
    { "variants of steps (with and without adapters, say)", CGR__MAX_VARIANTS },
    { "attention backends of the engine", CGR__MAX_BACKENDS },
    { "steps in flight (`ring_depth`)", CGR__MAX_RING_DEPTH },
  };
  for (const auto &[name, value] : limits)
    text += std::string("| ") + name + " | " +
            (value < 65536 ? std::to_string(value) : "2^" + std::to_string(std::ilogb(value))) + " |\n";
  return text;
}

// --------------------------------------------------------------------------------------------------------------------- page

// `bazel run` names the source tree; a test has it as its folder.
std::string PagePath() {
  const char *root = std::getenv("BUILD_WORKSPACE_DIRECTORY");
  return (root != nullptr ? root + std::string("/") : "") + "docs/support.md";
}

// The page with these parts in place; "" if it lacks the comments around one.
std::string WithParts(std::string page, const std::vector<Part> &parts) {
  for (const Part &part : parts) {
    const size_t begin = page.find(part.begin()), end = page.find(part.end());
    if (begin == std::string::npos || end == std::string::npos || end < begin)
      return "";
    page.replace(begin, end - begin, part.begin() + part.text);
  }
  return page;
}

TEST(SupportTable, OfThePageIsWhatTheLibraryDoes) {
  std::ifstream file(PagePath());
  ASSERT_TRUE(file.good()) << "no " << PagePath();
  const std::string page{ std::istreambuf_iterator<char>(file), {} };
  const std::string expected = WithParts(page, { { "limits", Limits() }, { "kinds of attention", KindsOfAttention() } });
  ASSERT_NE(expected, "") << "the page lacks a comment before or after a table";
  if (std::getenv("CGR_UPDATE_SUPPORT") != nullptr)
    std::ofstream(PagePath()) << expected;
  else
    EXPECT_EQ(page, expected) << "CGR_UPDATE_SUPPORT=1 ./bazelw run //tests/kernels:support_table_test writes it anew";
}

TEST(SupportTable, ReplacesOnlyWhatIsBetweenItsComments) {
  const Part part = { "x", "new\n" };
  EXPECT_EQ(WithParts("a\n" + part.begin() + "old\n" + part.end() + "b\n", { part }),
            "a\n" + part.begin() + "new\n" + part.end() + "b\n");
  EXPECT_EQ(WithParts("a\n" + part.begin() + "old\n", { part }), "");
  EXPECT_EQ(WithParts(part.end() + part.begin(), { part }), "");
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
