/* What NVTX ranges say about a runtime. Cold: nothing here runs unless a tool listens, or a graph is captured with labels. */
#include "runtime/report/ranges.h"

#include "requests/guesses.h"

/* Attention and plans belong to a backend. */
static cgr__node_label label_of(const cgr_runtime *rt, cgr__nvtx_range range, int32_t layer) {
  bool is_backends = range == CGR__RANGE_ATTENTION || range == CGR__RANGE_PLANNER;
  return (cgr__node_label){ (int16_t)range, (int16_t)(is_backends ? rt->recorder.backend - 1 : -1), layer };
}

void cgr__ranges_begin(const cgr_runtime *rt, cgr__nvtx_range range, int32_t layer) {
  if (cgr__has_ranges(rt))
    layer < 0 ? cgr__nvtx_begin(range) : cgr__nvtx_begin_layer(range, layer);
  if (rt->flags & CGR__RUNTIME_LABELS)
    cgr__label_begin(rt->graphs.labelling, label_of(rt, range, layer));
}

void cgr__ranges_end(const cgr_runtime *rt) {
  if (rt->flags & CGR__RUNTIME_LABELS)
    cgr__label_end(rt->graphs.labelling);
  if (cgr__has_ranges(rt))
    cgr__nvtx_end();
}

void cgr__ranges_label_plan(const cgr_runtime *rt) {
  cgr__label_begin(rt->graphs.labelling, label_of(rt, CGR__RANGE_PLANNER, -1));
}

void cgr__ranges_open(cgr_runtime *rt) {
  if (rt->setup.config.nvtx == 0)
    return;
  if (cgr__nvtx_open())
    rt->flags |= CGR__RUNTIME_RANGES;
  else
    cgr__log(rt, CGR_LOG_INFO,
             CGR__NVTX_BUILT ? "config.nvtx is set and no tool listens: there are no ranges"
                             : "config.nvtx is set and this build has no NVTX: there are no ranges");
}

/* The handles of the host device mean nothing to a tool. */
void cgr__ranges_name(const cgr_runtime *rt) {
  if (!cgr__has_ranges(rt) || rt->dev->kind != CGR_DEVICE_KIND_CUDA)
    return;
  cgr__nvtx_name_stream(rt->own_stream, "cgr own");
  cgr__nvtx_name_stream(rt->side_stream, "cgr side");
  cgr__nvtx_name_event(rt->fork_event, "cgr fork");
  cgr__nvtx_name_event(rt->join_event, "cgr join");
  cgr__nvtx_name_event(rt->order_event, "cgr order");
}

static cgr__nvtx_range_key nvtx_key_of(const cgr_key *key, const cgr__graph_entry *entry) {
  return (cgr__nvtx_range_key){ .graph = entry ? entry->index : -1,
                                .kind = key->kind,
                                .padded_requests = key->num_requests,
                                .padded_tokens = key->num_tokens,
                                .query_len = key->query_len,
                                .variant = key->variant };
}

static int32_t count_drafts(const cgr__batch_layout *batch) {
  int32_t drafts = 0;
  for (int32_t i = 0; i < batch->num_requests; i++)
    drafts += cgr__flags_guesses(batch->flags[i]);
  return drafts;
}

static cgr__nvtx_range_step prepared_step(const cgr_runtime *rt) {
  const cgr__prepared *p = &rt->lane.prepared;
  return (cgr__nvtx_range_step){ .key = nvtx_key_of(&p->choice.key, p->choice.entry),
                                 .num_requests = p->batch.num_requests,
                                 .num_tokens = p->batch.num_tokens,
                                 .reason = (int32_t)p->choice.reason,
                                 .drafts = count_drafts(p->batch.batch_layout),
                                 .seq = p->seq,
                                 .bytes_staged = p->bytes };
}

void cgr__ranges_begin_key(cgr_runtime *rt, const cgr_key *key) {
  const cgr__nvtx_range_key range_key = nvtx_key_of(key, cgr__graphs_find(&rt->graphs, key));
  cgr__nvtx_begin_key(CGR__RANGE_GRAPH, &range_key);
}

void cgr__ranges_begin_prepared(const cgr_runtime *rt, cgr__nvtx_range range) {
  const cgr__nvtx_range_step step = prepared_step(rt);
  cgr__nvtx_begin_step(range, &step);
}

void cgr__ranges_end_prepared(const cgr_runtime *rt) {
  const cgr__nvtx_range_step step = prepared_step(rt);
  cgr__nvtx_end_step(&step);
}
