// A step that is repeated gives the same bits every time: outputs, lse and the pages that it writes. Its inputs are the same each
// time, but which part comes last to a merge is not, least of all while another stream loads the GPU. 1,000 repetitions on a GPU,
// fewer elsewhere; CGR_REPETITIONS in the environment lowers that.
#include <cstdlib>
#include <cstring>

#include "tests/support/refused.h"
#include "tests/support/seed.h"

namespace cgr_test {
namespace {

// Device memory that must hold the same bytes after every repetition.
struct Watched {
  std::string name;
  const void *there;
  size_t bytes;
};

// A step, and what its first run gave.
struct Repeated {
  std::string name;
  std::vector<Item> items;
  std::vector<int32_t> starts; // lengths of the rows before it
  cgr_key full, eager;         // of the same padded counts
  std::vector<int32_t> pages;  // that it writes
  std::vector<Watched> watched;
  std::vector<unsigned char> expected; // of what is watched, one after the other
};

// Keeps a device's memory busy alongside the steps, from a stream of its own.
class Load {
public:
  Load(Engine *engine, size_t bytes) : engine_(*engine), bytes_(bytes) {
    CGR_EXPECT_OK(cgr_stream_create(engine_.dev, &engine_.side));
    for (void *&memory : memory_)
      memory = engine_.Alloc(bytes_);
    CGR_EXPECT_OK(cgr_fill(engine_.dev, memory_[0], 1, bytes_, engine_.side));
  }
  // Called before each step, so that every step runs alongside some load. It waits now and then to keep work from piling up.
  void Enqueue() {
    if (++count_ % 8 == 0)
      CGR_EXPECT_OK(cgr_stream_synchronize(engine_.dev, engine_.side));
    CGR_EXPECT_OK(cgr_copy(engine_.dev, memory_[1], memory_[0], bytes_, engine_.side));
    CGR_EXPECT_OK(cgr_fill(engine_.dev, memory_[0], count_ % 256, bytes_, engine_.side));
  }

private:
  Engine &engine_;
  size_t bytes_;
  void *memory_[2] = {};
  int count_ = 0;
};

class Repetition : public EngineTest {
protected:
  enum { kPage = 16, kMaxRequests = 8, kMaxTokens = 96 };

  // How many runs to make where a GPU makes `count`, the first run included.
  static int Count(int count) {
    int divisor = GetParam().IsCuda() ? 1 : GetParam().IsEmulated() ? 250 : 50;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    divisor *= 4;
#endif
    const char *given = std::getenv("CGR_REPETITIONS");
    return std::max(2, std::min(count / divisor, given != nullptr ? std::atoi(given) : count));
  }
  int32_t LongLength() const { return GetParam().IsCuda() ? 3000 : GetParam().IsEmulated() ? 700 : 1500; }
  int32_t SomeLength() const { return GetParam().IsEmulated() ? 150 : 400; }

  // Plain heads, one KV head with many, and what only the general kernels do; narrow where no kernel of CUDA asks for a width.
  std::vector<LayerOptions> Layers() {
    const int32_t dim = GetParam().HasCudaKernels() ? 64 : 16;
    std::vector<LayerOptions> layers(4);
    layers[0].num_q_heads = 8, layers[0].num_kv_heads = 2, layers[0].head_dim = dim;
    layers[1].num_q_heads = 8, layers[1].num_kv_heads = 1, layers[1].head_dim = 2 * dim;
    layers[2].num_q_heads = 4, layers[2].num_kv_heads = 2, layers[2].head_dim = dim;
    layers[2].kind.window_left = 300;
    layers[2].kind.sinks = { 0.5f, -1.0f, 2.0f, 0.0f };
    layers[3].num_q_heads = 2, layers[3].num_kv_heads = 2, layers[3].head_dim = dim;
    layers[3].kind.softcap = 20.0f;
    return layers;
  }
  void Make(bool batch_invariant) {
    EngineOptions o;
    o.device = GetParam(), o.feed = Feed::kUploads, o.dtype = CGR_DTYPE_BF16, o.layers = Layers();
    o.layout = KvLayout::kLayersInPage; // a page of all layers is one stretch of memory
    o.page_size = kPage, o.max_requests = o.max_rows = kMaxRequests, o.max_tokens = kMaxTokens;
    o.max_seq_len = LongLength() + 100 + kMaxTokens;
    o.num_pages = (o.max_seq_len + 2 * SomeLength() + kMaxRequests * (kMaxTokens + 2 * kPage)) / kPage;
    o.mode = CGR_MODE_FULL;
    o.mixed = { { 32, 4 }, { kMaxTokens, kMaxRequests } };
    o.adjust = [this, batch_invariant](cgr_config *c) {
      static const int32_t query_lens[] = { 1, 4 };
      c->query_lens = query_lens, c->num_query_lens = 2;
      c->max_padding = kMaxTokens; // each step takes its graph, however small a slow device makes it
      c->batch_invariant = batch_invariant;
      if (batch_invariant)
        c->num_parts = 16; // few, so that a part has several splits of a tile to fold
      else if (!GetParam().IsCuda())
        c->num_parts = 24; // more than the host has, for more merges
    };
    engine_ = MakeCaptured(o);
    given_bytes_ = 64 * PageBytes();
    for (int32_t c = 0; c < engine_->state.num_calls; c++)
      given_bytes_ += engine_->state.call[c].out_bytes + engine_->state.call[c].lse_bytes;
    given_ = static_cast<unsigned char *>(engine_->Alloc(given_bytes_, true));
  }

