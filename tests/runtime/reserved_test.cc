// What is reserved for later versions is refused by name until then.
#include "tests/support/refused.h"

namespace cgr_test {
namespace {

class Reserved : public ThreeRequests {};

TEST_P(Reserved, FieldsOfABatch) {
  struct Field {
    const char *name;
    void (*set)(cgr_batch *batch);
  };
  for (const Field &field :
       { Field{ "lane is 1", [](cgr_batch *b) { b->lane = 1; } }, Field{ "lane is -1", [](cgr_batch *b) { b->lane = -1; } },
         Field{ "program is 2", [](cgr_batch *b) { b->program = 2; } },
         Field{ "common_prefix is 16", [](cgr_batch *b) { b->common_prefix = 16; } },
         Field{ "max_steps is 4", [](cgr_batch *b) { b->max_steps = 4; } } }) {
    SCOPED_TRACE(field.name);
    cgr_batch batch = GoodBatch();
    field.set(&batch);
    BatchRefused(CGR_ERROR_UNSUPPORTED, { "batch", field.name }, batch);
  }
}

TEST_P(Reserved, DraftTokens) {
  cgr_batch batch = GoodBatch();
  std::vector<int32_t> tokens = { 4, 5, 6 };
  batch.tokens = tokens.data();
  for (size_t i = 0; i < 3; i++)
    for (int32_t draft : { -2, -3, INT32_MIN }) {
      tokens = { 4, 5, 6 };
      tokens[i] = draft;
      BatchRefused(CGR_ERROR_UNSUPPORTED, { "tokens[" + std::to_string(i) + "] is " + std::to_string(draft), "draft" }, batch);
    }
}

// Also in a batch that repeats the last one, which is not looked at as closely.
TEST_P(Reserved, DraftTokensInARepeatedBatch) {
  for (int n = 0; n < 3; n++)
    engine_->Step(engine_->Decode(rows_));
  std::vector<Item> items = engine_->Decode(rows_);
  items[1].tokens = { -2 };
  ItemsRefused(CGR_ERROR_UNSUPPORTED, { "tokens[1] is -2" }, items);
}

TEST_P(Reserved, FieldsOfACapture) {
  struct Field {
    const char *name;
    void (*set)(cgr_capture *capture);
  };
  engine_->records.clear();
  for (const Field &field : { Field{ "program is 1", [](cgr_capture *c) { c->program = 1; } } }) {
    cgr_capture capture = engine_->CaptureStruct();
    capture.engine = nullptr; // must not replace the one that eager steps use
    field.set(&capture);
    std::string name = std::string("capture.") + field.name;
    Refused(CGR_ERROR_UNSUPPORTED, { "cgr_runtime_capture", name }, [&] { return cgr_runtime_capture(engine_->rt, &capture); });
    Refused(CGR_ERROR_UNSUPPORTED, { "cgr_runtime_warmup", name }, [&] { return cgr_runtime_warmup(engine_->rt, &capture); });
  }
  EXPECT_TRUE(engine_->records.empty());
  engine_->Step(EagerItems());
}

TEST_P(Reserved, ScalesOfAnAttentionCall) {
  float scale = 1.0f;
  struct Field {
    const char *name;
    std::function<void(cgr_attention *)> set;
  };
  for (const Field &field : { Field{ "q_scale", [&](cgr_attention *a) { a->q_scale = &scale; } },
                              Field{ "out_scale", [&](cgr_attention *a) { a->out_scale = &scale; } } }) {
    engine_->hook = [&](cgr_recorder *recorder, const cgr_record_info &, int32_t at) {
      cgr_attention attention = engine_->state.call[0].attention;
      field.set(&attention);
      if (at == 0)
        ExpectMessage(cgr_record_attention(recorder, &attention), CGR_ERROR_UNSUPPORTED, { field.name });
      return CGR_OK;
    };
    CGR_ASSERT_OK(engine_->Prepare(EagerItems()));
    ExpectMessage(engine_->Launch(), CGR_ERROR_CALLBACK, { field.name });
    engine_->hook = nullptr;
  }
}

CGR_INSTANTIATE_OVER_FEW_DEVICES(Reserved);

} // namespace
} // namespace cgr_test
