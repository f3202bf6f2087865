// An engine of many small kernels, whose every intermediate value has memory of its own: a token's value is a number that each
// kernel mixes, so that anything that is missing, late or old changes the tokens that come out. Kernels touch real tokens alone.
// For the host device.
#ifndef CGR_TESTS_SUPPORT_HASH_ENGINE_H
#define CGR_TESTS_SUPPORT_HASH_ENGINE_H

#include <functional>
#include <string>
#include <vector>

#include "tests/support/devices.h"
#include "tests/support/expect.h"

namespace cgr_test {

struct HashOptions {
  cgr_graph_mode mode = CGR_MODE_FULL;
  bool chunks = false;   // a kernel for requests of several tokens, and one that adds what it gives
  bool groups = false;   // layer 1 has pages of its own
  bool staged = false;   // data of tokens, requests and rows
  bool branch = false;   // a fork and a join
  bool copies = false;   // a copy, and a fill before a sum
  bool state = false;    // of rows, from step to step: reset at position 0
  bool call = false;     // cgr_record_call with a kernel
  bool variants = false; // variant 5 has one kernel more
  int max_requests = 4, max_rows = 6;
  std::function<void(cgr_config *)> adjust; // the last word
};

class HashEngine {
public:
  enum { kMaxTokens = 16, kMaxSeqLen = 48, kPageSize = 16, kTestPages = 24, kVocabulary = 100000, kDim = 8 };
  // What a hook may leave out: it is asked before each operation, by name and layer.
  using Hook = std::function<bool(const std::string &name, int layer, const cgr_record_info &)>;

  HashEngine(const DeviceParam &device, const HashOptions &options);
  ~HashEngine();
  HashEngine(const HashEngine &) = delete;
  HashEngine &operator=(const HashEngine &) = delete;

  // All keys, or those.
  cgr_status Capture(const std::vector<cgr_key> &keys = {});
  std::vector<cgr_key> Keys();
  // The ranges for staged buffers are given unless `ranges` is false.
  cgr_status SelfTest(uint32_t seed, std::vector<cgr_finding> *findings, bool ranges = true);
  int32_t Open();
  void Close(int32_t row);
  // A request of a step; its data in staged buffers follows from `data`.
  struct Request {
    int32_t row;
    std::vector<int32_t> tokens;
    int32_t data;
  };
  // The sampled tokens; empty after a failure. `key`: to be forced; NULL: the runtime chooses.
  std::vector<int32_t> Step(const std::vector<Request> &requests, const cgr_key *key, uint32_t variant);
  int32_t Length(int32_t row);

  cgr_device *dev = nullptr;
  cgr_runtime *rt = nullptr;
  Hook skip;                     // true: the operation is not enqueued
  std::vector<std::string> logs; // warnings

private:
  struct Tokens { // [kMaxTokens + 1] each
    uint32_t *hidden, *digest, *up, *chunk, *added, *applied, *copied, *sum, *branch, *joined, *scanned, *called, *varied, *down;
    uint32_t *gathered, *carried; // of requests
    float *q, *k, *v, *out;
  };
  struct Enqueuer;
  static cgr_status Record(cgr_recorder *recorder, void *engine);
  void RecordLayer(Enqueuer *e, int layer, const uint32_t **hidden);
  template <class T> T *Alloc(size_t count);
  void MakeRuntime();
  int32_t *Buffer(cgr_buffer buffer);

  HashOptions options_;
  cudaStream_t stream_ = nullptr, side_ = nullptr;
  cgr_event *fork_ = nullptr, *join_ = nullptr;
  std::vector<void *> memory_;
  std::vector<Tokens> layers_;
  std::vector<cgr_attention> attention_;
  uint32_t *embedded_ = nullptr, *state_ = nullptr;
  int32_t *adapters_ = nullptr, *extra_ = nullptr, *of_rows_ = nullptr;
  int32_t num_groups_ = 1;
};

} // namespace cgr_test

#endif // CGR_TESTS_SUPPORT_HASH_ENGINE_H
