// What a graph keeps of a launch that reads a block table: the hash differs with it, and a replay with anything else is refused
// by the field's name, in a runtime before the step.
#include <functional>

#include "tests/interop/own_backend.h"
#include "tests/support/engine.h"
#include "tests/support/expect.h"

namespace cgr_test {
namespace {

cgr_block_table_input Input() {
  cgr_block_table_input in = CGR_BLOCK_TABLE_INPUT_INIT;
  in.num_requests = 4;
  in.query_len = 2;
  in.max_seq_len = 100;
  in.max_pages = 8;
  in.page_size = 32;
  in.num_rows = 5;
  in.num_pages = 10;
  in.page_table_stride = 9;
  in.bmm1_scale = 0.125;
  in.bmm2_scale = 0.0625;
  return in;
}

uint64_t HashOf(const cgr_block_table_input &in) {
  cgr_block_table_layout at = CGR_BLOCK_TABLE_LAYOUT_INIT;
  CGR_EXPECT_OK(cgr_block_table_get_layout(&in, &at));
  return at.hash;
}

struct Change {
  const char *says; // the value now, and that of the capture
  std::function<void(cgr_block_table_input *)> apply;
};
const float kSinks[2] = { 1, 2 };
const std::vector<Change> &Changes() {
  static const std::vector<Change> changes = {
    { "now.num_requests is 3, expected 4", [](auto *in) { in->num_requests = 3; } },
    { "now.query_len is 1, expected 2", [](auto *in) { in->query_len = 1; } },
    { "now.max_seq_len is 99, expected 100", [](auto *in) { in->max_seq_len = 99; } },
    { "now.max_pages is 9, expected 8", [](auto *in) { in->max_pages = 9; } },
    { "now.page_size is 64, expected 32", [](auto *in) { in->page_size = 64, in->kernel_page_size = 32; } },
    { "now.read_trash_page is 1, expected 0", [](auto *in) { in->read_trash_page = 1; } },
    { "now.num_rows is 6, expected 5", [](auto *in) { in->num_rows = 6; } },
    { "now.kernel_page_size is 16, expected 32", [](auto *in) { in->kernel_page_size = 16; } },
    { "now.num_pages is 11, expected 10", [](auto *in) { in->num_pages = 11; } },
    { "now.page_table_stride is 8, expected 9", [](auto *in) { in->page_table_stride = 8; } },
    { "now.num_tokens is 8, expected 0", [](auto *in) { in->num_tokens = 8; } },
    { "now.max_prefill_query_len is 7, expected 0", [](auto *in) { in->max_prefill_query_len = 7; } },
    { "now.whole_query is 1, expected 0", [](auto *in) { in->whole_query = 5; } },
    { "now.window_left is -1, expected 0", [](auto *in) { in->window_left = -1; } },
    { "now.bmm1_scale is 0.12500000000000003, expected 0.125", [](auto *in) { in->bmm1_scale = std::nextafter(0.125, 1); } },
    { "now.bmm2_scale is 0.25, expected 0.0625", [](auto *in) { in->bmm2_scale = 0.25; } },
    { "now.o_sf_scale is 4, expected 0", [](auto *in) { in->o_sf_scale = 4; } },
    { "now.sinks is 0x", [](auto *in) { in->sinks = kSinks; } },
  };
  return changes;
}

TEST(BlockTableReplay, NamesWhatDiffers) {
  const cgr_block_table_input captured = Input();
  for (const Change &change : Changes()) {
    cgr_block_table_input now = captured;
    change.apply(&now);
    ExpectMessage(cgr_block_table_check_replay(&captured, &now), CGR_ERROR_STALE_GRAPH,
                  { "cgr_block_table_check_replay", change.says, "capture again" });
    EXPECT_NE(HashOf(now), HashOf(captured)) << change.says;
    CGR_EXPECT_OK(cgr_block_table_check_replay(&now, &now));
  }
}

// Defaults that are spelled out are the same, and so are arrays, which the kernel that was captured has addresses of.
TEST(BlockTableReplay, TakesWhatMeansTheSame) {
  const cgr_block_table_input captured = Input();
  const int32_t words[16] = {};
  cgr_block_table_input now = captured;
  now.kv_layout = CGR_LAYOUT_HND;
  now.kernel_page_size = 32;
  now.page_table = now.rows = now.seq_lens = now.query_start_loc = now.live_requests = words;
  CGR_EXPECT_OK(cgr_block_table_check_replay(&captured, &now));
  CGR_EXPECT_OK(cgr_block_table_check_replay(&now, &captured));
  EXPECT_EQ(HashOf(now), HashOf(captured));
  cgr_block_table_input divided = captured, told = captured;
  divided.query_len = 0, divided.num_tokens = told.num_tokens = 8;
  CGR_EXPECT_OK(cgr_block_table_check_replay(&divided, &told));
}

TEST(BlockTableReplay, RefusesInputsThatAreNone) {
  cgr_block_table_input good = Input(), bad = Input();
  bad.page_size = 8;
  ExpectMessage(cgr_block_table_check_replay(nullptr, &good), CGR_ERROR_NULL_POINTER, { "captured" });
  ExpectMessage(cgr_block_table_check_replay(&good, nullptr), CGR_ERROR_NULL_POINTER, { "now" });
  ExpectMessage(cgr_block_table_check_replay(&bad, &good), CGR_ERROR_UNSUPPORTED, { "page_size is 8" });
  ExpectMessage(cgr_block_table_check_replay(&good, &bad), CGR_ERROR_UNSUPPORTED, { "page_size is 8" });
}

// ------------------------------------------------------------------------------------------------------------- in a runtime

// The backend of the guide, whose kernel would be given scales of the model, and which looks at them in plan_host.
class BlockTableReplayed : public ::testing::Test {
protected:
  static cgr_status PlanHost(void *context, void *state, const cgr_plan_step *) {
    BlockTableReplayed *self = Self(context);
    auto *args = static_cast<own_args *>(state);
    self->scales_(&args->input); // what a capture, or an eager step, gives its launch
    if (self->captured_.count(args) == 0 || !self->is_captured_)
      self->captured_[args] = args->input;
    return cgr_block_table_check_replay(&self->captured_[args], &args->input);
  }
  EngineOptions Options() {
    EngineOptions options;
    options.layout = KvLayout::kHnd;
    options.layers = { { 4, 2 } };
    options.mode = CGR_MODE_FULL;
    options.mixed = { { 8, 4 } };
    options.adjust = [this](cgr_config *config) {
      layers_.assign(config->layers, config->layers + config->num_layers);
      layers_[0].backend = 1;
      own_ = { layers_.data(), config->groups[0], config->max_requests, config->max_rows, config->max_seq_len, 0 };
      CGR_EXPECT_OK(own_backend(&own_, &backend_));
      inner_ = backend_;
      backend_.context = this;
      backend_.create = [](void *context, const cgr_plan_key *key, void **state) {
        return Self(context)->inner_.create(&Self(context)->own_, key, state);
      };
      backend_.destroy = [](void *context, void *state) { Self(context)->inner_.destroy(&Self(context)->own_, state); };
      backend_.plan = [](void *context, void *state, cgr_recorder *recorder, uint32_t flags, int32_t draft) {
        return Self(context)->inner_.plan(&Self(context)->own_, state, recorder, flags, draft);
      };
      backend_.record = [](void *context, cgr_recorder *recorder, const cgr_attention *attention) {
        return Self(context)->inner_.record(&Self(context)->own_, recorder, attention);
      };
      backend_.plan_host = PlanHost, backend_.plan_bytes = 16, backend_.flags = 0;
      config->layers = layers_.data(), config->backends = &backend_, config->num_backends = 1;
    };
    return options;
  }
  static BlockTableReplayed *Self(void *context) { return static_cast<BlockTableReplayed *>(context); }

