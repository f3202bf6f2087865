// A small engine for tests, on the public headers alone, and a model of what its steps must give.
//
// The model keeps what every request's cache must hold. CheckOne waits for the oldest unchecked step and compares its result,
// what it wrote and, if it is the last one, its outputs with the fp64 oracle. Failures are not softened: nothing waits for the
// device after a failed launch, and a page goes to another request when cgr_request_info.last says so and not later. The
// destructor checks what must hold whatever the test did: the counters add up, no guard error was unexpected, no byte of the
// caches was written by mistake, nothing is alive on the device.
#pragma once

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "cgr/inspect.h"
#include "cgr/tracing.h"
#include "tests/support/engine_caches.h"
#include "tests/support/engine_options.h"
#include "tests/support/engine_record.h"
#include "tests/support/expect.h"

namespace cgr_test {

struct AttentionProblem;

// One request of a step.
struct Item {
  int32_t row;
  std::vector<int32_t> tokens;
  bool partial = false;
};

// A request's pages of a group.
struct RequestPages {
  std::vector<int32_t> pages; // by index; below first_page -1
  int32_t first_page = 0;
};

// What the model knows about a request. `pages` and `first_page` are those of the first group.
struct Request : RequestPages {
  uint64_t tag = 0;
  std::vector<Entry> cache;     // what is in it, after the steps checked so far
  std::vector<int32_t> sampled; // tokens that steps gave, in order
  int32_t num_tokens = 0;       // after every step launched so far
  bool has_token = false;       // the same
  int32_t last = 0;             // CGR_TOKEN_LAST, after the steps checked so far
  std::array<RequestPages, kMaxGroups - 1> others;
  // Of the length sets after 0: what steps have given, and how much of it counts.
  std::array<std::vector<Entry>, kMaxSets> other_cache;
  std::array<int32_t, kMaxSets> other_length = {};

  RequestPages &Of(size_t group) { return group == 0 ? *this : others[group - 1]; }
  int32_t Length(int32_t set) const { return set == 0 ? num_tokens : other_length[size_t(set)]; }
};

// A launched step.
struct InFlight {
  struct Taken {
    Item item;
    std::shared_ptr<Request> request;
    int32_t start; // position of its first token
    uint64_t tag;
    std::vector<std::vector<int32_t>> pages; // of each group, as they were
    std::vector<Entry> cache;                // what the step finds in the cache, its own tokens included; once it is checked
    std::vector<Entry> asked;                // its own tokens
    std::array<int32_t, kMaxSets> lengths;   // of the length sets after 0
    std::array<std::vector<Entry>, kMaxSets> others = {}; // as `cache`, of them
  };
  cgr_step step;
  int32_t number = 0; // of the upload
  int32_t set = 0;    // the length set of its tokens
  std::vector<Taken> items;
  std::vector<std::vector<unsigned char>> uploads;   // alive until the stream has taken them
  cgr_guard guard = { CGR_GUARD_NONE, -1, 0, 0, 0 }; // must be reported
};

class Engine {
public:
  explicit Engine(const EngineOptions &options);
  ~Engine();
  Engine(const Engine &) = delete;
  Engine &operator=(const Engine &) = delete;

  // ---- memory. Write and Read wait for the stream.
  void *Alloc(size_t bytes, bool pinned = false);
  // Takes over pinned memory of the test; it is freed with the engine's.
  void OwnPinned(void *memory) { memory_.push_back({ memory, 0, true }); }
  // All of the engine's memory on the device, in a region each.
  void RegisterAll();
  void Sync();
  void Write(void *to, const void *from, size_t bytes);
  void ReadBytes(const void *from, void *to, size_t bytes);
  template <class T> std::vector<T> Read(const void *from, size_t count) {
    std::vector<T> content(count);
    ReadBytes(from, content.data(), count * sizeof(T));
    return content;
  }
  // `index`: of a group or a length set.
  cgr_buffer_view View(cgr_buffer buffer, int32_t index = 0);
  std::vector<int64_t> Buffer(cgr_buffer buffer, int32_t index = 0);

