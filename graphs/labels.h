/* What each node of a captured graph belongs to: the range (tracing/nvtx.h) that was open when it was enqueued, and its layer.
 *
 * While a graph is captured, labels open and close as ranges do. At each of these borders the device is asked for the nodes that
 * the capture has by now: the new ones belong to the label that was open last. Cold, and nothing of it happens for a graph that
 * is captured without. What goes wrong here costs the graph its labels, never the capture. */
#ifndef CGR_GRAPHS_LABELS_H
#define CGR_GRAPHS_LABELS_H

#include "graphs/graphs.h"
#include "tracing/nvtx.h"

#ifdef __cplusplus
extern "C" {
#endif

#define CGR__MAX_OPEN_LABELS 16

typedef struct cgr__label {
  int16_t range;   /* cgr__range; -1: enqueued outside of any range */
  int16_t backend; /* as the runtime counts them; -1: it is not a backend's */
  int32_t layer;   /* -1: of no layer */
} cgr__label;

typedef struct cgr__labelled_node {
  cgr__label label;
  int32_t piece;     /* of the graph's; each piece is a graph of its own for the device */
  int32_t order;     /* that it came in, counted in its piece; a child graph's nodes have that of its node */
  uint32_t name;     /* where it begins in `names` */
  uint64_t tools_id; /* that tools know the node of the executable graph by; 0: the device does not tell */
} cgr__labelled_node;

/* The nodes of a graph, piece by piece, each in the order in which they were captured; a child graph's come after its node. */
struct cgr__labels {
  cgr__labelled_node *node; /* [num_nodes] */
  char *names;              /* [names_bytes], each closed by a zero and there once */
  int64_t num_nodes, node_capacity, names_bytes, names_capacity;
  int error; /* of the device, why there are none; 0: there are */
};

/* Those of a capture under way. */
struct cgr__labelling {
  cgr__labels *labels;
  cgr_device *dev;
  cudaStream_t stream;
  cgr__label open[CGR__MAX_OPEN_LABELS];
  int32_t depth;       /* how many are open; more than there is room for are counted all the same */
  bool captures;       /* a piece is being captured */
  int32_t num_pieces;  /* that have been kept */
  const void **seen;   /* [num_seen] handles of the piece's nodes, in the order in which they came */
  cgr__label *label;   /* [num_seen] */
  const void **listed; /* [capacity] what the device answers */
  int64_t num_seen, capacity;
  int64_t first_node; /* of `labels`, of the piece that is being named */
  int64_t at;         /* in `seen`, of the node that is being named */
};

/* False without memory: then there is nothing to end. A labelling of NULL is none: all of what follows takes it. */
bool cgr__labelling_begin(struct cgr__labelling *labelling, cgr_device *dev, cudaStream_t stream);
/* What it has come to, to be freed. */
cgr__labels *cgr__labelling_end(struct cgr__labelling *labelling);

/* What is enqueued from here on, up to the end of it, bears the label. */
void cgr__label_begin(struct cgr__labelling *labelling, cgr__label label);
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