  // ---- what every repetition finds
  size_t PageBytes() const { return size_t(engine_->caches.View(0, kK).stride_page) * cgr_dtype_size(CGR_DTYPE_BF16); }
  unsigned char *Page(void *caches, int32_t page) const {
    const unsigned char *begin = static_cast<const unsigned char *>(engine_->caches.memory());
    size_t first = size_t(static_cast<const unsigned char *>(engine_->caches.View(0, kK).base) - begin);
    return static_cast<unsigned char *>(caches) + first + size_t(page) * PageBytes();
  }
  // A row with `length` tokens in the cache that no step has computed.
  int32_t OpenFilled(int32_t length) {
    int32_t row = engine_->Open();
    engine_->Reserve(row, length + kMaxTokens);
    Request &r = *engine_->requests.at(row);
    for (int32_t t = 0; t < length; t++) {
      r.cache.push_back({ salt_ + 1 + row, t });
      for (int32_t l = 0; l < engine_->state.num_layers; l++)
        engine_->caches.Append(l, engine_->state.layer[l].values, r.pages[size_t(t / kPage)], t % kPage, r.cache.back());
    }
    r.num_tokens = length;
    CGR_EXPECT_OK(cgr_request_set_length(engine_->rt, row, length));
    return row;
  }
  // The caches, a copy of them to go back to, and q, k and v of as many tokens as a step can have.
  void FillMemory() {
    engine_->Write(engine_->caches.memory(), engine_->caches.image().data(), engine_->caches.bytes());
    before_ = engine_->Alloc(engine_->caches.bytes());
    engine_->Write(before_, engine_->caches.image().data(), engine_->caches.bytes());
    for (int32_t l = 0; l < engine_->state.num_layers; l++)
      for (Tensor which : kTensors) {
        const RecordLayer &layer = engine_->state.layer[l];
        std::vector<unsigned char> values(layer.in_bytes[which]);
        FillInput(
            layer, which, kMaxTokens,
            [this](int32_t t) {
              return Entry{ salt_, t };
            },
            values.data());
        engine_->Write(layer.in[which].data, values.data(), values.size());
      }
  }
  void Add(const std::string &name, const std::vector<std::pair<int32_t, int32_t>> &chunks) {
    Repeated step;
    step.name = name;
    for (const auto &[row, length] : chunks) {
      int32_t start = engine_->requests.at(row)->num_tokens;
      step.items.push_back(Engine::Chunk(row, length, row));
      step.starts.push_back(start);
      for (int32_t p = start / kPage; p <= (start + length - 1) / kPage; p++)
        step.pages.push_back(engine_->requests.at(row)->pages[size_t(p)]);
    }
    steps_.push_back(step);
  }
  // One long request, which many parts share; short ones around the borders of a page; both; a chunk of a prompt next to decodes,
  // and alone, split among all parts; drafts to verify.
  void AddSteps(Random *random) {
    const int32_t some = SomeLength(), longest = OpenFilled(LongLength() + random->Pick32(0, 99));
    const int32_t prompt = OpenFilled(random->Pick32(some / 2, some));
    std::vector<std::pair<int32_t, int32_t>> decodes, all = { { longest, 1 } }, drafts = { { longest, 4 } };
    for (int32_t length : { 0, kPage - 2, kPage - 1, int32_t(kPage), random->Pick32(some / 3, some) })
      decodes.push_back({ OpenFilled(length), 1 });
    for (const auto &[row, length] : decodes) {
      all.push_back({ row, 1 });
      drafts.push_back({ row, 4 });
    }
    std::vector<std::pair<int32_t, int32_t>> mixed = all;
    mixed.push_back({ prompt, GetParam().IsEmulated() ? 20 : random->Pick32(40, 80) });
    ASSERT_NO_FATAL_FAILURE(FillMemory());
    Add("one long request", { { longest, 1 } });
    Add("lengths around a page", decodes);
    Add("a long request among short ones", all);
    Add("a chunk of a prompt and decodes", mixed);
    Add("a chunk of a prompt", { { prompt, random->Pick32(17, 32) } });
    Add("drafts", drafts);
  }

