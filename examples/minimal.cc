// minimal.c in C++11: owners close what was opened, and a failed call throws an exception, which never leaves a callback.
//     minimal_cc --help tells its arguments
#include <cgr/cgr.h>

#include <iostream>
#include <string>
#include <vector>

#include "minimal_owners.h"

namespace {

constexpr int kLayers = 2, kDim = MINIMAL_HEAD_DIM, kPageSize = 16, kPages = 6, kMaxTokens = MINIMAL_TOKENS, kMaxSeqLen = 64;
constexpr size_t kKvBytes = kPages * 2 * kPageSize * kDim * 2; // of a layer: K and V of each page, one head of bf16

class Engine {
public:
  explicit Engine(const char *device)
      : device_(OpenDevice(device)), stream_(MakeStream(device_.get())),
        cache_(MakeZeros(device_.get(), kLayers * kKvBytes, stream_.get())) { // page 0 has to hold finite values
    cgr_group group = CGR_GROUP_INIT;
    group.page_size = kPageSize, group.num_pages = kPages; // 0 and 1 are reserved
    std::vector<cgr_layer> layers(kLayers, cgr_layer CGR_LAYER_INIT);
    for (int i = 0; i < kLayers; i++) {
      cgr_layer &l = layers[i];
      l.num_q_heads = l.num_kv_heads = 1, l.head_dim = kDim, l.scale = MINIMAL_SCALE;
      char *base = cache_.get() + i * kKvBytes;
      Check(cgr_kv_view_make_pair(CGR_LAYOUT_NHD, base, CGR_DTYPE_BF16, kPageSize, 1, kDim, &l.k, &l.v));
    }
    cgr_config config = CGR_CONFIG_INIT;
    config.device_handle = device_.get();
    config.groups = &group, config.num_groups = 1, config.layers = layers.data(), config.num_layers = kLayers;
    config.max_requests = 4, config.max_tokens = kMaxTokens, config.max_seq_len = kMaxSeqLen;
    runtime_ = MakeRuntime(config);
    Check(minimal_create(runtime_.get(), &model_));
    cgr_capture capture = CGR_CAPTURE_INIT;
    capture.record = Record, capture.engine = this;      // which must not move from now on
    Check(cgr_runtime_warmup(runtime_.get(), &capture)); // loads the engine's kernels, which a capture may not do
    Check(cgr_runtime_capture(runtime_.get(), &capture));
  }
  Engine(const Engine &) = delete;
  Engine &operator=(const Engine &) = delete;

  void Generate(const char *text) {
    cgr_runtime *rt = runtime_.get();
    std::vector<int32_t> prompt(kMaxTokens);
    const int32_t length = minimal_tokens(text, prompt.data());
    int32_t row = -1, pages = 0, steps = 0, replays = 0;
    minimal_print(prompt.data(), length);
    cgr_batch batch = CGR_BATCH_INIT; // the prompt first
    batch.num_requests = 1, batch.rows = &row, batch.query_lens = &length, batch.tokens = prompt.data();
    cgr_step step = CGR_STEP_INIT;
    Check(cgr_request_open(rt, 1, &row));
    for (int32_t tokens = length; tokens <= kMaxSeqLen; tokens++) {
      const cgr_mark before = step.mark;
      for (; pages * kPageSize < tokens; pages++) { // room for the step's tokens; all pages are this request's, from 2 on
        const int32_t page = 2 + pages;
        Check(cgr_request_set_pages(rt, row, 0, pages, &page, 1));
      }
      Check(cgr_step_prepare(rt, &batch, &step));
      Check(cgr_step_launch(rt, &step, stream_.get()));
      if (before.seq) // wait for it only while the next step runs, which needs nothing of it from the host
        Show(before);
      steps++, replays += step.key.kind != CGR_KIND_NONE;
      batch.query_lens = batch.tokens = nullptr; // after the prompt: one token, which is on the device
    }
    Show(step.mark);
    std::cout << "\n" << steps << " steps, " << replays << " of them graph replays\n";
    Check(cgr_request_close(rt, row));
  }

private:
  static cgr_status Record(cgr_recorder *recorder, void *engine) noexcept try {
    const minimal_model &m = static_cast<const Engine *>(engine)->model_;
    cgr_record_info info = CGR_RECORD_INFO_INIT;
    Check(cgr_record_get_info(recorder, &info));
    Check(minimal_embed(&m, info.num_tokens, info.stream));
    for (int32_t layer = 0; layer < kLayers; layer++) {
      cgr_attention attention = CGR_ATTENTION_INIT;
      attention.layer = layer;
      Check(cgr_view_make(m.q, CGR_DTYPE_BF16, 1, kDim, &attention.q)); // dense: [tokens][1 head][kDim]
      Check(cgr_view_make(m.k, CGR_DTYPE_BF16, 1, kDim, &attention.k));
      Check(cgr_view_make(m.v, CGR_DTYPE_BF16, 1, kDim, &attention.v));
      Check(cgr_view_make(m.out, CGR_DTYPE_BF16, 1, kDim, &attention.out));
      Check(minimal_project(&m, layer, info.num_tokens, info.stream));
      Check(cgr_record_attention(recorder, &attention));
      Check(minimal_add(&m, layer, info.num_tokens, info.stream));
    }
    Check(minimal_sample(&m, info.num_requests, info.stream));
    return CGR_OK;
  } catch (const std::exception &) {
    return CGR_ERROR_CALLBACK; // cgr_last_message says which call it was
  }

  void Show(cgr_mark mark) const {
    cgr_step_result result = CGR_STEP_RESULT_INIT;
    Check(cgr_step_wait(runtime_.get(), mark, -1, &result));
    minimal_print(result.tokens, 1);
  }

  // Destroyed from the last to the first: the runtime, whose graphs hold addresses of the others, goes before them.
  Device device_;
  Stream stream_;
  Memory cache_;
  Model model_;
  Runtime runtime_;
};

} // namespace

int main(int argc, char **argv) try {
  if (minimal_help("minimal_cc", argc, argv))
    return 0;
  Engine(argc > 1 ? argv[1] : nullptr).Generate(argc > 2 ? argv[2] : "graphs g");
  return 0;
} catch (const std::exception &error) {
  std::cerr << "minimal_cc: " << error.what() << "\n";
  return 1;
}
