// The expected effects of a step: its result, what it writes, its outputs.
#include "tests/support/engine.h"

#include <cmath>

#include "cgr/names.h"
#include "tests/support/oracle.h"

namespace cgr_test {

// --------------------------------------------------------------------------------------------------------------------- pages

// What the guards refuse in an engine's own table.
bool Engine::IsBad(int32_t page, size_t group) const {
  return page < 0 || page >= o.groups[group].num_pages || page == o.groups[group].write_trash;
}

int32_t Engine::FirstSeen(int32_t computed, size_t group) const {
  int32_t first = computed;
  for (const LayerOptions &l : o.layers) {
    if (l.group != int32_t(group) || !l.HasCache())
      continue;
    int32_t in_window = l.kind.window_left > 0 ? std::max(computed + 1 - l.kind.window_left, 0) : 0;
    int32_t in_chunk = l.kind.chunk > 0 ? computed / l.kind.chunk * l.kind.chunk : 0;
    first = std::min(first, std::max(in_window, in_chunk));
  }
  return first;
}

bool Engine::Appends(int32_t layer) const {
  bool appends = false;
  for (const CallOptions &call : o.calls)
    appends = appends || (call.layer == layer && !(call.flags & CGR_ATTENTION_NO_APPEND));
  return appends && o.layers[size_t(layer)].HasOwnCache();
}

// The tokens of one request, of which the first is the step's token `first`: their entries, and what the layers append.
void Engine::ApplyTokens(InFlight *p, InFlight::Taken *taken, int32_t first) {
  Request &r = *taken->request;
  for (size_t j = 0; j < taken->item.tokens.size(); j++) {
    int32_t token = taken->item.tokens[j] == CGR_TOKEN_LAST ? r.last : taken->item.tokens[j];
    int32_t position = taken->start + int32_t(j);
    const Entry entry = o.feed == Feed::kTokens ? Entry{ token, position } : Entry{ p->number, first + int32_t(j) };
    taken->asked.push_back(entry);
    for (int32_t l = 0; l < state.num_layers; l++) {
      const size_t g = size_t(o.layers[size_t(l)].group);
      if (!Appends(l) || state.layer[l].set != p->set)
        continue;
      const int32_t size = o.groups[g].page_size, page = taken->pages[g][size_t(position / size)];
      if (!IsBad(page, g))
        all_caches[g].Append(l, state.layer[l].values, page, position % size, entry);
    }
  }
  std::vector<Entry> &cache = p->set == 0 ? r.cache : r.other_cache[size_t(p->set)];
  const size_t end = size_t(taken->start) + taken->asked.size();
  cache.resize(p->set == 0 ? end : std::max(cache.size(), end));
  std::copy(taken->asked.begin(), taken->asked.end(), cache.begin() + taken->start);
}

// The last page of an engine's own table that the guards refuse.
void Engine::FindBadPage(InFlight *p, const InFlight::Taken &taken) const {
  const int32_t tokens = taken.start + int32_t(taken.item.tokens.size());
  for (size_t g = 0; g < o.groups.size() && !taken.item.tokens.empty(); g++) {
    const int32_t size = o.groups[g].page_size;
    for (int32_t i = FirstSeen(taken.start, g) / size; i < (tokens + size - 1) / size && tables[g] != nullptr; i++)
      if (IsBad(taken.pages[g][size_t(i)], g))
        p->guard = { CGR_GUARD_PAGE, taken.item.row, i, 0, taken.pages[g][size_t(i)] };
  }
}

// The model takes the step's tokens.
void Engine::Apply(InFlight *p) {
  int32_t t = 0;
  for (InFlight::Taken &taken : p->items) {
    Request &r = *taken.request;
    ApplyTokens(p, &taken, t);
    t += int32_t(taken.item.tokens.size());
    taken.cache = r.cache;
    for (size_t i = 0; i < r.cache.size() && !tables.empty() && tables[0] != nullptr; i++)
      if (IsBad(taken.pages[0][i / size_t(o.groups[0].page_size)])) // the guards read the trash page instead
        taken.cache[i] = Entry{};
    for (int32_t set = 1; set < o.num_sets; set++) {
      const std::vector<Entry> &has = r.other_cache[size_t(set)];
      ASSERT_GE(has.size(), size_t(taken.lengths[size_t(set)])) << "no step has given all tokens of set " << set;
      taken.others[size_t(set)].assign(has.begin(), has.begin() + taken.lengths[size_t(set)]);
    }
    FindBadPage(p, taken);
  }
}

// What the queries of a layer see.
const std::vector<Entry> &Engine::KeysOf(const InFlight::Taken &taken, int32_t layer) const {
  const RecordLayer &of = state.layer[layer];
  return !of.has_cache ? taken.asked : of.set > 0 ? taken.others[size_t(of.set)] : taken.cache;
}

// --------------------------------------------------------------------------------------------------------------------- result

void Engine::ExpectResult(const InFlight &p, const cgr_step_result &result) {
  ASSERT_EQ(result.mark.seq, p.step.mark.seq);
  ASSERT_EQ(result.num_requests, int32_t(p.items.size()));
  EXPECT_EQ(result.num_steps, 1);
  EXPECT_EQ(result.token_stride, 1);
  EXPECT_EQ(result.mark.lane, 0);
  EXPECT_EQ(result.program, 0);
  EXPECT_EQ(std::string(cgr_guard_error_name(cgr_guard_error(result.guard.error))),
            cgr_guard_error_name(cgr_guard_error(p.guard.error)));
  EXPECT_EQ(result.guard.row, p.guard.row);
  EXPECT_EQ(result.guard.index, p.guard.index);
  EXPECT_EQ(result.guard.value, p.guard.value);
  for (size_t i = 0; i < p.items.size(); i++) {
    const Item &item = p.items[i].item;
    ASSERT_EQ(result.rows[i], item.row) << "request " << i;
    ASSERT_EQ(result.tags[i], p.items[i].tag) << "request " << i;
    ASSERT_EQ(result.num_tokens[i], item.tokens.empty() || item.partial || p.set > 0 ? 0 : 1) << "request " << i;
  }
}

// `token` must have the best score, or one that rounding cannot distinguish from it.
void Engine::ExpectSampled(const InFlight::Taken &taken, int32_t token) {
  const std::vector<Entry> &cache = taken.request->cache;
  std::vector<double> scores(kVocabulary, 0.0);
  ASSERT_GE(token, 0);
  ASSERT_LT(token, int32_t(kVocabulary));
  for (int32_t c = 0; c < state.num_calls; c++) {
    if (o.calls[size_t(c)].flags & CGR_ATTENTION_APPEND_ONLY)
      continue;
    Values out = SolveAttention(ProblemOf(o.calls[size_t(c)].layer, cache, { cache.back() })).out;
    for (int32_t candidate = 0; candidate < kVocabulary; candidate++)
      for (size_t e = 0; e < out.size(); e++)
        scores[size_t(candidate)] += out[e] * WeightOf(candidate, c, int32_t(e));
  }
  auto best = std::max_element(scores.begin(), scores.end());
  double tolerance = o.dtype == CGR_DTYPE_FP32 ? 1e-4 : 0.05;
  ASSERT_GE(scores[size_t(token)], *best - tolerance) << "row " << taken.item.row << ", " << cache.size() << " tokens: sampled "
                                                      << token << ", expected " << best - scores.begin();
}

void Engine::ExpectTokens(const InFlight &p, const cgr_step_result &result) {
  for (size_t i = 0; i < p.items.size(); i++) {
    const InFlight::Taken &taken = p.items[i];
    int32_t token = result.tokens[i * size_t(result.token_stride)];
    if (result.num_tokens[i] == 0)
      continue;
    if (o.feed != Feed::kTokens) {
      ASSERT_EQ(token, kFixedToken + int32_t(i)) << "row " << taken.item.row;
    } else if (p.guard.error == CGR_GUARD_NONE) {
      ASSERT_NO_FATAL_FAILURE(ExpectSampled(taken, token));
    }
    taken.request->sampled.push_back(token);
    taken.request->last = token;
  }
}

// The last message says in words what a result's guard says in numbers.
void Engine::ExpectGuardMessage(uint64_t seq, const cgr_guard &guard) {
  std::string place = "at row " + std::to_string(guard.row) + ", index " + std::to_string(guard.index);
  ExpectMessage(CGR_ERROR_STEP, CGR_ERROR_STEP,
                { "step " + std::to_string(seq), std::string("a ") + cgr_guard_error_name(cgr_guard_error(guard.error)), place,
                  std::to_string(guard.value) });
}

void Engine::CheckOne() {
  ASSERT_FALSE(in_flight_.empty());
  last = std::move(in_flight_.front());
  in_flight_.pop_front();
  InFlight &p = *last;
  SCOPED_TRACE("step " + std::to_string(p.step.mark.seq));
  cgr_step_result result = CGR_STEP_RESULT_INIT;
  Apply(&p);
  bool guarded = p.guard.error != CGR_GUARD_NONE;
  CGR_ASSERT(guarded ? CGR_ERROR_STEP : CGR_OK, cgr_step_wait(rt, p.step.mark, -1, &result));
  if (guarded)
    ExpectGuardMessage(p.step.mark.seq, p.guard);
  guard_errors += guarded;
  ASSERT_NO_FATAL_FAILURE(ExpectResult(p, result));
  ASSERT_NO_FATAL_FAILURE(ExpectTokens(p, result));
  if (!check_outputs || (!in_flight_.empty() && o.feed != Feed::kNodes))
    return; // the next step has overwritten them
  TakeOutputs(p);
  for (int32_t c = 0; c < state.num_calls && !::testing::Test::HasFatalFailure(); c++)
    if (check_call[size_t(c)])
      CheckCall(p, c, outputs[size_t(c)]);
}

// -------------------------------------------------------------------------------------------------------------------- outputs

void Engine::TakeOutputs(const InFlight &p) {
  outputs.clear();
  if (o.feed == Feed::kNodes)
    outputs = recording.Get(p.number);
  for (int32_t c = 0; c < state.num_calls && o.feed != Feed::kNodes; c++) {
    const RecordCall &call = state.call[c];
    size_t bytes = o.in_place ? state.layer[call.attention.layer].in_bytes[kQ] : call.out_bytes;
    outputs.push_back(
        { Read<unsigned char>(call.attention.out.data, bytes), Read<float>(call.attention.lse.data, call.lse_bytes / 4) });
  }
  if (keep_outputs)
    kept.push_back(outputs);
}

AttentionProblem Engine::ProblemOf(int32_t layer, const std::vector<Entry> &cache, const std::vector<Entry> &queries) const {
  const LayerOptions &l = o.layers[size_t(layer)];
  int32_t source = layer;
  while (o.layers[size_t(source)].kv_source != 0)
    source = o.layers[size_t(source)].kv_source - 1;
  auto values = [this](int32_t of, Tensor which, const std::vector<Entry> &entries) {
    const RecordLayer &shape = state.layer[of];
    Values all(entries.size() * size_t(shape.heads[which]) * size_t(shape.dim[which]));
    double *to = all.data();
    for (const Entry &entry : entries)
      for (int32_t h = 0; h < shape.heads[which]; h++, to += shape.dim[which])
        PutHead(shape.values, which, entry, h, shape.dim[which], to);
    return all;
  };
  AttentionProblem problem;
  problem.dtype = cgr_dtype(l.dtype);
  problem.query_len = int32_t(queries.size());
  problem.seq_len = int32_t(cache.size());
  problem.num_q_heads = l.num_q_heads;
  problem.num_kv_heads = l.num_kv_heads;
  problem.head_dim = l.head_dim;
  problem.scale = l.scale;
  problem.kind = l.kind;
  problem.q = values(layer, kQ, queries);
  problem.k = values(source, kK, cache);
  problem.v = values(source, kV, cache);
  return problem;
}

// Tokens past the real ones give 0 and -inf; nothing else is written.
void Engine::CheckPadding(const InFlight &p, int32_t c, const Outputs &got, int32_t real) {
  cgr_attention a;
  const bool computes = CallInSet(state, c, p.set, &a) && !(a.flags & CGR_ATTENTION_APPEND_ONLY);
  const RecordLayer &layer = state.layer[a.layer];
  int32_t padded = computes ? std::max(p.step.key.num_tokens, real) : 0;
  size_t element = cgr_dtype_size(cgr_dtype(layer.dtype));
  std::vector<unsigned char> rest = o.in_place ? std::vector<unsigned char>() : got.out;
  std::vector<float> rest_lse = got.lse;
  cgr_view out = a.out, lse = a.lse;
  out.data = const_cast<unsigned char *>(got.out.data());
  lse.data = const_cast<float *>(got.lse.data());
  ExpectNothing(ReadView(out, real, std::max(padded - real, 0), layer.heads[kQ], layer.dim[kV]),
                o.lse ? ReadView(lse, real, std::max(padded - real, 0), layer.heads[kQ], 1) : Values());
  for (int32_t t = 0; t < padded; t++)
    for (int32_t h = 0; h < layer.heads[kQ]; h++) {
      size_t at = size_t(t * out.stride_token + h * out.stride_head) * element;
      if (!o.in_place)
        std::fill_n(rest.begin() + int64_t(at), size_t(layer.dim[kV]) * element, 0xff);
      if (o.lse)
        rest_lse[size_t(t * lse.stride_token + h * lse.stride_head)] = NAN;
    }
  const auto byte = std::find_if(rest.begin(), rest.end(), [](unsigned char b) { return b != 0xff; });
  ASSERT_TRUE(byte == rest.end()) << "byte " << byte - rest.begin() << " of out was written, past the call's tokens";
  const auto number = std::find_if(rest_lse.begin(), rest_lse.end(), [](float x) { return !std::isnan(x); });
  ASSERT_TRUE(number == rest_lse.end()) << "lse " << number - rest_lse.begin() << " was written, past the call's tokens";
}

void Engine::CheckCall(const InFlight &p, int32_t c, const Outputs &got) {
  SCOPED_TRACE("call " + std::to_string(c));
  cgr_attention a;
  const bool computes = CallInSet(state, c, p.set, &a) && !(a.flags & CGR_ATTENTION_APPEND_ONLY);
  const RecordLayer &layer = state.layer[a.layer];
  cgr_view out = a.out, lse = a.lse;
  out.data = const_cast<unsigned char *>(got.out.data());
  lse.data = const_cast<float *>(got.lse.data());
  int32_t t = 0;
  for (const InFlight::Taken &taken : p.items) {
    int32_t queries = int32_t(taken.item.tokens.size());
    if (queries == 0 || !computes)
      continue;
    SCOPED_TRACE("row " + std::to_string(taken.item.row));
    const std::vector<Entry> &keys = KeysOf(taken, a.layer);
    const Values got_out = ReadView(out, t, queries, layer.heads[kQ], layer.dim[kV]);
    const Values got_lse = o.lse ? ReadView(lse, t, queries, layer.heads[kQ], 1) : Values();
    t += queries;
    if (keys.empty()) { // not encoded yet
      ASSERT_NO_FATAL_FAILURE(ExpectNothing(got_out, got_lse));
    } else if (check_answers) {
      ASSERT_NO_FATAL_FAILURE(ExpectAnswer(got_out, got_lse, SolveAttention(ProblemOf(a.layer, keys, taken.asked))));
    }
  }
  CheckPadding(p, c, got, computes ? t : p.step.num_tokens);
}

// ----------------------------------------------------------------------------------------------------------------------- bits

std::vector<unsigned char> Engine::Out(int32_t call, int32_t tokens) {
  const cgr_attention &a = state.call[call].attention;
  const RecordLayer &layer = state.layer[a.layer];
  size_t bytes = o.in_place ? layer.in_bytes[kQ] : state.call[call].out_bytes, element = cgr_dtype_size(cgr_dtype(layer.dtype));
  std::vector<unsigned char> all = Read<unsigned char>(a.out.data, bytes), dense;
  for (int32_t t = 0; t < tokens; t++)
    for (int32_t h = 0; h < layer.heads[kQ]; h++) {
      auto at = all.begin() + (t * a.out.stride_token + h * a.out.stride_head) * int64_t(element);
      dense.insert(dense.end(), at, at + layer.dim[kV] * int64_t(element));
    }
  return dense;
}

std::vector<float> Engine::Lse(int32_t call, int32_t tokens) {
  const cgr_attention &a = state.call[call].attention;
  std::vector<float> all = Read<float>(a.lse.data, state.call[call].lse_bytes / 4), dense;
  for (int32_t t = 0; t < tokens; t++)
    for (int32_t h = 0; h < state.layer[a.layer].heads[kQ]; h++)
      dense.push_back(all[size_t(t * a.lse.stride_token + h * a.lse.stride_head)]);
  return dense;
}

} // namespace cgr_test