  // ---- the caches of each group, and of the first one
  std::vector<Caches> all_caches;
  Caches &caches;
  std::vector<unsigned char> ReadCaches() { return Read<unsigned char>(caches.memory(), caches.bytes()); }
  // Every byte is what the model has written. Everything must have been checked.
  void CheckCaches();
  // Fills whatever no request owns: pages but the read-trash page, and the tails of owned pages.
  void PoisonUnowned(double value);

  // ---- requests
  int32_t Open();
  void Close(int32_t row);
  // Sets pages of each group of a length set until the row has room for `tokens`.
  void Reserve(int32_t row, int32_t tokens, int32_t set = 0);
  // Takes over free pages that the test has set itself, for a row that has none.
  void Adopt(int32_t row, const std::vector<int32_t> &pages);
  void DropPages(int32_t row, int32_t first, int32_t count, size_t group = 0);
  // The first token that any layer of a group sees in a step after `computed` tokens. GiveBack gives back the pages before it, of
  // every row; an engine's own table then names no page.
  int32_t FirstSeen(int32_t computed, size_t group = 0) const;
  void GiveBack();
  // Backwards. All steps must have been checked.
  void SetLength(int32_t row, int32_t tokens);
  // What counts of a length set after 0, with pages for it.
  void SetOther(int32_t row, int32_t set, int32_t tokens);
  // Forwards over the first `tokens` tokens of `from`, whose pages it shares. It needs no pages of its own there.
  void SharePrefix(int32_t row, int32_t from, int32_t tokens);
  // An entry of the engine's own page table, and what the row then has.
  void SetTable(int32_t row, int32_t index, int32_t page, size_t group = 0);
  cgr_request_info Info(int32_t row);
  // What the runtime says about every row must be what the model knows.
  void CheckRows();
  std::vector<int32_t> Rows() const;
  size_t FreePages();
  // Pages of a group that no row has.
  std::vector<int32_t> SparePages(int32_t count, size_t group = 0);

  // ---- steps
  cgr_capture CaptureStruct();
  cgr_status Capture();
  cgr_status Warmup();
  cgr_status Prepare(const std::vector<Item> &items, const cgr_key *forced = nullptr);
  // The same with the standing batch: edits turn it into these items, in this order.
  cgr_status PrepareStanding(const std::vector<Item> &items, const cgr_key *forced = nullptr);
  // The standing batch as it is; it must be these items.
  cgr_status PrepareStandingAsIs(const std::vector<Item> &items, const cgr_key *forced = nullptr);
  void StepStanding(const std::vector<Item> &items, const cgr_key *forced = nullptr);
  std::vector<int32_t> StandingRows();
  // Launches what Prepare prepared.
  cgr_status Launch() { return LaunchOn(stream); }
  cgr_status LaunchOn(cudaStream_t on);
  cgr_status Cancel() { return cgr_step_cancel(rt, &step); }
  cgr_status Flush();
  void CheckOne();
  void CheckAll();
  // Prepares, launches and checks.
  void Step(const std::vector<Item> &items, const cgr_key *forced = nullptr);
  void PrepareAndLaunch(const std::vector<Item> &items, const cgr_key *forced = nullptr);
  // Waits until every step has completed, whatever its result: an abandoned step holds its ring slot until then.
  void WaitForAll();
  size_t NumInFlight() const { return in_flight_.size(); }
  // Forgets the launched steps that were not checked, and with them what the caches hold: for steps that go wrong on purpose.
  void Forget();
  // Waits for a step that a guard refused as a whole; it must have given nothing.
  void ExpectGuarded(uint64_t seq, cgr_guard_error error);

