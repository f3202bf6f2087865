/* What an audit finds in the words of captured graphs. */
#ifndef CGR_GRAPHS_AUDIT_H
#define CGR_GRAPHS_AUDIT_H

#include "base/findings.h"
#include "cgr/inspect.h"
#include "graphs/node_args.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What has been found in all graphs so far. Each allocation, each region of a graph, and each place (node's name, parameter,
 * byte) is told once. */
typedef struct cgr__audit {
  cgr__graphs *graphs;
  cgr__findings findings;
  cgr_audit counts;
  const char *key;    /* the name of the graph that is being looked at */
  uint64_t *reported; /* [num_reported] hashes */
  int64_t num_reported, reported_capacity;
} cgr__audit;

/* Compares two captures of one key: addresses of device memory that the graph does not hold, other words that differ, and nodes
 * that differ become findings. Returns a device's error, or 0. */
int cgr__audit_node_args(cgr__audit *audit, const cgr__node_args *first, const cgr__node_args *second);
void cgr__audit_free(cgr__audit *audit);

#ifdef __cplusplus
}
#endif

#endif
