/* Labels of a capture under way. Cold. */
#include "graphs/labels.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

#define NO_LABEL ((cgr__node_label){ .range = -1, .backend = -1, .layer = -1 })

static void give_up(struct cgr__labelling *l, int error) {
  if (error && !l->labels->error)
    l->labels->error = error;
}

static bool is_off(const struct cgr__labelling *l) { return !l || l->labels->error != 0; }

bool cgr__labelling_begin(struct cgr__labelling *labelling, cgr_device *dev, cudaStream_t stream) {
  *labelling = (struct cgr__labelling){ .labels = calloc(1, sizeof(cgr__labels)), .dev = dev, .stream = stream };
  return labelling->labels != NULL;
}

cgr__labels *cgr__labelling_end(struct cgr__labelling *labelling) {
  cgr__labels *labels = labelling->labels;
  free(labelling->nodes);
  free(labelling->label);
  free(labelling->listed);
  if (labels && labels->error) {
    free(labels->node);
    free(labels->names);
    labels->node = NULL;
    labels->names = NULL;
    labels->num_nodes = labels->names_bytes = 0;
  }
  return labels;
}

void cgr__labels_free(cgr__labels *labels) {
  if (!labels)
    return;
  free(labels->node);
  free(labels->names);
  free(labels);
}

/* --------------------------------------------------------------------------------------------------------------- borders */

static bool reserve_nodes(struct cgr__labelling *l, int64_t count) {
  if (count <= l->capacity)
    return true;
  int64_t wanted = 2 * count + 64;
  const void **nodes = realloc((void *)l->nodes, (size_t)wanted * sizeof *nodes);
  l->nodes = nodes ? nodes : l->nodes;
  cgr__node_label *label = realloc(l->label, (size_t)wanted * sizeof *label);
  l->label = label ? label : l->label;
  const void **listed = realloc((void *)l->listed, (size_t)wanted * sizeof *listed);
  l->listed = listed ? listed : l->listed;
  if (!nodes || !label || !listed)
    return false;
  l->capacity = wanted;
  return true;
}

static int64_t find_node(const struct cgr__labelling *l, const void *handle, int64_t hint) {
  if (hint < l->num_nodes && l->nodes[hint] == handle)
    return hint;
  for (int64_t i = 0; i < l->num_nodes; i++)
    if (l->nodes[i] == handle)
      return i;
  return -1;
}

static int list_piece_nodes(struct cgr__labelling *l, size_t *count) {
  const cgr__device_ops *ops = l->dev->ops;
  int error = ops->capture_nodes(l->dev, l->stream, l->listed, (size_t)l->capacity, count);
  if (error || (int64_t)*count <= l->capacity)
    return error;
  if (!reserve_nodes(l, (int64_t)*count))
    return CGR__DEVICE_NO_MEMORY;
  return ops->capture_nodes(l->dev, l->stream, l->listed, (size_t)l->capacity, count);
}

/* Labels what has come since the last border. Devices have been seen to list nodes in the order in which they were made, but that
 * is not promised, so a node counts as new if it was not there before, whatever its place. */
static void mark_border(struct cgr__labelling *l) {
  size_t count = 0;
  if (!l->captures || is_off(l))
    return;
  int error = list_piece_nodes(l, &count);
  give_up(l, error);
  if (error)
    return;
  cgr__node_label label = NO_LABEL;
  if (l->depth > 0)
    label = l->open[l->depth <= CGR__MAX_OPEN_LABELS ? l->depth - 1 : CGR__MAX_OPEN_LABELS - 1];
  for (int64_t i = 0; i < (int64_t)count && l->num_nodes < l->capacity; i++) {
    if (find_node(l, l->listed[i], i) >= 0)
      continue;
    l->nodes[l->num_nodes] = l->listed[i];
    l->label[l->num_nodes++] = label;
  }
}

