#include "tests/support/engine_record.h"

#include <cstring>

#include "kernels/reference/reference.h"

namespace cgr_test {

int &OverwrittenRecords() {
  static int count = 0;
  return count;
}

// ------------------------------------------------------------------------------------------------------------ host functions

void FillInput(const RecordLayer &layer, Tensor which, int32_t count, const std::function<Entry(int32_t)> &entry, void *to) {
  const cgr_view &view = layer.in[which];
  size_t element = cgr_dtype_size(cgr_dtype(layer.dtype));
  std::memset(to, 0xff, layer.in_bytes[which]);
  for (int32_t t = 0; t < count; t++) {
    Entry named = entry(t);
    for (int32_t h = 0; h < layer.heads[which]; h++) {
      size_t at = size_t(t * view.stride_token + h * view.stride_head) * element;
      StoreHead(layer.dtype, layer.values, which, named, h, layer.dim[which], static_cast<unsigned char *>(to) + at);
    }
  }
}

namespace {

struct InputArgs {
  const int32_t *input_ids, *positions;
  int32_t num_tokens, reserved;
  RecordLayer layer;
};

// "Kernel" of Feed::kTokens: q, k and v of a layer.
void MakeInputs(const void *raw) {
  const InputArgs &a = *static_cast<const InputArgs *>(raw);
  for (Tensor which : kTensors)
    FillInput(
        a.layer, which, a.num_tokens,
        [&a](int32_t t) {
          return Entry{ a.input_ids[t], a.positions[t] };
        },
        a.layer.in[which].data);
}

struct PoisonArgs {
  void *out, *lse;
  size_t out_bytes, lse_bytes;
};

// Runs before a call, so that a test sees every byte that the call writes.
void PoisonOutputs(const void *raw) {
  const PoisonArgs &a = *static_cast<const PoisonArgs *>(raw);
  std::memset(a.out, 0xff, a.out_bytes);
  if (a.lse_bytes > 0)
    std::memset(a.lse, 0xff, a.lse_bytes);
}

PoisonArgs PoisonOf(const RecordCall &call) {
  return { call.attention.out.data, call.attention.lse.data, call.out_bytes, call.lse_bytes };
}

struct SamplerCall {
  cgr_view out;
  int32_t number, heads, head_dim, reserved; // no padding: what a graph holds is compared byte by byte
};
struct SamplerArgs {
  SamplerCall call[kMaxCalls];
  const int32_t *logits_indices;
  int32_t *next_tokens;
  int32_t num_requests, num_calls;
};

double ScoreOf(const SamplerArgs &a, int32_t request, int32_t token) {
  double score = 0.0;
  for (int32_t c = 0; c < a.num_calls; c++) {
    const SamplerCall &call = a.call[c];
    size_t element = cgr_dtype_size(cgr_dtype(call.out.dtype));
    for (int32_t e = 0; e < call.heads * call.head_dim; e++) {
      int64_t at =
          a.logits_indices[request] * call.out.stride_token + e / call.head_dim * call.out.stride_head + e % call.head_dim;
      const unsigned char *from = static_cast<const unsigned char *>(call.out.data) + size_t(at) * element;
      score += cgr__reference_load(call.out.dtype, from) * WeightOf(token, call.number, e);
    }
  }
  return score;
}

void Sample(const void *raw) {
  const SamplerArgs &a = *static_cast<const SamplerArgs *>(raw);
  for (int32_t i = 0; i < a.num_requests; i++) {
    double best = 0.0;
    int32_t token = -1;
    for (int32_t candidate = 0; candidate < kVocabulary; candidate++) {
      double score = ScoreOf(a, i, candidate);
      if (token < 0 || score > best)
        best = score, token = candidate;
    }
    a.next_tokens[i] = token;
  }
}

struct NodeArgs {
  const RecordState *state;
};

// The first node of Feed::kNodes: inputs for the largest number of tokens.
void MakeNextInputs(const void *raw) {
  const RecordState &s = *static_cast<const NodeArgs *>(raw)->state;
  int32_t upload = s.recording->Next();
  for (int32_t l = 0; l < s.num_layers; l++)
    for (Tensor which : kTensors)
      FillInput(
          s.layer[l], which, s.max_tokens,
          [upload](int32_t t) {
            return Entry{ upload, t };
          },
          s.layer[l].in[which].data);
  for (int32_t c = 0; c < s.num_calls; c++) {
    PoisonArgs poison = PoisonOf(s.call[c]);
    PoisonOutputs(&poison);
  }
}

// The last one: keeps what the calls have written.
void KeepOutputs(const void *raw) {
  const RecordState &s = *static_cast<const NodeArgs *>(raw)->state;
  std::vector<Outputs> kept;
  for (int32_t c = 0; c < s.num_calls; c++) {
    const RecordCall &call = s.call[c];
    const unsigned char *out = static_cast<const unsigned char *>(call.attention.out.data);
    const float *lse = static_cast<const float *>(call.attention.lse.data);
    kept.push_back({ { out, out + call.out_bytes }, { lse, lse + call.lse_bytes / 4 } });
  }
  s.recording->Keep(std::move(kept));
}

// -------------------------------------------------------------------------------------------------------------------- record

// Enqueues one thing after another until the state says that `record` fails.
class Enqueuer {
public:
  Enqueuer(cgr_recorder *recorder, const RecordState &state, const cgr_record_info &info)
      : recorder_(recorder), s_(state), info_(info) {}

