/* The labels of graphs as JSON. Cold. */
#include "graphs/labels.h"

#include <inttypes.h>

#include "base/key.h"
#include "cgr/names.h"
#include "runtime/report/report.h"
#include "tracing/text.h"

static bool is_same(const cgr__labelled_node *a, const cgr__labelled_node *b) {
  return a->piece == b->piece && a->label.range == b->label.range && a->label.layer == b->label.layer &&
         a->label.backend == b->label.backend;
}

static void write_label(const cgr_runtime *rt, cgr__text *text, const cgr__node_label *label) {
  cgr__text_add(text, "{\"phase\": ");
  cgr__text_add_json(text, label->range >= 0 ? cgr__nvtx_range_name((cgr__nvtx_range)label->range) : "none");
  cgr__text_add(text, ", ");
  if (label->layer >= 0)
    cgr__text_add(text, "\"layer\": %d, \"backend\": ", label->layer);
  else
    cgr__text_add(text, "\"layer\": null, \"backend\": ");
  if (label->backend >= 0)
    cgr__text_add_json(text, rt->setup.backend_names[label->backend]);
  else
    cgr__text_add(text, "null");
}

/* A run of `count` nodes that belong together. */
static void write_run(const cgr_runtime *rt, cgr__text *text, const cgr__labels *labels, const cgr__labelled_node *node,
                      int64_t count) {
  bool has_ids = true;
  write_label(rt, text, &node->label);
  cgr__text_add(text, ", \"nodes\": [");
  for (int64_t i = 0; i < count; i++) {
    cgr__text_add(text, i == 0 ? "" : ", ");
    cgr__text_add_json(text, labels->names + node[i].name);
    has_ids = has_ids && node[i].tools_id != 0;
  }
  cgr__text_add(text, "]");
  for (int64_t i = 0; i < count && has_ids; i++)
    cgr__text_add(text, "%s%" PRIu64, i == 0 ? ", \"ids\": [" : ", ", node[i].tools_id);
  cgr__text_add(text, has_ids ? "]}" : "}");
}

static void write_pieces(const cgr_runtime *rt, cgr__text *text, const cgr__labels *labels) {
  int64_t run;
  for (int64_t i = 0; i < labels->num_nodes; i += run) {
    const cgr__labelled_node *node = &labels->node[i];
    bool begins = i == 0 || node->piece != node[-1].piece;
    for (run = 1; i + run < labels->num_nodes && is_same(node, node + run);)
      run++;
    if (begins)
      cgr__text_add(text, i == 0 ? "[" : "],\n      [");
    else
      cgr__text_add(text, ",\n       ");
    write_run(rt, text, labels, node, run);
  }
  if (labels->num_nodes > 0)
    cgr__text_add(text, "]");
}

static void write_graph(const cgr_runtime *rt, cgr__text *text, const cgr__graph_entry *entry) {
  const cgr_key *key = &entry->key;
  cgr__text_add(text,
                "{\"index\": %d, \"key\": \"%s\", \"kind\": \"%s\", \"padded_requests\": %d, \"padded_tokens\": %d, "
                "\"query_len\": %d, \"variant\": %u, \"state\": \"%s\", \"unlabelled\": ",
                entry->index, cgr__key_name(key).text, cgr_graph_kind_name((cgr_graph_kind)key->kind), key->num_requests,
                key->num_tokens, key->query_len, key->variant, cgr_graph_state_name(cgr__graph_state_of(&rt->graphs, entry)));
  if (!entry->labels)
    cgr__text_add(text, "\"no memory\"");
  else if (entry->labels->error)
    cgr__text_add_json(text, cgr__device_error_name(entry->labels->error));
  else
    cgr__text_add(text, "null");
  cgr__text_add(text, ",\n   \"pieces\": [");
  if (entry->labels)
    write_pieces(rt, text, entry->labels);
  cgr__text_add(text, "]}");
}

static void write_labels(const cgr_runtime *rt, cgr__text *text) {
  const cgr_device_info *device = &rt->setup.device;
  bool is_first = true;
  cgr__text_add(text, "{\"version\": ");
  cgr__text_add_json(text, cgr_build_info());
  cgr__text_add(text, ",\n \"device\": {\"kind\": \"%s\", \"name\": ", cgr_device_kind_name((cgr_device_kind)device->kind));
  cgr__text_add_json(text, device->name);
  cgr__text_add(text, ", \"driver\": %d},\n \"graphs\": [", device->driver_version);
  for (int32_t i = 0; i < rt->graphs.count && rt->graphs.labels; i++) {
    if (rt->graphs.entry[i].state != CGR_GRAPH_READY)
      continue;
    cgr__text_add(text, is_first ? "\n  " : ",\n  ");
    write_graph(rt, text, &rt->graphs.entry[i]);
    is_first = false;
  }
  cgr__text_add(text, "]}\n");
}

cgr_status cgr_runtime_graph_labels(cgr_runtime *runtime, char *out, size_t capacity, size_t *length) {
  CGR__ONE_THREAD(runtime, "cgr_runtime_graph_labels");
  CGR__TRY(cgr__text_check(runtime, "cgr_runtime_graph_labels", out, capacity, length));
  cgr__text text = cgr__text_begin(out, capacity);
  write_labels(runtime, &text);
  *length = text.length;
  return CGR_OK;
}
