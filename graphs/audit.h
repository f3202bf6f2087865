/* What a captured graph holds: the words of its nodes' parameters, and of the calls that it breaks at. */
#ifndef CGR_GRAPHS_AUDIT_H
#define CGR_GRAPHS_AUDIT_H

#include "base/findings.h"
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

#define CGR__NODE_NAME 56
typedef struct cgr__node_name {
  char text[CGR__NODE_NAME]; /* cut off */
} cgr__node_name;

/* A capture's words, in the order of its nodes; those of calls at breaks come after all pieces. */
typedef struct cgr__words {
  cgr__node_name *names; /* [num_nodes] */
  cgr__word *word;       /* [count] */
  int64_t name_capacity, capacity, count;
  int32_t num_nodes, num_hidden; /* hidden: nodes whose parameters cannot be seen */
  int32_t first_node;            /* of the piece that is being listed */
  cgr__held held;
} cgr__words;

/* Captures what `body` enqueues for a key and lists it; no graph is made of it. Fails as cgr__graphs_capture does, but counts
 * nothing and leaves the key's entry alone. `words` is to be freed in any case; it may hold an earlier capture's, which go. */
cgr_status cgr__words_capture(cgr__graphs *graphs, const cgr_key *key, cudaStream_t stream, cgr__capture_body body, void *context,
                              cgr__words *words, int *device_error);
/* words.c. Adds one parameter: a device's error, or 0. */
int cgr__words_add(cgr__words *words, const cgr__node_param *param);
void cgr__words_empty(cgr__words *words);
void cgr__words_free(cgr__words *words);
/* Makes room in an array for one more element after `count`; false: there is no memory. */
bool cgr__reserve(void **array, int64_t *capacity, int64_t count, size_t size);

/* What has been found in all graphs so far; of an allocation, of a region of one graph, and of a parameter's place the first
 * finding alone is kept. */
typedef struct cgr__audit {
  cgr__graphs *graphs;
  cgr__findings findings;
  cgr_audit counts;
  const char *key; /* the name of the graph that is looked at */
  uint64_t *told;  /* [num_told] */
  int64_t num_told, told_capacity;
} cgr__audit;

/* Two captures of one key: words that are addresses of device memory which the graph does not hold, and other words that differ,
 * become findings. CGR_ERROR_OUT_OF_MEMORY, or a device's error in *device_error. */
cgr_status cgr__audit_words(cgr__audit *audit, const cgr__words *first, const cgr__words *second, int *device_error);
void cgr__audit_free(cgr__audit *audit);

#ifdef __cplusplus
}
#endif

#endif