  bool Good() const { return status_ == CGR_OK; }
  cgr_status status() const { return status_; }
  // Whether the next thing may be enqueued.
  bool Next() {
    if (Good() && *s_.hook)
      Take((*s_.hook)(recorder_, info_, count_));
    if (Good() && count_ == s_.fail_after)
      status_ = s_.fail_status;
    count_++;
    return Good();
  }
  void Take(cgr_status status) { status_ = Good() ? status : status_; }
  template <class Args> void Host(cgr_host_function function, const Args &args) {
    if (Next())
      Take(cgr_launch_host(s_.device, function, &args, sizeof args, info_.stream));
  }
  void Attend(const cgr_attention &attention) {
    if (Next())
      Take(cgr_record_attention(recorder_, &attention));
  }
  void CopyInputs(const RecordLayer &layer) {
    for (Tensor which : kTensors)
      if (layer.given[which] != nullptr && info_.num_tokens > 0 && Next())
        Take(cgr_copy(s_.device, layer.in[which].data, layer.given[which],
                      layer.in_bytes[which] / size_t(s_.max_tokens) * size_t(info_.num_tokens), info_.stream));
  }
  // Those of a set have numbers of their own.
  void CopyTokens(int32_t set) {
    if (s_.samples && info_.num_requests > 0 && Next())
      Take(cgr_copy(s_.device, s_.next_tokens, s_.token_table + set * s_.max_requests, size_t(info_.num_requests) * 4,
                    info_.stream));
  }

private:
  cgr_recorder *recorder_;
  const RecordState &s_;
  const cgr_record_info &info_;
  int32_t count_ = 0;
  cgr_status status_ = CGR_OK;
};

bool Computes(const cgr_attention &attention) { return !(attention.flags & CGR_ATTENTION_APPEND_ONLY); }

void EnqueueTokens(const RecordState &s, const cgr_record_info &info, Enqueuer *enqueue) {
  SamplerArgs sampler = {};
  for (int32_t l = 0; l < s.num_layers; l++)
    enqueue->Host(MakeInputs, InputArgs{ s.input_ids, s.positions, info.num_tokens, 0, s.layer[l] });
  for (int32_t c = 0; c < s.num_calls; c++) {
    const RecordLayer &layer = s.layer[s.call[c].attention.layer];
    if (s.call[c].out_bytes > 0)
      enqueue->Host(PoisonOutputs, PoisonOf(s.call[c]));
    enqueue->Attend(s.call[c].attention);
    if (Computes(s.call[c].attention))
      sampler.call[sampler.num_calls++] = { s.call[c].attention.out, c, layer.heads[kQ], layer.dim[kV], 0 };
  }
  sampler.logits_indices = s.logits_indices;
  sampler.next_tokens = s.next_tokens;
  sampler.num_requests = info.num_requests;
  enqueue->Host(Sample, sampler);
}

void EnqueueCall(const RecordState &s, int32_t c, int32_t set, Enqueuer *enqueue) {
  cgr_attention call;
  if (!CallInSet(s, c, set, &call))
    return;
  enqueue->CopyInputs(s.layer[call.layer]);
  if (*s.adjust_call)
    (*s.adjust_call)(size_t(c), &call);
  if (call.layer >= 0)
    enqueue->Attend(call);
}

void EnqueueAll(const RecordState &s, const cgr_record_info &info, Enqueuer *enqueue) {
  if (s.feed == Feed::kTokens) {
    EnqueueTokens(s, info, enqueue);
  } else {
    const int32_t set = s.num_sets > 1 ? int32_t(info.key.variant) : 0;
    if (s.feed == Feed::kNodes)
      enqueue->Host(MakeNextInputs, NodeArgs{ &s });
    for (int32_t c = 0; c < s.num_calls; c++)
      EnqueueCall(s, c, set, enqueue);
    enqueue->CopyTokens(set);
    if (s.feed == Feed::kNodes)
      enqueue->Host(KeepOutputs, NodeArgs{ &s });
  }
  enqueue->Next(); // `record` may still fail at its very end
}

} // namespace

bool CallInSet(const RecordState &state, int32_t c, int32_t set, cgr_attention *call) {
  *call = state.call[c].attention;
  const RecordLayer &layer = state.layer[call->layer];
  if (layer.set != set) {
    call->k = call->v = {}; // an encoder's keys are not this step's
    return set == 0 && layer.has_cache;
  }
  if (set > 0 && layer.has_cache && !layer.attends) {
    call->flags |= CGR_ATTENTION_APPEND_ONLY;
    return layer.has_own_cache;
  }
  return true;
}

cgr_status Record(cgr_recorder *recorder, void *engine) {
  const RecordState &s = *static_cast<const RecordState *>(engine);
  if (s.magic != kRecordMagic) {
    OverwrittenRecords()++;
    return CGR_ERROR_CALLBACK;
  }
  cgr_record_info info = CGR_RECORD_INFO_INIT;
  cgr_status status = cgr_record_get_info(recorder, &info);
  if (status != CGR_OK)
    return status;
  s.records->push_back(info);
  Enqueuer enqueue(recorder, s, info);
  EnqueueAll(s, info, &enqueue);
  return enqueue.status();
}

} // namespace cgr_test
