// The model of an engine that guesses, for CUDA and for the host: the next token is a hash of all tokens before it, as the row's
// pages have them. So its arithmetic does not depend on the batch, and a wrong page, length, position or token shows in every
// later token.
#pragma once

#include "cgr/device.h"

namespace cgr_test {
namespace guesses {

enum { kPage = 16, kVocab = 40 };

struct ModelArgs {
  const int32_t *input_ids, *positions, *starts, *rows, *seq_lens, *table, *num_drafts;
  const int64_t *slots;
  int32_t *next, *num_accepted, *draft_tokens, *cache;
  const int32_t *rubbish; // 0, or what the sampler does wrong
  int64_t table_stride;
  int32_t num_requests, num_tokens, stride, reserved;
};

// For `record`. `on_cuda`: with a kernel; else with a host function.
cgr_status EnqueueModel(cgr_device *device, bool on_cuda, const ModelArgs &args, cudaStream_t stream);

} // namespace guesses
} // namespace cgr_test

// The launcher of guess_kernels.cu: a cudaError_t.
extern "C" int test_guess_model(const cgr_test::guesses::ModelArgs *args, cudaStream_t stream);
