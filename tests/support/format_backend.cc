#include "tests/support/format_backend.h"

#include <algorithm>
#include <cmath>

#include "tests/support/expect.h"

namespace cgr_test {

// ------------------------------------------------------------------------------------------------------------------ sizing

// Every key that a runtime of this configuration can have, and eager steps.
std::vector<cgr_plan_key> FormatBackend::Keys(const cgr_config &config) const {
  std::vector<cgr_plan_key> keys;
  auto add = [&](int32_t kind, int32_t requests, int32_t tokens, int32_t query_len) {
    cgr_plan_key key = CGR_PLAN_KEY_INIT;
    key.kind = kind;
    key.num_requests = requests;
    key.num_tokens = tokens;
    key.query_len = query_len;
    keys.push_back(key);
  };
  const int32_t one = 1;
  const int32_t *query_lens = config.num_query_lens > 0 ? config.query_lens : &one;
  for (int32_t q = 0; q < std::max(config.num_query_lens, 1); q++)
    for (int32_t b = 0; b < config.num_decode_buckets; b++)
      add(CGR_KIND_FULL, config.decode_buckets[b], config.decode_buckets[b] * query_lens[q], query_lens[q]);
  for (int32_t b = 0; b < config.num_mixed_buckets; b++)
    add(CGR_KIND_FULL, config.mixed_buckets[b].num_requests, config.mixed_buckets[b].num_tokens, 0);
  add(CGR_KIND_NONE, config.max_requests, config.max_tokens, 0);
  return keys;
}

FormatBackend::FormatBackend(const FormatOptions &options, const cgr_config &config, bool on_cuda)
    : o_(options), on_cuda_(on_cuda), layer_(config.layers[0]), page_size_(config.groups[0].page_size),
      max_seq_len_(config.max_seq_len), num_pages_(int32_t(config.groups[0].num_pages)) {
  if (config.groups[0].kernel_page_size > 0) {
    pages_each_ = page_size_ / config.groups[0].kernel_page_size;
    page_size_ /= pages_each_, num_pages_ *= pages_each_;
  }
  for (const cgr_plan_key &key : Keys(config)) {
    State state;
    CGR_EXPECT_OK(MakeState(key, &state));
    plan_room = std::max(plan_room, (state.plan_bytes + 255) / 256 * 256);
    most_plan_bytes = std::max(most_plan_bytes, state.plan_bytes);
    partial_bytes_ = std::max(partial_bytes_, PartialBytes(state.num_partials));
  }
}

cgr_status FormatBackend::MakeFa3(State *s) const {
  cgr_fa3_input in = CGR_FA3_INPUT_INIT;
  in.layout = o_.layout;
  in.num_requests = s->key.num_requests;
  in.num_tokens = s->key.num_tokens;
  in.num_q_heads = layer_.num_q_heads;
  in.num_kv_heads = layer_.num_kv_heads;
  in.head_dim = layer_.head_dim;
  in.dtype = CGR_DTYPE_BF16;
  in.page_size = page_size_;
  in.max_query_len = QueryLen(s->key);
  in.max_seq_len = max_seq_len_;
  in.causal = 1;
  in.num_splits = o_.num_splits;
  in.num_multiprocessors = o_.num_multiprocessors;
  in.tile_m = o_.tile_m;
  in.tile_n = o_.tile_n;
  s->fa3 = in;
  s->fa3_sizes = CGR_FA3_SIZES_INIT;
  cgr_status status = cgr_fa3_size(&in, &s->fa3_sizes);
  s->plan_bytes = s->fa3_sizes.metadata_bytes;
  s->num_partials = int64_t(s->fa3_sizes.num_splits) * in.num_tokens;
  s->num_ctas = 3; // persistent ones: any number will do
  return status;
}

cgr_status FormatBackend::MakeFlashMla(State *s) const {
  cgr_flashmla_input in = CGR_FLASHMLA_INPUT_INIT;
  in.layout = o_.layout;
  in.num_requests = s->key.num_requests;
  in.num_parts = o_.num_parts;
  in.num_multiprocessors = o_.num_multiprocessors;
  in.compute_capability = 90;
  in.query_len = QueryLen(s->key);
  in.num_q_heads = layer_.num_q_heads;
  in.num_kv_heads = layer_.num_kv_heads;
  in.qk_head_dim = 576;
  in.block_size = o_.block_size;
  s->flashmla = in;
  size_t bytes = 0;
  cgr_status status = cgr_flashmla_size(&in, &s->num_parts, &bytes);
  s->plan_bytes = bytes;
  s->num_partials = int64_t(in.num_requests + s->num_parts) * in.query_len;
  s->num_ctas = s->num_parts;
  return status;
}

// Steps of one token per request use the decode kernels' plan, if that is the format; all others use the prefill kernels' plan.
cgr_status FormatBackend::MakeFlashInfer(State *s) const {
  s->flashinfer = CGR_FLASHINFER_PLAN_INIT;
  s->format =
      o_.format == Format::kFlashInferDecode && s->key.query_len == 1 ? Format::kFlashInferDecode : Format::kFlashInferPrefill;
  cgr_status status;
  if (s->format == Format::kFlashInferDecode) {
    cgr_flashinfer_decode_input in = CGR_FLASHINFER_DECODE_INPUT_INIT;
    in.num_requests = s->key.num_requests;
    in.num_q_heads = layer_.num_q_heads;
    in.num_kv_heads = layer_.num_kv_heads;
    in.head_dim = layer_.head_dim;
    in.page_size = page_size_;
    in.num_multiprocessors = o_.num_multiprocessors;
    in.blocks_per_multiprocessor = 1;
    in.graph = 1;
    s->decode = in;
    status = cgr_flashinfer_decode_size(&in, &s->flashinfer);
    s->num_partials = s->flashinfer.info[0];
  } else {
    cgr_flashinfer_prefill_input in = CGR_FLASHINFER_PREFILL_INPUT_INIT;
    in.num_requests = s->key.num_requests;
    in.total_num_rows = std::max(s->key.num_tokens, s->key.num_requests); // at most; some requests may have none
    in.num_q_heads = layer_.num_q_heads;
    in.num_kv_heads = layer_.num_kv_heads;
    in.head_dim_qk = in.head_dim_vo = layer_.head_dim;
    in.page_size = page_size_;
    in.fixed_split_size = o_.fixed_split_size;
    in.disable_split_kv = o_.disable_split_kv;
    in.force_split_kv = o_.fixed_split_size > 0;
    in.num_multiprocessors = o_.num_multiprocessors;
    in.graph = 1;
    in.layout = o_.layout;
    s->prefill = in;
    // The arrays say that the batch is not uniform; the device's arrays follow once there is a device.
    static const int32_t no_array = 0;
    in.qo_indptr = &no_array;
    status = cgr_flashinfer_prefill_size(&in, &s->flashinfer);
    s->num_partials = int64_t(s->flashinfer.float_bytes - uint64_t(s->flashinfer.info[11])) / 4 / layer_.num_q_heads; // of s
  }
  s->plan_bytes = s->flashinfer.int_bytes;
  s->num_ctas = int32_t(s->flashinfer.info[0]);
  return status;
}

cgr_status FormatBackend::MakeState(const cgr_plan_key &key, State *state) const {
  *state = {};
  state->key = key;
  state->format = o_.format;
  switch (o_.format) {
  case Format::kFa3:
    return MakeFa3(state);
  case Format::kFlashMla:
    return MakeFlashMla(state);
  default:
    return MakeFlashInfer(state);
  }
}

// ----------------------------------------------------------------------------------------------------------------- backend

cgr_backend FormatBackend::backend() {
  cgr_backend b = CGR_BACKEND_INIT;
  b.name = o_.name.c_str();
  b.context = this;
  b.support = [](void *self, const cgr_device_info *, const cgr_group *) {
    return static_cast<FormatBackend *>(self)->support();
  };
  b.record = [](void *self, cgr_recorder *recorder, const cgr_attention *attention) {
    return static_cast<FormatBackend *>(self)->Record(recorder, attention);
  };
  const bool flashinfer = o_.format == Format::kFlashInferDecode || o_.format == Format::kFlashInferPrefill;
  b.on_demand = CGR_ON_DEMAND(flashinfer ? CGR_BUFFER_KV_INDICES : CGR_BUFFER_BLOCK_TABLE);
  b.workspace_bytes = workspace_bytes();
  b.create = [](void *raw, const cgr_plan_key *key, void **state) {
    auto *self = static_cast<FormatBackend *>(raw);
    auto *made = new State;
    cgr_status status = self->MakeState(*key, made);
    if (status != CGR_OK) {
      delete made;
      return status;
    }
    self->workspace = key->workspace;
    self->num_created++;
    self->states.insert(made);
    *state = made;
    return CGR_OK;
  };
  b.destroy = [](void *self, void *state) {
    EXPECT_EQ(static_cast<FormatBackend *>(self)->states.erase(state), 1u);
    delete static_cast<State *>(state);
  };
  b.plan = [](void *self, void *state, cgr_recorder *recorder, uint32_t, int32_t) {
    return static_cast<FormatBackend *>(self)->Plan(static_cast<State *>(state), recorder);
  };
  return b;
}

void FormatBackend::Bind(const cgr_layer *layers, int32_t *words) {
  layers_ = layers;
  words_ = words;
}

namespace {
const int32_t *BufferOf(cgr_recorder *recorder, cgr_buffer buffer, int64_t *stride = nullptr) {
  cgr_buffer_view view = CGR_BUFFER_VIEW_INIT;
  CGR_EXPECT_OK(cgr_record_buffer(recorder, buffer, 0, &view));
  if (stride != nullptr)
    *stride = view.stride;
  return static_cast<const int32_t *>(view.data);
}
} // namespace

cgr_status FormatBackend::Plan(State *s, cgr_recorder *recorder) {
  const cgr_record_info info = InfoOf(recorder);
  const int32_t *live = BufferOf(recorder, CGR_BUFFER_COUNTS) + CGR_COUNT_REQUESTS;
  const int32_t *starts = BufferOf(recorder, CGR_BUFFER_QUERY_START_LOC), *lens = BufferOf(recorder, CGR_BUFFER_SEQ_LENS);
  const int32_t *pages = BufferOf(recorder, CGR_BUFFER_KV_INDPTR);
  cgr_device *device = s->key.device;
  num_plans++;
  if (s->key.kind == CGR_KIND_NONE) { // an eager step has its own counts
    cgr_plan_key own = s->key;
    own.num_requests = info.num_requests;
    own.num_tokens = info.num_tokens;
    CGR_EXPECT_OK(MakeState(own, s));
    EXPECT_LE(PartialBytes(s->num_partials), partial_bytes_);
  }
  switch (s->format) {
  case Format::kFa3:
    s->fa3.query_start_loc = starts;
    s->fa3.seq_lens = lens;
    s->fa3.live_requests = live;
    return cgr_fa3_enqueue(device, &s->fa3, workspace, plan_room, info.stream);
  case Format::kFlashMla:
    s->flashmla.seq_lens = lens;
    s->flashmla.live_requests = live;
    return cgr_flashmla_enqueue(device, &s->flashmla, workspace, plan_room, info.stream);
  case Format::kFlashInferDecode:
    s->decode.kv_indptr = pages;
    s->decode.live_requests = live;
    s->decode.status = words_;
    return cgr_flashinfer_decode_enqueue(device, &s->decode, workspace, plan_room, info.stream);
  default:
    s->prefill.qo_indptr = starts;
    s->prefill.kv_indptr = pages;
    s->prefill.live_requests = live;
    s->prefill.status = words_;
    return cgr_flashinfer_prefill_enqueue(device, &s->prefill, workspace, plan_room, info.stream);
  }
}

cgr_status FormatBackend::Record(cgr_recorder *recorder, const cgr_attention *attention) {
  const cgr_record_info info = InfoOf(recorder);
  State *s = static_cast<State *>(info.plan_state);
  const cgr_layer &layer = layers_[attention->layer];
  FormatAttention a = {};
  a.format = s->format;
  a.num_ctas = s->num_ctas;
  a.num_requests = s->key.num_requests;
  a.num_tokens = info.num_tokens;
  a.num_q_heads = layer.num_q_heads;
  a.num_kv_heads = layer.num_kv_heads;
  a.head_dim = layer.head_dim;
  a.page_size = page_size_;
  a.num_pages = num_pages_;
  a.scale = layer.scale > 0.0f ? double{ layer.scale } : 1.0 / std::sqrt(double(layer.head_dim));
  a.q = attention->q;
  a.out = attention->out;
  a.lse = attention->lse;
  a.k = layer.k;
  a.v = layer.v;
  a.k.stride_page /= pages_each_, a.v.stride_page /= pages_each_;
  a.query_start_loc = BufferOf(recorder, CGR_BUFFER_QUERY_START_LOC);
  a.seq_lens = BufferOf(recorder, CGR_BUFFER_SEQ_LENS);
  if (s->format == Format::kFa3 || s->format == Format::kFlashMla) {
    a.block_table = BufferOf(recorder, CGR_BUFFER_BLOCK_TABLE, &a.block_table_stride);
  } else {
    a.kv_indices = BufferOf(recorder, CGR_BUFFER_KV_INDICES);
    a.kv_indptr = BufferOf(recorder, CGR_BUFFER_KV_INDPTR);
    a.kv_last_page_len = BufferOf(recorder, CGR_BUFFER_KV_LAST_PAGE_LEN);
  }
  a.words = static_cast<unsigned char *>(workspace);
  a.num_partials = s->num_partials;
  a.partial_out = reinterpret_cast<double *>(a.words + plan_room);
  a.partial_lse = a.partial_out + a.num_partials * a.num_q_heads * a.head_dim;
  a.errors = words_ + 1;
  a.fa3 = s->fa3_sizes;
  a.flashmla = { o_.layout, s->num_parts, o_.block_size, s->flashmla.query_len };
  a.flashinfer = s->flashinfer;
  a.flashinfer_layout = o_.layout;
  num_recorded++;
  return EnqueueFormat(info.plan_key->device, on_cuda_, a, info.stream);
}

} // namespace cgr_test