  // Opens a request and runs a prompt of `length` tokens through it.
  int32_t Start(int32_t length, int32_t salt = 0);
  static std::vector<int32_t> Prompt(int32_t length, int32_t salt);
  // For three in four rows, which become at least `num_rows`: few tokens or none, after the last one where it is known.
  std::vector<Item> RandomItems(std::mt19937 &random, size_t num_rows, int32_t salt);
  static Item Chunk(int32_t row, int32_t length, int32_t salt = 5, bool partial = false);
  // One decode token for each of `rows`, with the pages for it.
  std::vector<Item> Decode(const std::vector<int32_t> &rows);
  // The same with a chunk for each: (row, length).
  std::vector<Item> Chunks(const std::vector<std::pair<int32_t, int32_t>> &chunks);

  // Statistics, after a check that they add up.
  cgr_stats Stats();
  cgr_graph_stats GraphStats(int32_t index);

  // Output bits of a call in the last step, for its first `tokens` tokens.
  std::vector<unsigned char> Out(int32_t call, int32_t tokens);
  std::vector<float> Lse(int32_t call, int32_t tokens);
  // Compares the outputs of call `c` with what the caches held according to `p`.
  void CheckCall(const InFlight &p, int32_t c, const Outputs &got);

  // The runtime's configuration, for tests that create one themselves.
  cgr_config Config();

  EngineOptions o;
  cgr_device *dev = nullptr;
  cgr_runtime *rt = nullptr;
  cudaStream_t stream = nullptr;
  std::vector<int32_t *> tables; // the engine's own, [max_rows + 1][TableStride()], or NULL; of each group
  int32_t TableStride(size_t group = 0) const {
    return (o.max_seq_len + o.groups[group].page_size - 1) / o.groups[group].page_size + 3;
  }
  void *rings = nullptr; // memory for them, of pinned_bytes
  RecordState state = {};
  cgr_record_function record = Record; // what a capture gets, with
  void *record_engine = &state;
  std::function<cgr_status(cgr_recorder *, const cgr_record_info &, int32_t)> hook;
  std::function<void(size_t, cgr_attention *)> adjust_call; // before call i is made; a layer of -1 is left out
  std::vector<cgr_record_info> records;
  Recording recording;
  std::function<void()> prelaunch;                                  // just before cgr_step_launch
  std::function<cgr_status(const cgr_batch *, cgr_step *)> prepare; // instead of cgr_step_prepare
  cudaStream_t side = nullptr;                                      // the test's own; destroyed with the engine
  cgr_event *fork = nullptr;
  cgr_step step = CGR_STEP_INIT;
  uint64_t launched = 0;   // last number
  uint32_t plan_flags = 0; // of the batches
  uint32_t variant = 0;    // of the batches; with several length sets the set of their tokens
  bool upload = true;      // new q, k and v for each step
  bool check_outputs = true;
  bool check_answers = true;      // with the former: real tokens too, against fp64
  std::unique_ptr<InFlight> last; // the last step that was checked
  std::vector<bool> check_call;   // calls that CheckOne compares
  std::vector<Outputs> outputs;   // of the last step whose outputs were checked, by call
  bool keep_outputs = false;      // and of every such step:
  std::vector<std::vector<Outputs>> kept;
  uint64_t guard_errors = 0;    // that the test has provoked
  bool leave_in_flight = false; // the destructor waits for nothing
  bool check_at_end = true;     // the destructor checks; not after steps and changes that the engine does not know
  bool dead = false;            // the device is lost: the destructor asks nothing
  uint64_t changes = 0;         // words of rows and pages that were changed; tests set it back
  std::map<int32_t, std::shared_ptr<Request>> requests;

private:
  struct Retired {
    uint64_t seq;
    std::vector<int32_t> pages;
  };
  struct Shared {
    int32_t others = 0;
    uint64_t seq = 0; // until which those that have gone may use it
  };
  struct Pool { // of a group's pages
    std::vector<int32_t> free;
    std::vector<Retired> retired;
    std::map<int32_t, Shared> shared; // pages of several requests
  };

