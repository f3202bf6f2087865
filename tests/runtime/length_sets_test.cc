// Lengths that rows have besides those of their sequences: how they are set, travel and persist; what steps of a set's own tokens
// leave in the buffers, and that they do not touch the sequences; and every misuse that is refused.
#include <memory>

#include "buffers/ring_slot.h"
#include "tests/support/sets_case.h"

namespace cgr_test {
namespace {

using namespace sets;

class LengthSets : public OverDevices {
protected:
  std::unique_ptr<SetsEngine> Make(cgr_graph_mode mode = CGR_MODE_FULL, const Options &options = EncoderAndDecoder()) {
    auto engine = std::make_unique<SetsEngine>(GetParam(), mode, options, 11);
    CGR_EXPECT_OK(engine->Capture());
    return engine;
  }
  // What the planned buffers must hold after a step of `set`, padding included.
  static void ExpectBuffers(SetsEngine &e, const std::vector<Count> &items, int32_t set) {
    const size_t requests = size_t(e.step.key.num_requests), tokens = size_t(e.step.key.num_tokens);
    std::vector<int64_t> positions;
    for (const Count &item : items)
      for (int32_t t = item.count; t > 0; t--)
        positions.push_back(e.Length(item.row, set) - t);
    const size_t real = positions.size();
    positions.resize(tokens, 0);
    std::vector<int64_t> got = e.Buffer(CGR_BUFFER_POSITIONS);
    got.resize(tokens);
    EXPECT_EQ(got, positions);
    for (int32_t s = 0; s < e.o.num_sets; s++) {
      std::vector<int64_t> lens, expected(requests, 0);
      for (size_t i = 0; i < items.size(); i++)
        expected[i] = e.Length(items[i].row, s);
      lens = e.Buffer(CGR_BUFFER_SEQ_LENS, s);
      lens.resize(requests);
      EXPECT_EQ(lens, expected) << "set " << s;
    }
    for (size_t g = 0; g < e.o.groups.size(); g++) {
      SCOPED_TRACE("group " + std::to_string(g));
      const int32_t size = e.o.groups[g].page_size, of = e.o.groups[g].length_set;
      std::vector<int64_t> indptr = e.Buffer(CGR_BUFFER_KV_INDPTR, int32_t(g));
      std::vector<int64_t> last = e.Buffer(CGR_BUFFER_KV_LAST_PAGE_LEN, int32_t(g));
      std::vector<int64_t> slots = e.Buffer(CGR_BUFFER_SLOT_MAPPING, int32_t(g));
      int32_t num_pages = 0;
      size_t t = 0;
      for (size_t i = 0; i < requests; i++) {
        const int32_t length = i < items.size() ? e.Length(items[i].row, of) : 0;
        num_pages += (length + size - 1) / size;
        EXPECT_EQ(indptr[i + 1], num_pages) << i;
        EXPECT_EQ(last[i], length > 0 ? (length - 1) % size + 1 : 1) << i;
        for (int32_t k = 0; i < items.size() && k < items[i].count; k++, t++) {
          const std::vector<int32_t> &pages = e.requests.at(items[i].row)->Of(g).pages;
          const int64_t position = positions[t];
          EXPECT_EQ(slots[t], of == set ? int64_t(pages[size_t(position / size)]) * size + position % size : -1) << t;
        }
      }
      EXPECT_EQ(t, real);
      for (; t < tokens; t++)
        EXPECT_EQ(slots[t], -1) << t;
    }
  }
};

TEST_P(LengthSets, BuffersFollowTheirOwnSet) {
  for (cgr_graph_mode mode : { CGR_MODE_FULL, CGR_MODE_PIECEWISE, CGR_MODE_NONE }) {
    auto engine = Make(mode);
    SetsEngine &e = *engine;
    const int32_t a = e.Open(), b = e.Open();
    std::vector<Count> items = { { b, 40 }, { a, 3 } };
    e.Encode(items);
    ExpectBuffers(e, items, 1);
    items = { { a, 20 }, { b, 2 } };
    e.Decode(items);
    ExpectBuffers(e, items, 0);
    items = { { a, 1 }, { b, 1 } };
    e.Decode(items);
    ExpectBuffers(e, items, 0);
    items = { { a, 30 }, { b, 0 } };
    e.Encode(items);
    ExpectBuffers(e, items, 1);
    std::vector<int64_t> computed = e.Buffer(CGR_BUFFER_ROW_COMPUTED);
    EXPECT_EQ(computed[size_t(a)], 21);
    EXPECT_EQ(computed[size_t(b)], 3);
  }
}

// After a step of another set, a row's next token is still the one its last step sampled, and its length is unchanged.
TEST_P(LengthSets, AStepOfAnotherSetLeavesTheSequencesAlone) {
  for (cgr_graph_mode mode : { CGR_MODE_FULL, CGR_MODE_NONE }) {
    auto engine = Make(mode);
    SetsEngine &e = *engine;
    const int32_t a = e.Open();
    e.Encode({ { a, 6 } });
    e.Decode({ { a, 4 } });
    cgr_request_info before = CGR_REQUEST_INFO_INIT, after = CGR_REQUEST_INFO_INIT;
    CGR_EXPECT_OK(cgr_request_get_info(e.rt, a, &before));
    e.Encode({ { a, 9 } });
    CGR_EXPECT_OK(cgr_request_get_info(e.rt, a, &after));
    EXPECT_EQ(after.num_tokens, before.num_tokens);
    EXPECT_EQ(after.has_token, 1);
    EXPECT_EQ(after.last.seq, e.step.mark.seq);
    EXPECT_GT(after.last.seq, before.last.seq);
    const std::vector<int32_t> lengths(after.other_lengths, after.other_lengths + 4);
    EXPECT_EQ(lengths, (std::vector<int32_t>{ 0, e.Length(a, 1), 0, 0 }));
    EXPECT_GE(lengths[1], 9);
    cgr_batch batch = BatchOf(1, &a);
    e.Reserve(a, 0, 9);
    for (int32_t i = 0; i < 2; i++) { // the second one repeats the first
      CGR_ASSERT_OK(cgr_step_prepare(e.rt, &batch, &e.step));
      CGR_ASSERT_OK(cgr_step_launch(e.rt, &e.step, e.stream));
      CGR_ASSERT_OK(cgr_step_wait(e.rt, e.step.mark, -1, nullptr));
      EXPECT_EQ(e.Buffer(CGR_BUFFER_INPUT_IDS)[0], kFixedToken); // a step of set 1 writes another
      EXPECT_EQ(e.Buffer(CGR_BUFFER_POSITIONS)[0], 4 + i);
    }
    CGR_EXPECT_OK(cgr_request_get_info(e.rt, a, &after));
    EXPECT_EQ(after.num_tokens, before.num_tokens + 2);
    // After a step of another set the repeating batch is no longer on the device.
    e.SetOther(a, 1, 16);
    CGR_ASSERT_OK(e.Prepare({ { a, 1 } }, 1));
    CGR_ASSERT_OK(cgr_step_launch(e.rt, &e.step, e.stream));
    for (int32_t i = 2; i < 4; i++) {
      CGR_ASSERT_OK(cgr_step_prepare(e.rt, &batch, &e.step));
      EXPECT_EQ(e.step.bytes_staged > sizeof(cgr__ring_slot_header), i == 2) << "only the first one travels whole";
      CGR_ASSERT_OK(cgr_step_launch(e.rt, &e.step, e.stream));
      CGR_ASSERT_OK(cgr_step_wait(e.rt, e.step.mark, -1, nullptr));
      EXPECT_EQ(e.Buffer(CGR_BUFFER_POSITIONS)[0], 4 + i);
    }
  }
}

TEST_P(LengthSets, TheStandingBatchGoesOnAfterIt) {
  auto engine = Make();
  SetsEngine &e = *engine;
  const int32_t a = e.Open(), b = e.Open(), token = 3;
  for (int32_t row : { a, b }) {
    e.Reserve(row, 0, 16);
    CGR_ASSERT_OK(cgr_standing_add(e.rt, nullptr, row, 1, &token, 0));
  }
  cgr_batch batch = StandingBatch();
  auto stand = [&](int32_t length) {
    CGR_ASSERT_OK(cgr_step_prepare(e.rt, &batch, &e.step));
    CGR_ASSERT_OK(cgr_step_launch(e.rt, &e.step, e.stream));
    CGR_ASSERT_OK(cgr_step_wait(e.rt, e.step.mark, -1, nullptr));
    std::vector<int64_t> lens = e.Buffer(CGR_BUFFER_SEQ_LENS);
    EXPECT_EQ(lens[0], length);
    EXPECT_EQ(lens[1], length);
  };
  stand(1);
  stand(2);
  e.SetOther(b, 1, 12);
  CGR_ASSERT_OK(e.Prepare({ { b, 12 } }, 1));
  CGR_ASSERT_OK(cgr_step_launch(e.rt, &e.step, e.stream));
  CGR_ASSERT_OK(cgr_step_wait(e.rt, e.step.mark, -1, nullptr));
  stand(3);
  EXPECT_EQ(e.Buffer(CGR_BUFFER_SEQ_LENS, 1)[1], 12);
  EXPECT_EQ(e.Buffer(CGR_BUFFER_INPUT_IDS)[1], kFixedToken + 1);
  stand(4);
  batch.variant = 1;
  ExpectMessage(cgr_step_prepare(e.rt, &batch, &e.step), CGR_ERROR_INVALID_ARGUMENT,
                { "variant is 1", "length set 1", "set 0", "standing" });
}

// A length travels with the next launched step, and is 0 once the row has another owner.
TEST_P(LengthSets, LengthsTravelAsChangesDo) {
  auto engine = Make();
  SetsEngine &e = *engine;
  const int32_t a = e.Open();
  e.Reserve(a, 0, 8);
  auto seen = [&] { // of a, in a step that is launched now
    EXPECT_EQ(e.Prepare({ { a, 0 } }, 0), CGR_OK) << cgr_last_message();
    CGR_EXPECT_OK(cgr_step_launch(e.rt, &e.step, e.stream));
    CGR_EXPECT_OK(cgr_step_wait(e.rt, e.step.mark, -1, nullptr));
    return e.Buffer(CGR_BUFFER_SEQ_LENS, 1)[0];
  };
  EXPECT_EQ(seen(), 0);
  e.SetOther(a, 1, 33);
  CGR_ASSERT_OK(e.Prepare({ { a, 0 } }, 0));
  EXPECT_EQ(e.step.num_requests, 1);
  ExpectMessage(cgr_request_set_other_length(e.rt, a, 1, 3), CGR_ERROR_STATE,
                { "cgr_request_set_other_length", "row " + std::to_string(a), "prepared" });
  CGR_ASSERT_OK(cgr_step_cancel(e.rt, &e.step));
  EXPECT_EQ(seen(), 33);
  EXPECT_EQ(seen(), 33);
  CGR_EXPECT_OK(cgr_request_set_other_length(e.rt, a, 1, 32));
  EXPECT_EQ(seen(), 32);
  uint64_t seq = 0;
  CGR_EXPECT_OK(cgr_request_set_other_length(e.rt, a, 1, 5));
  CGR_EXPECT_OK(cgr_test::Flush(e.rt, e.stream, &seq));
  EXPECT_EQ(seen(), 5);
  e.Close(a);
  EXPECT_EQ(e.Open(), a);
  e.Reserve(a, 0, 8);
  EXPECT_EQ(seen(), 0);
}

// The ring slot that carries lengths is corrupted before the device reads it: the step is lost, and everything is sent again.
TEST(LengthSetsLost, LengthsAreSentAgain) {
  const size_t bytes = size_t{ 1 } << 20;
  Options options = EncoderAndDecoder();
  options.pinned_bytes = bytes;
  Captured<SetsEngine> e(HostParam(CGR_SCHEDULE_LATEST), CGR_MODE_FULL, options, 11);
  const int32_t a = e.Open(), b = e.Open();
  e.Encode({ { a, 9 }, { b, 33 } });
  e.Reserve(a, 0, 16);
  e.Reserve(b, 0, 16);
  e.SetOther(a, 1, 14);
  CGR_ASSERT_OK(e.Prepare({ { a, 0 }, { b, 0 } }, 0));
  CGR_ASSERT_OK(cgr_step_launch(e.rt, &e.step, e.stream));
  int found = 0;
  for (size_t at = 0; at + sizeof(cgr__ring_slot_header) <= bytes; at += 64) {
    auto *header = reinterpret_cast<cgr__ring_slot_header *>(static_cast<unsigned char *>(e.rings) + at);
    if (header->seq == e.step.mark.seq && header->num_requests == 2 && header->num_changes > 0) {
      header->num_requests = -5;
      found++;
    }
  }
  ASSERT_EQ(found, 1);
  cgr_step_result result = CGR_STEP_RESULT_INIT;
  CGR_EXPECT(CGR_ERROR_STEP, cgr_step_wait(e.rt, e.step.mark, -1, &result));
  EXPECT_EQ(result.guard.error, int32_t(CGR_GUARD_COUNT));
  CGR_ASSERT_OK(e.Prepare({ { b, 0 }, { a, 0 } }, 0));
  CGR_ASSERT_OK(cgr_step_launch(e.rt, &e.step, e.stream));
  CGR_ASSERT_OK(cgr_step_wait(e.rt, e.step.mark, -1, nullptr));
  const std::vector<int64_t> lens = e.Buffer(CGR_BUFFER_SEQ_LENS, 1);
  EXPECT_EQ(lens[0], 33);
  EXPECT_EQ(lens[1], 14);
  e.SetOther(a, 1, 9);
  e.Decode({ { a, 2 }, { b, 1 } }); // and what was encoded is there
}

// On-demand buffers, read by a backend's and an engine's kernels: lengths before the step are of the set whose tokens it has.
TEST_P(LengthSets, BuffersOnDemandFollowTheStepsSet) {
  Options options = EncoderAndDecoder();
  options.adjust = [](cgr_config *config) {
    config->on_demand = CGR_ON_DEMAND(CGR_BUFFER_CONTEXT_LENS) | CGR_ON_DEMAND(CGR_BUFFER_KV_START_LOC) |
                        CGR_ON_DEMAND(CGR_BUFFER_KV_INDICES) | CGR_ON_DEMAND(CGR_BUFFER_BLOCK_TABLE);
  };
  for (cgr_graph_mode mode : { CGR_MODE_FULL, CGR_MODE_NONE }) {
    auto engine = Make(mode, options);
    SetsEngine &e = *engine;
    const int32_t a = e.Open(), b = e.Open();
    e.Encode({ { a, 40 }, { b, 7 } });
    e.Decode({ { a, 17 }, { b, 2 } });
    EXPECT_EQ(e.Buffer(CGR_BUFFER_CONTEXT_LENS)[0], 0);
    e.Encode({ { a, 3 }, { b, 8 } });
    std::vector<int64_t> context = e.Buffer(CGR_BUFFER_CONTEXT_LENS);
    EXPECT_EQ(context[0], 40);
    EXPECT_EQ(context[1], 7);
    EXPECT_EQ(e.Buffer(CGR_BUFFER_KV_START_LOC)[2], 19);
    EXPECT_EQ(e.Buffer(CGR_BUFFER_KV_START_LOC, 1)[2], 58);
    const std::vector<int32_t> &of_a = e.requests.at(a)->Of(1).pages, &of_b = e.requests.at(b)->Of(1).pages;
    std::vector<int64_t> indices = e.Buffer(CGR_BUFFER_KV_INDICES, 1), expected(of_a.begin(), of_a.end());
    expected.insert(expected.end(), of_b.begin(), of_b.end());
    indices.resize(expected.size());
    EXPECT_EQ(indices, expected);
    indices = e.Buffer(CGR_BUFFER_KV_INDICES);
    EXPECT_EQ(indices[0], e.requests.at(a)->pages[0]);
    EXPECT_EQ(indices[1], e.requests.at(a)->pages[1]);
    EXPECT_EQ(indices[2], e.requests.at(b)->pages[0]);
    EXPECT_EQ(e.Buffer(CGR_BUFFER_BLOCK_TABLE, 1)[1], of_a[1]);
  }
}

// ------------------------------------------------------------------------------------------------------------- refusals

TEST_P(LengthSets, LengthsThatCannotBeAreRefused) {
  auto engine = Make();
  SetsEngine &e = *engine;
  const int32_t a = e.Open(), page = 9;
  e.Reserve(a, 1, 64); // two pages of 32
  auto refused = [&](int32_t row, int32_t set, int32_t tokens, cgr_status status, const Words &words) {
    ExpectMessage(cgr_request_set_other_length(e.rt, row, set, tokens), status, words);
  };
  refused(a, 0, 3, CGR_ERROR_INVALID_ARGUMENT, { "set is 0", "1 .. 1", "cgr_request_set_length" });
  refused(a, 2, 3, CGR_ERROR_INVALID_ARGUMENT, { "set is 2", "1 .. 1" });
  refused(a, -1, 3, CGR_ERROR_INVALID_ARGUMENT, { "set is -1" });
  refused(a, 1, -1, CGR_ERROR_INVALID_ARGUMENT, { "num_tokens is -1" });
  refused(a, 1, sets::kMaxSeqLen + 1, CGR_ERROR_SEQUENCE_TOO_LONG, { "num_tokens is 129", "128", "max_other_lens[1]" });
  refused(a, 1, 65, CGR_ERROR_PAGES_MISSING, { "num_tokens is 65", "64", "row " + std::to_string(a), "group 1" });
  refused(a + 1, 1, 1, CGR_ERROR_ROW_CLOSED, { "row" });
  refused(99, 1, 1, CGR_ERROR_INVALID_ARGUMENT, { "row is 99" });
  CGR_EXPECT_OK(cgr_request_set_other_length(e.rt, a, 1, 64));
  // Its pages stay until it is less.
  auto drop = [&](int32_t first, int32_t count) { return cgr_request_drop_pages(e.rt, a, 1, first, count); };
  ExpectMessage(drop(1, 1), CGR_ERROR_STATE, { "64 tokens", "length set 1", "at most 32", "group 1" });
  ExpectMessage(drop(0, 1), CGR_ERROR_STATE, { "64 tokens", "at most 0" });
  CGR_EXPECT_OK(cgr_request_set_other_length(e.rt, a, 1, 32));
  CGR_EXPECT_OK(drop(1, 1));
  ExpectMessage(drop(0, 1), CGR_ERROR_STATE, { "32 tokens", "at most 0" });
  CGR_EXPECT_OK(cgr_request_set_other_length(e.rt, a, 1, 0));
  CGR_EXPECT_OK(drop(0, 1));
  // Pages of another set do not belong to the sequence, and vice versa.
  CGR_EXPECT(CGR_ERROR_PAGES_MISSING, e.Prepare({ { a, 1 } }, 0));
  CGR_EXPECT_OK(cgr_request_set_pages(e.rt, a, 0, 0, &page, 1));
  CGR_EXPECT_OK(e.Prepare({ { a, 1 } }, 0));
  CGR_EXPECT_OK(cgr_step_cancel(e.rt, &e.step));
  refused(a, 1, 1, CGR_ERROR_PAGES_MISSING, { "at most 0" });
  // All of its tokens are seen, so that its pages begin at the first.
  const int32_t late = 20;
  CGR_EXPECT_OK(cgr_request_set_pages(e.rt, a, 1, 1, &late, 1));
  refused(a, 1, 1, CGR_ERROR_PAGES_MISSING, { "at most 0" });
  // Of a runtime without other sets, and data that is not the engine's.
  const Options plain = OptionsOf({ { 16, 20 } }, { Layer(0, 0, Keys::kCache, false, 2, 1, 32) }, 1);
  auto other = Make(CGR_MODE_NONE, plain);
  ExpectMessage(cgr_request_set_other_length(other->rt, other->Open(), 1, 1), CGR_ERROR_INVALID_ARGUMENT,
                { "set is 1", "num_length_sets" });
  CGR_EXPECT(CGR_ERROR_INVALID_ARGUMENT, cgr_request_set_data(e.rt, a, 0, &page));
}

TEST_P(LengthSets, BatchesThatCannotBeAreRefusedAndChangeNothing) {
  auto engine = Make();
  SetsEngine &e = *engine;
  const int32_t a = e.Open(), b = e.Open();
  e.Encode({ { a, 6 } });
  e.Decode({ { a, 2 }, { b, 2 } });
  const int32_t rows[] = { a, b }, lens[] = { 2, 1 }, tokens[] = { 1, CGR_TOKEN_LAST, 3 }, first[] = { CGR_TOKEN_LAST, 1, 3 };
  cgr_batch batch = BatchOf(1, rows, nullptr, lens);
  batch.variant = 1;
  auto refused = [&](cgr_status status, const Words &words) {
    ExpectMessage(cgr_step_prepare(e.rt, &batch, &e.step), status, words);
  };
  refused(CGR_ERROR_NULL_POINTER, { "tokens is NULL", "2 tokens", "length set 1" });
  batch.tokens = tokens;
  refused(CGR_ERROR_INVALID_ARGUMENT, { "tokens[1] is -1", "token id", "length set 1" });
  batch.tokens = first;
  refused(CGR_ERROR_INVALID_ARGUMENT, { "tokens[0] is -1", "token id", "length set 1" });
  batch.variant = 2;
  refused(CGR_ERROR_INVALID_ARGUMENT, { "variant is 2" });
  CGR_EXPECT(CGR_ERROR_ROW_REPEATED, e.Prepare({ { a, 1 }, { a, 1 } }, 1));
  ExpectMessage(e.Prepare({ { a, 7 } }, 1), CGR_ERROR_INVALID_ARGUMENT,
                { "row " + std::to_string(a), "6 tokens in length set 1", "step's 7", "cgr_request_set_other_length" });
  ExpectMessage(e.Prepare({ { a, 1 }, { b, 1 } }, 1), CGR_ERROR_INVALID_ARGUMENT,
                { "row " + std::to_string(b), "0 tokens in length set 1", "step's 1" });
  cgr_key key = CGR_KEY_INIT; // of another set
  key.num_requests = key.num_tokens = 4;
  ExpectMessage(e.Prepare({ { a, 1 } }, 1, &key), CGR_ERROR_INVALID_ARGUMENT, { "forced_key.variant is 0" });
  e.Encode({ { a, 1 }, { b, 3 } });
  e.Decode({ { a, 1 }, { b, 1 } });
}

TEST_P(LengthSets, ConfigurationsThatCannotBeAreRefused) {
  SetsEngine e(GetParam(), CGR_MODE_FULL, EncoderAndDecoder(), 11);
  std::vector<cgr_group> groups;
  std::vector<cgr_layer> layers;
  std::vector<cgr_variant> variants;
  cgr_config config;
  auto refused = [&](const std::function<void()> &change, const Words &words) {
    config = e.Config();
    groups.assign(config.groups, config.groups + config.num_groups);
    layers.assign(config.layers, config.layers + config.num_layers);
    variants.assign(config.variants, config.variants + config.num_variants);
    variants.resize(3, cgr_variant{ 0, 0, 1, 0 });
    config.groups = groups.data(), config.layers = layers.data(), config.variants = variants.data();
    change();
    int32_t count = 0;
    cgr_finding finding;
    EXPECT_NE(cgr_validate(&config, e.dev, &finding, 1, &count), CGR_OK);
    ASSERT_EQ(count, 1) << finding.field << " " << finding.text;
    const std::string text = std::string(finding.field) + " " + finding.text;
    for (const std::string &word : words)
      EXPECT_NE(text.find(word), std::string::npos) << text << ": lacks " << word;
  };
  refused([&] { config.num_length_sets = 5; }, { "num_length_sets", "is 5", "1 .. 4" });
  refused([&] { config.num_length_sets = -1; }, { "num_length_sets", "is -1" });
  refused([&] { layers[0].length_set = 2; }, { "layers[0].length_set", "is 2", "0 .. 1", "num_length_sets is 2" });
  refused([&] { layers[0].length_set = -1; }, { "layers[0].length_set", "is -1", "0 .. 1" });
  refused([&] { groups[0].length_set = -3; }, { "groups[0].length_set", "is -3", "0 .. 1" });
  refused([&] { layers[1].length_set = 1, layers[1].flags = CGR_LAYER_BIDIRECTIONAL; },
          { "layers[1].length_set", "is 1", "expected 0 as in groups[0]" });
  refused([&] { layers[2].length_set = 0; }, { "layers[2].length_set", "is 0", "expected 1 as in groups[1]" });
  refused([&] { layers[4].length_set = 0; }, { "layers[4].length_set", "is 0", "expected 1 as in groups[1]" });
  refused([&] { layers[2].flags = 0; }, { "layers[2].flags", "CGR_LAYER_BIDIRECTIONAL", "length_set 1" });
  refused([&] { layers[4].window_left = 3; }, { "layers[4].window_left", "is 3", "length_set 1" });
  refused([&] { variants[0].length_set = 2; }, { "variants[0].length_set", "is 2", "0 .. 1", "num_length_sets is 2" });
  refused([&] { variants[1].length_set = 1, config.num_variants = 2; },
          { "variants[1].length_set", "is 1", "expected 0", "variant 0" });
  refused(
      [&] {
        variants[1] = { 8, 1, 1, 0 }, config.num_variants = 2;
      },
      { "variants[1].superset", "is 1", "length set 1", "one of 0" });
  // All places of buffers are taken.
  std::vector<cgr_buffer_decl> buffers;
  std::vector<std::string> names;
  for (int i = 0; i < 64; i++) {
    names.push_back("b" + std::to_string(i));
    buffers.push_back(CGR_BUFFER_DECL_INIT);
    buffers.back().dimension = CGR_DIMENSION_REQUESTS;
    buffers.back().dtype = CGR_DTYPE_I32;
  }
  for (int i = 0; i < 64; i++)
    buffers[size_t(i)].name = names[size_t(i)].c_str();
  refused([&] { config.buffers = buffers.data(), config.num_buffers = 64; },
          { "num_buffers", "is 64", "one less", "num_length_sets 2" });
}

CGR_INSTANTIATE_OVER_FEW_DEVICES(LengthSets);

} // namespace
} // namespace cgr_test