  // ---- a run
  // Overwrites what the step will write, whatever an earlier run has left there.
  void Poison() {
    for (int32_t c = 0; c < engine_->state.num_calls; c++) {
      const RecordCall &call = engine_->state.call[c];
      CGR_EXPECT_OK(cgr_fill(engine_->dev, call.attention.out.data, 0xff, call.out_bytes, engine_->stream));
      CGR_EXPECT_OK(cgr_fill(engine_->dev, call.attention.lse.data, 0xff, call.lse_bytes, engine_->stream));
    }
  }
  void Launch(const Repeated &step, const cgr_key *key) {
    CGR_ASSERT_OK(engine_->Prepare(step.items, key));
    Poison();
    CGR_ASSERT_OK(cgr_step_launch(engine_->rt, &engine_->step, engine_->stream));
    engine_->launched = engine_->step.mark.seq;
  }
  void Wait(const Repeated &step) {
    cgr_step_result result = CGR_STEP_RESULT_INIT;
    CGR_ASSERT_OK(cgr_step_wait(engine_->rt, cgr_mark{ 0, 0, engine_->launched }, -1, &result));
    ASSERT_EQ(result.num_requests, int32_t(step.items.size()));
    for (int32_t i = 0; i < result.num_requests; i++)
      ASSERT_EQ(result.tokens[i * result.token_stride], kFixedToken + i);
  }
  // Copies what is watched to `given_`, then restores the caches and rows to their state before the step.
  void TakeAndGoBack(const Repeated &step) {
    size_t at = 0;
    for (const Watched &memory : step.watched) {
      ASSERT_LE(at + memory.bytes, given_bytes_);
      CGR_ASSERT_OK(cgr_copy(engine_->dev, given_ + at, memory.there, memory.bytes, engine_->stream));
      at += memory.bytes;
    }
    for (int32_t page : step.pages)
      CGR_ASSERT_OK(
          cgr_copy(engine_->dev, Page(engine_->caches.memory(), page), Page(before_, page), PageBytes(), engine_->stream));
    for (size_t i = 0; i < step.items.size(); i++)
      engine_->SetLength(step.items[i].row, step.starts[i]);
    engine_->Sync();
  }
  // The first run, in the graph that the library chooses: its outputs are checked, and later runs must match them.
  void RunFirst(Repeated *step) {
    ASSERT_NO_FATAL_FAILURE(Launch(*step, nullptr));
    ASSERT_EQ(engine_->step.key.kind, CGR_KIND_FULL);
    step->full = engine_->step.key;
    step->eager = EagerKey(step->full.num_requests, step->full.num_tokens);
    ASSERT_NO_FATAL_FAILURE(Wait(*step));
    InFlight taken;
    taken.step = engine_->step;
    for (int32_t i = 0, token = 0; i < int32_t(step->items.size()); i++) {
      const Item &item = step->items[size_t(i)];
      const std::shared_ptr<Request> &r = engine_->requests.at(item.row);
      std::vector<Entry> asked, cache = r->cache;
      for (size_t j = 0; j < item.tokens.size(); j++)
        asked.push_back({ salt_, token++ });
      cache.insert(cache.end(), asked.begin(), asked.end());
      taken.items.push_back({ item, r, step->starts[size_t(i)], r->tag, { r->pages }, cache, asked, {}, {} });
    }
    for (int32_t c = 0; c < engine_->state.num_calls; c++) {
      const RecordCall &call = engine_->state.call[c];
      const cgr_attention &a = call.attention;
      ASSERT_NO_FATAL_FAILURE(engine_->CheckCall(taken, c,
                                                 { engine_->Read<unsigned char>(a.out.data, call.out_bytes),
                                                   engine_->Read<float>(a.lse.data, call.lse_bytes / sizeof(float)) }));
      const size_t padded = size_t(step->full.num_tokens), of_layer = size_t(a.layer);
      step->watched.push_back({ "out of layer " + std::to_string(of_layer), a.out.data,
                                padded * size_t(a.out.stride_token) * cgr_dtype_size(CGR_DTYPE_BF16) });
      step->watched.push_back(
          { "lse of layer " + std::to_string(of_layer), a.lse.data, padded * size_t(a.lse.stride_token) * sizeof(float) });
    }
    for (int32_t page : step->pages)
      step->watched.push_back({ "page " + std::to_string(page), Page(engine_->caches.memory(), page), PageBytes() });
    ASSERT_NO_FATAL_FAILURE(TakeAndGoBack(*step));
    size_t all = 0;
    for (const Watched &memory : step->watched)
      all += memory.bytes;
    step->expected.assign(given_, given_ + all);
  }
  void RunAgain(const Repeated &step, bool eagerly) {
    ASSERT_NO_FATAL_FAILURE(Launch(step, eagerly ? &step.eager : &step.full));
    ASSERT_EQ(engine_->step.key.kind, eagerly ? CGR_KIND_NONE : CGR_KIND_FULL);
    ASSERT_NO_FATAL_FAILURE(Wait(step));
    ASSERT_NO_FATAL_FAILURE(TakeAndGoBack(step));
    if (std::memcmp(given_, step.expected.data(), step.expected.size()) == 0)
      return;
    const unsigned char *got = given_, *expected = step.expected.data();
    for (const Watched &memory : step.watched) {
      const unsigned char *differs = std::mismatch(got, got + memory.bytes, expected).first;
      if (differs != got + memory.bytes)
        ADD_FAILURE() << memory.name << " differs from byte " << differs - got << " of " << memory.bytes << " on";
      got += memory.bytes;
      expected += memory.bytes;
    }
  }
  // The steps take turns, so each finds another step's leftovers in the memory of partials; graphs and eager steps alternate.
  void Repeat(int count, bool loaded, bool batch_invariant) {
    SeededRandom random;
    salt_ = random.Pick32(1, 1 << 30);
    ASSERT_NO_FATAL_FAILURE(Make(batch_invariant));
    ASSERT_NO_FATAL_FAILURE(AddSteps(&random));
    for (Repeated &step : steps_) {
      SCOPED_TRACE(step.name + ", for the first time");
      ASSERT_NO_FATAL_FAILURE(RunFirst(&step));
    }
    const size_t bytes = GetParam().IsCuda() ? size_t{ 256 } << 20 : size_t{ 2 } << 20;
    std::unique_ptr<Load> load = loaded ? std::make_unique<Load>(engine_.get(), bytes) : nullptr;
    for (int i = 1; i < count; i++)
      for (const Repeated &step : steps_) {
        if (load != nullptr)
          load->Enqueue();
        RunAgain(step, i % 2 == 1);
        ASSERT_FALSE(HasFailure()) << step.name << ", repetition " << i << (i % 2 == 1 ? ", eager" : ", a graph");
      }
  }

  std::vector<Repeated> steps_;
  int32_t salt_ = 0;               // names the values of the steps' tokens; those of rows follow
  void *before_ = nullptr;         // the caches as each step finds them
  unsigned char *given_ = nullptr; // what a run gave; pinned
  size_t given_bytes_ = 0;
};

TEST_P(Repetition, GivesTheSameBits) { Repeat(Count(1000), false, false); }

TEST_P(Repetition, GivesTheSameBitsWhileAnotherStreamLoadsTheDevice) { Repeat(Count(1000), true, false); }

// In this mode splits are folded before they are merged; also run under load.
TEST_P(Repetition, GivesTheSameBitsBatchInvariant) { Repeat(Count(500), true, true); }

CGR_INSTANTIATE_OVER_FEW_DEVICES(Repetition);

} // namespace
} // namespace cgr_test