void cgr__label_begin(struct cgr__labelling *l, cgr__node_label label) {
  if (is_off(l))
    return;
  mark_border(l);
  if (l->depth < CGR__MAX_OPEN_LABELS)
    l->open[l->depth] = label;
  l->depth++;
}

void cgr__label_end(struct cgr__labelling *l) {
  if (is_off(l))
    return;
  mark_border(l);
  l->depth -= l->depth > 0;
}

/* ---------------------------------------------------------------------------------------------------------------- pieces */

void cgr__label_piece_begin(struct cgr__labelling *l) {
  if (is_off(l))
    return;
  l->captures = true;
  l->num_nodes = 0;
}

void cgr__label_piece_end(struct cgr__labelling *l) {
  if (is_off(l))
    return;
  mark_border(l);
  l->captures = false;
}

/* Layers run the same kernels, so few names are different. */
static bool keep_name(cgr__labels *labels, const char *name, uint32_t *at) {
  int64_t bytes = (int64_t)strlen(name) + 1;
  for (int64_t i = 0; i < labels->names_bytes; i += (int64_t)strlen(labels->names + i) + 1)
    if (strcmp(labels->names + i, name) == 0) {
      *at = (uint32_t)i;
      return true;
    }
  if (labels->names_bytes + bytes > labels->names_capacity) {
    int64_t wanted = 2 * (labels->names_bytes + bytes) + 256;
    char *grown = realloc(labels->names, (size_t)wanted);
    if (!grown)
      return false;
    labels->names = grown;
    labels->names_capacity = wanted;
  }
  *at = (uint32_t)labels->names_bytes;
  memcpy(labels->names + *at, name, (size_t)bytes);
  labels->names_bytes += bytes;
  return true;
}

/* Where the node stands among those that the borders have seen. One that they have not seen is of a child graph: it gets the
 * place of the node before it. */
static int name_node(void *context, const cgr__node_param *param) {
  struct cgr__labelling *l = context;
  cgr__labels *labels = l->labels;
  if (l->first_node + param->node < labels->num_nodes)
    return CGR__DEVICE_OK; /* another of its parameters */
  void *nodes = labels->node;
  if (!cgr__reserve(&nodes, &labels->node_capacity, labels->num_nodes, sizeof *labels->node))
    return CGR__DEVICE_NO_MEMORY;
  labels->node = nodes;
  int64_t at = find_node(l, param->handle, param->node);
  l->at = at >= 0 ? at : l->at;
  cgr__labelled_node node = { .label = l->num_nodes > 0 ? l->label[l->at] : NO_LABEL,
                              .piece = l->num_pieces,
                              .order = (int32_t)l->at,
                              .tools_id = param->tools_id };
  if (!keep_name(labels, param->name, &node.name))
    return CGR__DEVICE_NO_MEMORY;
  labels->node[labels->num_nodes++] = node;
  return CGR__DEVICE_OK;
}

/* Sorts them into the order in which they came. Stable, and a single pass if they are in that order already. */
static void sort_nodes(cgr__labelled_node *node, int64_t count) {
  for (int64_t i = 1; i < count; i++) {
    cgr__labelled_node moved = node[i];
    int64_t at = i;
    for (; at > 0 && node[at - 1].order > moved.order; at--)
      node[at] = node[at - 1];
    node[at] = moved;
  }
}

void cgr__label_piece_keep(struct cgr__labelling *l, cgr__graph *graph, const cgr__graph_info *info) {
  if (is_off(l))
    return;
  l->first_node = l->labels->num_nodes;
  l->at = 0;
  give_up(l, l->dev->ops->graph_walk(l->dev, graph, name_node, l));
  if (is_off(l))
    return;
  cgr__labelled_node *node = l->labels->node + l->first_node;
  int64_t count = l->labels->num_nodes - l->first_node;
  if (count > 0)
    sort_nodes(node, count);
  for (int64_t i = 0; i < count; i++)
    node[i].tools_id = node[i].tools_id && info->tools_id ? (uint64_t)info->tools_id << 32 | node[i].tools_id : 0;
  l->num_pieces++;
}
