/* Captures, and lists of what a capture would hold. Cold. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/status.h"
#include "devices/error.h"
#include "graphs/labels.h"
#include "graphs/node_args.h"

/* ---------------------------------------------------------------------------------------------------------------- pieces */

static int begin_piece(cgr__open_capture *c) {
  int error = c->graphs->dev->ops->capture_begin(c->graphs->dev, c->stream);
  c->open = !error;
  if (c->open)
    cgr__label_piece_begin(c->labelling);
  return error;
}

/* If nothing was enqueued between two calls, there is no piece. */
static void keep_piece(cgr__open_capture *c, cgr__graph *graph, cgr__exec *exec, const cgr__graph_info *info) {
  if (c->last && info->num_nodes == 0) {
    c->graphs->dev->ops->exec_destroy(c->graphs->dev, exec);
    return;
  }
  cgr__label_piece_keep(c->labelling, graph, info);
  *(c->last ? &c->last->piece : &c->entry->exec) = exec;
  c->entry->num_pieces++;
  c->entry->num_nodes += (int32_t)info->num_nodes;
  if (info->width > c->entry->width)
    c->entry->width = (int32_t)info->width;
  cgr__budget_count_piece(c->graphs, c->entry, info);
}

static int add_node_arg(void *context, const cgr__node_param *param) { return cgr__node_args_add(context, param); }

static int list_node_args(cgr__open_capture *c, cgr__graph *graph) {
  cgr__node_args_begin(c->node_args);
  return c->graphs->dev->ops->graph_walk(c->graphs->dev, graph, add_node_arg, c->node_args);
}

static int add_addresses(void *context, const cgr__node_param *param) {
  if (param->index < 0) /* how a kernel is launched */
    return CGR__DEVICE_OK;
  return cgr__addresses_add_words(context, param->data, param->bytes) ? CGR__DEVICE_OK : CGR__DEVICE_NO_MEMORY;
}

static int make_exec(cgr__open_capture *c, cgr__graph *graph, cgr__exec **exec, cgr__graph_info *info) {
  cgr_device *dev = c->graphs->dev;
  int error = dev->ops->graph_walk(dev, graph, add_addresses, &c->addresses);
  if (error && error != CGR__DEVICE_UNSUPPORTED) /* if nodes cannot be read, the graph's memory is not protected from a free */
    return error;
  return dev->ops->instantiate(dev, graph, exec, info);
}

/* Ends the piece under capture, if one is open, whatever the body did. */
static int end_piece(cgr__open_capture *c) {
  cgr_device *dev = c->graphs->dev;
  cgr__graph *graph = NULL;
  cgr__exec *exec = NULL;
  cgr__graph_info info = { 0, 0, 0, 0, 0 };
  if (!c->open)
    return 0;
  cgr__label_piece_end(c->labelling);
  int error = dev->ops->capture_end(dev, c->stream, &graph);
  c->open = false;
  if (!error && !c->failed)
    error = c->node_args ? list_node_args(c, graph) : make_exec(c, graph, &exec, &info);
  if (!error && exec)
    keep_piece(c, graph, exec, &info);
  if (graph)
    dev->ops->graph_destroy(dev, graph);
  return error;
}

/* ---------------------------------------------------------------------------------------------------------------- breaks */

static cgr_status add_break(cgr__open_capture *c, const cgr__call *call, const char *function) {
  size_t head = (sizeof(cgr__break) + 15) / 16 * 16;
  unsigned char *memory =
      cgr__addresses_add_words(&c->addresses, call->args, call->args_size) ? calloc(1, head + call->args_size) : NULL;
  if (!memory)
    return cgr__fail(CGR_ERROR_OUT_OF_MEMORY, "%s: no memory for a call of %zu bytes", function, head + call->args_size);
  cgr__break *made = (cgr__break *)(void *)memory;
  made->kernel = call->kernel;
  made->function = call->function;
  made->args = memory + head;
  made->args_size = call->args_size;
  if (call->args_size > 0)
    memcpy(memory + head, call->args, call->args_size);
  *(c->last ? &c->last->next : &c->entry->breaks) = made;
  c->last = made;
  return CGR_OK;
}

static cgr_status fail_break(cgr__open_capture *c, int error, const char *function, const char *what) {
  char text[160];
  snprintf(text, sizeof text, "%s: %s", function, what);
  if (error == CGR__DEVICE_DEAD)
    c->device_error = error;
  return cgr__device_fail(c->graphs->dev, error, text);
}

cgr_status cgr__capture_break(cgr__open_capture *capture, const cgr__call *calls, int32_t count, const char *function) {
  if (capture->failed)
    return cgr__fail(CGR_ERROR_CAPTURE, "%s: the capture has failed at an earlier break, expected `record` to return then",
                     function);
  cgr_status status =
      fail_break(capture, end_piece(capture), function, "ending the piece before this break (is a forked stream not joined?)");
  for (int32_t i = 0; i < count && status == CGR_OK; i++)
    status = add_break(capture, &calls[i], function);
  capture->failed = status != CGR_OK;
  int error = begin_piece(capture);
  if (status != CGR_OK || !error)
    return status;
  capture->failed = true;
  return fail_break(capture, error, function, "beginning the piece after it");
}