  // engine.cc
  void Make();
  void MakeDevice();
  Pool MakePool(size_t group) const;
  int32_t *MakeTable(size_t group);
  std::vector<cgr_group> ConfigGroups() const;
  cgr_layer ConfigLayer(size_t l) const;
  const float *Floats(const std::vector<float> &values);
  void MakeState();
  void MakeLayer(size_t l);
  void MakeCall(size_t c);
  cgr_view ActivationView(int32_t heads, int32_t dim, int32_t dtype, size_t *bytes);
  void Destroy();

  // engine_requests.cc
  void ReturnPages();
  int32_t TakePage(size_t group);
  void Retire(int32_t row, const std::vector<int32_t> &pages, size_t group);
  std::vector<int32_t> OwnedTokens(size_t group) const;
  void ReserveOf(int32_t row, int32_t tokens, size_t group);
  void GiveBackOf(int32_t row, size_t group);

  // engine_steps.cc
  int32_t SetOfStep() const { return o.num_sets > 1 ? int32_t(variant) : 0; }
  std::vector<InFlight::Taken> Take() const;
  void Upload(InFlight *p, cudaStream_t on);
  cgr_status Failed(std::unique_ptr<InFlight> p, cgr_status status);
  void DoubtTokens(const InFlight::Taken &taken, int32_t set);

  // engine_check.cc
  bool IsBad(int32_t page, size_t group = 0) const;
  bool Appends(int32_t layer) const;
  void Apply(InFlight *p);
  void ApplyTokens(InFlight *p, InFlight::Taken *taken, int32_t first);
  void FindBadPage(InFlight *p, const InFlight::Taken &taken) const;
  const std::vector<Entry> &KeysOf(const InFlight::Taken &taken, int32_t layer) const;
  void ExpectResult(const InFlight &p, const cgr_step_result &result);
  void ExpectTokens(const InFlight &p, const cgr_step_result &result);
  static void ExpectGuardMessage(uint64_t seq, const cgr_guard &guard);
  void ExpectSampled(const InFlight::Taken &taken, int32_t token);
  void TakeOutputs(const InFlight &p);
  AttentionProblem ProblemOf(int32_t layer, const std::vector<Entry> &cache, const std::vector<Entry> &queries) const;
  void CheckPadding(const InFlight &p, int32_t c, const Outputs &got, int32_t real);

  struct Memory {
    void *at;
    size_t bytes;
    bool pinned;
  };
  std::vector<Memory> memory_;
  std::vector<Pool> pools_; // of each group
  uint64_t tags_ = 0;
  std::vector<cgr_group> groups_;
  std::vector<cgr_layer> layers_;
  std::vector<cgr_variant> variants_;
  std::vector<const float *> slopes_, sinks_; // of each layer, on the device
  std::vector<Item> items_;
  std::deque<std::unique_ptr<InFlight>> in_flight_;
  std::vector<std::unique_ptr<InFlight>> failed_; // their uploads may still be on the stream
  int32_t uploads_ = 0;
  bool forgot_ = false;
};

} // namespace cgr_test

// Compiled once, in engine.cc, and not in each test again. `Extern` is `extern` or nothing.
#define CGR_TEMPLATES_OF_ENGINES(Extern)                          \
  Extern template class std::vector<cgr_bucket>;                  \
  Extern template class std::vector<cgr_test::LayerOptions>;      \
  Extern template class std::vector<cgr_test::GroupOptions>;      \
  Extern template class std::vector<cgr_test::CallOptions>;       \
  Extern template class std::vector<cgr_test::Item>;              \
  Extern template class std::vector<std::pair<int32_t, int32_t>>; \
  Extern template class std::unique_ptr<cgr_test::Engine>;        \
  Extern template class std::function<void(cgr_config *)>;        \
  Extern template class std::map<int32_t, std::shared_ptr<cgr_test::Request>>;
CGR_TEMPLATES_OF_ENGINES(extern)
