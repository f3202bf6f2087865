/* What each node of a captured graph belongs to: the range (tracing/nvtx.h) that was open when it was enqueued, and its layer.
 *
 * While a graph is captured, labels open and close as ranges do. At each of these borders the device is asked for the nodes that
 * the capture has by now: the new ones belong to the label that was open last. Cold, and none of it happens for a graph that is
 * captured without labels. What goes wrong here costs the graph its labels, never the capture. */
#ifndef CGR_GRAPHS_LABELS_H
#define CGR_GRAPHS_LABELS_H

#include "graphs/graphs.h"
#include "tracing/nvtx.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cgr__node_label {
  int16_t range;   /* cgr__nvtx_range; -1: enqueued outside of any range */
  int16_t backend; /* as the runtime counts them; -1: it is not a backend's */
  int32_t layer;   /* -1: of no layer */
} cgr__node_label;

typedef struct cgr__labelled_node {
  cgr__node_label label;
  int32_t piece;     /* which of the graph's pieces it is in; the device knows each piece as a graph of its own */
  int32_t order;     /* its place among the nodes of the piece, as they were met; nodes of a child graph have that of its node */
  uint32_t name;     /* where it begins in `names` */
  uint64_t tools_id; /* the id that tools know it by in the executable graph; 0: the device does not tell */
} cgr__labelled_node;

/* The nodes of a graph, piece by piece; within one by label, in the order in which the labels were captured, and those of one
 * label as the device lists them. The nodes of a child graph come after its node. */
struct cgr__labels {
  cgr__labelled_node *node; /* [num_nodes] */
  char *names;              /* [names_bytes]: each name once, closed by a zero */
  int64_t num_nodes, node_capacity, names_bytes, names_capacity;
  int error; /* the device's, because of which there are no labels; 0: there are */
};

/* The labels of a capture under way. */
struct cgr__labelling {
  cgr__labels *labels;
  cgr_device *dev;
  cudaStream_t stream;
  cgr__node_label open[CGR__MAX_OPEN_LABELS];
  int32_t depth;          /* how many are open, including those that there is no room for */
  bool captures;          /* a piece is being captured */
  int32_t num_pieces;     /* kept so far */
  const void **nodes;     /* [num_nodes] handles of the piece's nodes, in the order in which they came */
  cgr__node_label *label; /* [num_nodes] */
  const void **listed;    /* [capacity]: the nodes of the piece as the device lists them */
  int64_t num_nodes, capacity;
  int64_t first_node; /* in labels->node: the first one of the piece that is being kept */
  int64_t at;         /* in `nodes`: the node that is being named */
};

/* False without memory: then there is nothing to end. With a NULL labelling, the cgr__label_ functions do nothing. */
bool cgr__labelling_begin(struct cgr__labelling *labelling, cgr_device *dev, cudaStream_t stream);
/* Returns the labels, which the caller frees. */
cgr__labels *cgr__labelling_end(struct cgr__labelling *labelling);

/* What is enqueued from here on, up to the end of it, bears the label. */
void cgr__label_begin(struct cgr__labelling *labelling, cgr__node_label label);
void cgr__label_end(struct cgr__labelling *labelling);

/* A piece begins or ends with the capture of its stream; a piece that has been instantiated, and is kept, gets its names. */
void cgr__label_piece_begin(struct cgr__labelling *labelling);
void cgr__label_piece_end(struct cgr__labelling *labelling);
void cgr__label_piece_keep(struct cgr__labelling *labelling, cgr__graph *graph, const cgr__graph_info *info);

void cgr__labels_free(cgr__labels *labels);

#ifdef __cplusplus
}
#endif

#endif
