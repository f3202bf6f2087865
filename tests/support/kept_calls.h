// A runtime of one layer whose backend keeps the calls that it gets: whether a call reaches it as the engine has made it. Whoever
// includes this links what quantised_case.h needs.
#pragma once

#include <cstring>

#include "tests/support/quantised_case.h"

namespace cgr_test {

class KeptCalls : public QuantisedCase {
protected:
  static constexpr int kPages = 16;

  void OpenKeeping() {
    ASSERT_NO_FATAL_FAILURE(Open());
    backend_.name = "keeping", backend_.record = Keep, backend_.context = &calls_;
    group_.num_pages = kPages;
  }
  static cgr_status Keep(void *context, cgr_recorder *, const cgr_attention *attention) {
    static_cast<std::vector<cgr_attention> *>(context)->push_back(*attention);
    return CGR_OK;
  }
  static cgr_status Record(cgr_recorder *recorder, void *engine) {
    return cgr_record_attention(recorder, &static_cast<const KeptCalls *>(engine)->call_);
  }
  cgr_status Capture() {
    const cgr_capture capture = CaptureOf(Record, this);
    return cgr_runtime_capture(rt_, &capture);
  }
  // Byte for byte, in graphs, between pieces and eagerly. `call_` and `layer_` are good.
  void ExpectUnchangedInEveryKindOfStep() {
    for (int32_t mode : { CGR_MODE_FULL, CGR_MODE_PIECEWISE, CGR_MODE_NONE }) {
      SCOPED_TRACE(mode);
      calls_.clear();
      CGR_ASSERT_OK(Create(mode));
      CGR_ASSERT_OK(Capture());
      const size_t captured = calls_.size();
      EXPECT_EQ(captured > 0, mode == CGR_MODE_FULL);
      for (int n = 0; n < 3; n++)
        ASSERT_NO_FATAL_FAILURE(Step(1));
      EXPECT_EQ(calls_.size() - captured, mode == CGR_MODE_FULL ? 0u : 3u);
      for (const cgr_attention &got : calls_)
        EXPECT_EQ(std::memcmp(&got, &call_, sizeof got), 0);
      ASSERT_NO_FATAL_FAILURE(Stop());
    }
  }
  // A capture fails with the status and words of cgr_record_attention.
  void ExpectRefused(cgr_status status, const std::string &says, const std::string &expected) {
    ExpectMessage(Capture(), CGR_ERROR_CALLBACK,
                  { std::string(cgr_status_name(status)) + ": cgr_record_attention: " + says, expected });
  }
  // The same, after which the call is as before.
  void ExpectRefused(cgr_status status, const std::string &says, const std::string &expected, const cgr_attention &before) {
    ExpectRefused(status, says, expected);
    call_ = before;
  }
  // Graphs of the call keep this memory from being freed.
  void ExpectGraphsHold(const std::vector<const void *> &memory) {
    CGR_ASSERT_OK(Create(CGR_MODE_FULL));
    CGR_ASSERT_OK(Capture());
    for (const void *each : memory)
      ExpectMessage(cgr_memory_free(dev_, const_cast<void *>(each)), CGR_ERROR_STATE,
                    { "of a live runtime that can be replayed" });
  }
  // A cache of the layer's group, for each view.
  void MakeCache(cgr_dtype dtype, int32_t k_dim, int32_t v_dim, int32_t heads = kHeads) {
    for (cgr_kv_view *view : { &layer_.k, &layer_.v }) {
      const int32_t dim = view == &layer_.k ? k_dim : v_dim;
      void *memory = Alloc(size_t(kPages) * kPage * size_t(heads) * size_t(dim) * cgr_dtype_bits(dtype) / 8);
      CGR_ASSERT_OK(cgr_kv_view_make(CGR_LAYOUT_NHD, memory, dtype, kPage, heads, dim, view));
    }
  }
  void MakeView(cgr_view *view, cgr_dtype dtype, int32_t heads, int32_t dim) {
    CGR_ASSERT_OK(
        cgr_view_make(Alloc(size_t(kTokens) * size_t(heads) * size_t(dim) * cgr_dtype_bits(dtype) / 8), dtype, heads, dim, view));
  }

  std::vector<cgr_attention> calls_;
};

} // namespace cgr_test