  own_engine own_;
  cgr_backend backend_, inner_;
  std::vector<cgr_layer> layers_;
  std::map<const void *, cgr_block_table_input> captured_; // by state: each key has one
  bool is_captured_ = false;
  std::function<void(cgr_block_table_input *)> scales_ = [](cgr_block_table_input *in) {
    in->bmm1_scale = 0.125, in->bmm2_scale = 1, in->sinks = nullptr;
  };
};

TEST_F(BlockTableReplayed, AStepWithOtherScalarsThanTheCapturesIsRefusedByName) {
  Engine engine(Options());
  CGR_ASSERT_OK(engine.Capture());
  is_captured_ = true;
  const int32_t row = engine.Open();
  engine.Step(engine.Chunks({ { row, 3 } }));
  ASSERT_EQ(engine.step.key.kind, CGR_KIND_FULL);
  const auto good = scales_;
  const std::vector<Change> changes = {
    { "now.bmm1_scale is 0.25, expected 0.125", [](auto *in) { in->bmm1_scale = 0.25; } },
    { "now.bmm2_scale is 2, expected 1", [](auto *in) { in->bmm2_scale = 2; } },
    { "now.sinks is 0x", [](auto *in) { in->sinks = kSinks; } },
  };
  for (const Change &change : changes) {
    scales_ = [&](cgr_block_table_input *in) { good(in), change.apply(in); };
    const int32_t tokens[1] = { 1 }, lens[1] = { 1 };
    cgr_batch batch = CGR_BATCH_INIT;
    batch.num_requests = 1, batch.rows = &row, batch.query_lens = lens, batch.tokens = tokens;
    cgr_step step = CGR_STEP_INIT;
    ExpectMessage(cgr_step_prepare(engine.rt, &batch, &step), CGR_ERROR_CALLBACK,
                  { "cgr_block_table_check_replay", change.says, "plan_host" });
  }
  scales_ = good;
  engine.Step(engine.Chunks({ { row, 2 } }));
  EXPECT_EQ(engine.step.key.kind, CGR_KIND_FULL);
}

} // namespace
} // namespace cgr_test