/* ----------------------------------------------------------------------------------------------------------------- calls */

int64_t cgr__capture_count_nodes(cgr__open_capture *capture) {
  cgr_device *dev = capture->graphs->dev;
  size_t count = 0;
  int error = capture->open ? dev->ops->capture_nodes(dev, capture->stream, NULL, 0, &count) : CGR__DEVICE_CAPTURE_INVALID;
  if (error == CGR__DEVICE_DEAD)
    capture->device_error = error;
  return error ? -1 : (int64_t)count;
}

void cgr__capture_lose_call(const cgr__open_capture *capture, cgr_call_function function, int32_t number) {
  cgr__graphs *graphs = capture->graphs;
  cgr__lost_call *lost = graphs->lost, *end = lost + graphs->num_lost;
  if (capture->node_args) /* no graph is made */
    return;
  while (lost < end && (lost->function != function || lost->number != number))
    lost++;
  if (lost == graphs->lost + CGR__MAX_LOST_CALLS)
    return;
  if (lost == end) {
    *lost = (cgr__lost_call){ .function = function, .number = number, .key = capture->entry->key };
    graphs->num_lost++;
  }
  lost->num_keys += lost->entry != capture->entry;
  lost->entry = capture->entry;
}

/* --------------------------------------------------------------------------------------------------------------- capture */

/* A device that was lost while it was asked for nodes has lost the capture, too. */
static void see_labels(cgr__open_capture *c) {
  if (c->labelling && c->labelling->labels->error == CGR__DEVICE_DEAD)
    c->device_error = CGR__DEVICE_DEAD;
}

/* The body's failure comes first, unless the device is lost. */
static cgr_status capture_pieces(cgr__open_capture *c, cgr__capture_body body, void *context, int *device_error) {
  *device_error = begin_piece(c);
  if (*device_error)
    return CGR_ERROR_CAPTURE;
  cgr_status status = body(context, c);
  c->failed = c->failed || status != CGR_OK;
  int ended = end_piece(c);
  see_labels(c);
  if (c->device_error)
    ended = c->device_error;
  *device_error = status == CGR_OK || ended == CGR__DEVICE_DEAD ? ended : 0;
  return status == CGR_OK && ended ? CGR_ERROR_CAPTURE : status;
}

cgr_status cgr__graphs_capture(cgr__graphs *graphs, cgr__graph_entry *entry, cudaStream_t stream, cgr__capture_body body,
                               void *context, int *device_error) {
  cgr__open_capture c = { .graphs = graphs, .entry = entry, .stream = stream };
  struct cgr__labelling labelling;
  double begin = cgr__now_ms();
  cgr__graph_drop(graphs, entry);
  entry->epoch = graphs->regions->epoch;
  entry->captured_hash = graphs->captured_hash;
  entry->records++;
  if (graphs->labels && cgr__labelling_begin(&labelling, graphs->dev, stream))
    graphs->labelling = c.labelling = &labelling;
  cgr_status status = capture_pieces(&c, body, context, device_error);
  entry->labels = c.labelling ? cgr__labelling_end(&labelling) : NULL;
  graphs->labelling = NULL;
  entry->held = c.held;
  entry->addresses = c.addresses;
  entry->resources = c.resources;
  if (status != CGR_OK) {
    cgr__graph_drop(graphs, entry);
    cgr__graph_set_state(entry, CGR_GRAPH_FAILED);
    entry->failures++;
    graphs->failures++;
    return status;
  }
  cgr__addresses_sort(&entry->addresses);
  cgr__graph_set_state(entry, CGR_GRAPH_READY);
  entry->failures = 0;
  entry->misses = 0;
  entry->capture_ms = (float)(cgr__now_ms() - begin);
  return CGR_OK;
}

/* -------------------------------------------------------------------------------------------------------------- listing */

/* What is kept by value between two pieces: the function is in the node's name. */
static int add_breaks(cgr__node_args *node_args, const cgr__graph_entry *entry) {
  int error = 0;
  for (const cgr__break *b = entry->breaks; b && !error; b = b->next) {
    char call[48];
    snprintf(call, sizeof call, "call %#llx", (unsigned long long)(uintptr_t)b->function);
    cgr__node_param param = { .name = b->kernel ? b->kernel->name : call, .data = b->args, .bytes = b->args_size };
    cgr__node_args_begin(node_args);
    error = cgr__node_args_add(node_args, &param);
  }
  return error;
}

cgr_status cgr__graphs_list(cgr__graphs *graphs, const cgr_key *key, cudaStream_t stream, cgr__capture_body body, void *context,
                            cgr__node_args *node_args, int *device_error) {
  cgr__graph_entry scratch = { .key = *key };
  cgr__open_capture c = { .graphs = graphs, .entry = &scratch, .stream = stream, .node_args = node_args };
  cgr__node_args_empty(node_args);
  cgr_status status = capture_pieces(&c, body, context, device_error);
  if (status == CGR_OK && add_breaks(node_args, &scratch) != 0)
    status = cgr__fail(CGR_ERROR_OUT_OF_MEMORY, "record: no memory for a list of what it has enqueued");
  node_args->held = c.held;
  cgr__addresses_free(&c.addresses);
  cgr__graph_drop(graphs, &scratch);
  return status;
}
