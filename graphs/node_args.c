/* The lists that an audit reads. Cold. */
#include "graphs/node_args.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/memory.h"

static bool add_node(cgr__node_args *args, const cgr__node_param *param) {
  void *nodes = args->node;
  if (!cgr__reserve(&nodes, &args->node_capacity, args->num_nodes, sizeof *args->node))
    return false;
  args->node = nodes;
  cgr__node *node = &args->node[args->num_nodes++];
  node->id = cgr__hash(CGR__HASH_BEGIN, param->name, strlen(param->name));
  snprintf(node->name, sizeof node->name, "%s", param->name);
  args->num_hidden += param->hidden;
  args->shape = cgr__hash(args->shape, &node->id, sizeof node->id);
  return true;
}

void cgr__node_args_begin(cgr__node_args *args) {
  args->first_node = args->num_nodes;
  args->shape = cgr__hash(args->shape, &args->num_nodes, sizeof args->num_nodes);
}

int cgr__node_args_add(cgr__node_args *args, const cgr__node_param *param) {
  const uint64_t shape[] = { (uint64_t)param->index, param->bytes };
  if (args->first_node + param->node >= args->num_nodes && !add_node(args, param))
    return CGR__DEVICE_NO_MEMORY;
  args->shape = cgr__hash(args->shape, shape, sizeof shape);
  for (size_t at = 0; at < param->bytes; at += sizeof(uint64_t)) {
    size_t left = param->bytes - at;
    cgr__node_arg arg = { .node = args->num_nodes - 1, .param = param->index, .offset = (int32_t)at };
    memcpy(&arg.value, (const unsigned char *)param->data + at, left < sizeof arg.value ? left : sizeof arg.value);
    void *all = args->arg;
    if (!cgr__reserve(&all, &args->capacity, args->count, sizeof arg))
      return CGR__DEVICE_NO_MEMORY;
    args->arg = all;
    args->arg[args->count++] = arg;
  }
  return CGR__DEVICE_OK;
}

void cgr__node_args_empty(cgr__node_args *args) {
  args->count = 0;
  args->num_nodes = args->num_hidden = args->first_node = 0;
  args->shape = CGR__HASH_BEGIN;
  free(args->held.region);
  args->held = (cgr__held){ false, 0, NULL };
}

void cgr__node_args_free(cgr__node_args *args) {
  cgr__node_args_empty(args);
  free(args->node);
  free(args->arg);
}
