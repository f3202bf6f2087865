// An engine of many small kernels, whose every intermediate value has memory of its own: a token's value is a number that each
// kernel mixes, so that anything that is missing, late or old changes the tokens that come out. Kernels touch real tokens alone.
// For the host device.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tests/support/engine.h"

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

// What the configuration of a HashEngine names.
struct HashParts {
  std::vector<std::string> logs; // warnings
  cgr_buffer_decl decls[3] = { CGR_BUFFER_DECL_INIT, CGR_BUFFER_DECL_INIT, CGR_BUFFER_DECL_INIT };
};

class HashEngine : public HashParts, public Engine {
public:
  enum { kMaxTokens = 16, kMaxSeqLen = 48, kPageSize = 16, kTestPages = 24, kVocabulary = 100000, kDim = 8 };
  // What a hook may leave out: it is asked before each operation, by name and layer.
  using Hook = std::function<bool(const std::string &name, int layer, const cgr_record_info &)>;

  HashEngine(const DeviceParam &device, const HashOptions &options);
  ~HashEngine();

  // All keys, or those.
  cgr_status Capture(const std::vector<cgr_key> &keys = {});
  std::vector<cgr_key> Keys();
  // The ranges for staged buffers are given unless `ranges` is false.
  cgr_status SelfTest(uint32_t seed, std::vector<cgr_finding> *findings, bool ranges = true);
  int32_t Open();
  // A request of a step; its data in staged buffers follows from `data`.
  struct Request {
    int32_t row;
    std::vector<int32_t> tokens;
    int32_t data;
  };
  // A step of variant `word`: the sampled tokens; empty after a failure. `key`: to be forced; NULL: the runtime chooses.
  std::vector<int32_t> Step(const std::vector<Request> &asked, const cgr_key *key, uint32_t word);
  int32_t Length(int32_t row);

  Hook skip;                       // true: the operation is not enqueued
  int32_t test_pages = kTestPages; // that a self-test gets, at most that many

private:
  struct Tokens { // [kMaxTokens + 1] each
    uint32_t *hidden, *digest, *up, *chunk, *added, *applied, *copied, *sum, *branch, *joined, *scanned, *called, *varied, *down;
    uint32_t *gathered, *carried; // of requests
    float *q, *k, *v, *out;
  };
  struct Enqueuer;
  static cgr_status Record(cgr_recorder *recorder, void *engine);
  void RecordLayer(Enqueuer *e, int layer, const uint32_t **hidden);
  // Parts of a layer, by option; each returns what comes out.
  const uint32_t *RecordStaged(Enqueuer *e, int layer, const uint32_t *h);
  const uint32_t *RecordCopies(Enqueuer *e, int layer, const uint32_t *h);
  const uint32_t *RecordBranch(Enqueuer *e, int layer, const uint32_t *h);
  const uint32_t *RecordCall(Enqueuer *e, int layer, const uint32_t *h);
  static EngineOptions Complete(const DeviceParam &device, const HashOptions &options, HashParts *parts);
  template <class T> T *Zeros(size_t count);
  int32_t *Buffer(cgr_buffer buffer);

  HashOptions options_;
  cgr_event *join_ = nullptr;
  std::vector<Tokens> layers_;
  uint32_t *embedded_ = nullptr, *state_ = nullptr;
  int32_t *adapters_ = nullptr, *extra_ = nullptr, *of_rows_ = nullptr;
};

} // namespace cgr_test
