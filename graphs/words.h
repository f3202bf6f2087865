/* What a captured graph holds: the words of its nodes' parameters, and of the calls that it breaks at. */
#ifndef CGR_GRAPHS_WORDS_H
#define CGR_GRAPHS_WORDS_H

#include "devices/device.h"
#include "graphs/graphs.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Eight bytes of a parameter, or its last few with zeros after them. */
typedef struct cgr__word {
  int32_t node, param;
  int32_t offset; /* bytes, in the parameter */
  int32_t reserved;
  uint64_t value;
} cgr__word;

typedef struct cgr__node {
  uint64_t id;   /* of the whole name */
  char name[88]; /* cut off */
} cgr__node;

/* A capture's words, in the order of its nodes; those of calls at breaks come after all pieces. */
struct cgr__words {
  cgr__node *node; /* [num_nodes] */
  cgr__word *word; /* [count] */
  int64_t node_capacity, capacity, count;
  int32_t num_nodes, num_hidden; /* hidden: nodes whose parameters cannot be seen */
  int32_t first_node;            /* of the piece that is being listed */
  uint64_t shape;                /* hash of everything but the words' values: nodes, parameters, where pieces begin */
  cgr__held held;
};

/* What comes next belongs to another piece, or to a break. */
void cgr__words_begin(cgr__words *words);
/* Adds one parameter: a device's error, or 0. */
int cgr__words_add(cgr__words *words, const cgr__node_param *param);
void cgr__words_empty(cgr__words *words);
void cgr__words_free(cgr__words *words);

#ifdef __cplusplus
}
#endif

#endif
