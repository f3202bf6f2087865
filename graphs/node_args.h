/* What a captured graph holds: the 8-byte words of its nodes' parameters, and of the arguments of the calls that it breaks at. */
#ifndef CGR_GRAPHS_NODE_ARGS_H
#define CGR_GRAPHS_NODE_ARGS_H

#include "devices/device.h"
#include "graphs/graphs.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Eight bytes of a parameter, or its last few with zeros after them. */
typedef struct cgr__node_arg {
  int32_t node, param;
  int32_t offset; /* bytes, in the parameter */
  int32_t reserved;
  uint64_t value;
} cgr__node_arg;

typedef struct cgr__node {
  uint64_t id;   /* of the whole name */
  char name[88]; /* cut off */
} cgr__node;

/* A capture's words, in the order of its nodes; those of calls at breaks come after all pieces. */
struct cgr__node_args {
  cgr__node *node;    /* [num_nodes] */
  cgr__node_arg *arg; /* [count] */
  int64_t node_capacity, capacity, count;
  int32_t num_nodes, num_hidden; /* hidden: nodes whose parameters cannot be seen */
  int32_t first_node;            /* of the piece that is being listed */
  uint64_t shape;                /* hash of everything but the words' values: nodes, parameters, where pieces begin */
  cgr__held held;
};

/* What comes next belongs to another piece, or to a break. */
void cgr__node_args_begin(cgr__node_args *args);
/* Adds one parameter: a device's error, or 0. */
int cgr__node_args_add(cgr__node_args *args, const cgr__node_param *param);
void cgr__node_args_empty(cgr__node_args *args);
void cgr__node_args_free(cgr__node_args *args);

#ifdef __cplusplus
}
#endif

#endif
