#include "planners/attention/plan_host.h"

#include "planners/attention/plan.h"

size_t cgr__plan_bytes(int32_t num_parts) { return sizeof(cgr__plan_header) + (size_t)num_parts * sizeof(cgr__plan_part); }

void cgr__plan_fill(const int32_t *query_start, const int32_t *seq_lens, int32_t num_requests, int32_t num_parts, int32_t tile_q,
                    int64_t *prefix, void *plan) {
  cgr__plan_header *header = (cgr__plan_header *)plan;
  cgr__plan_part *parts = (cgr__plan_part *)(header + 1);
  prefix[0] = 0;
  for (int32_t i = 0; i < num_requests; i++)
    prefix[i + 1] = prefix[i] + cgr__plan_request_cost(seq_lens[i], query_start[i + 1] - query_start[i], tile_q);
  int64_t cost = prefix[num_requests];
  int64_t cost_per_part = cost > 0 ? (cost + num_parts - 1) / num_parts : 1;

  *header = (cgr__plan_header){ 0 };
  header->num_parts = num_parts;
  header->tile_q = tile_q;
  header->tile_kv = CGR__TILE_KV;
  header->num_requests = num_requests;
  header->cost = cost;
  header->cost_per_part = cost_per_part;
  for (int32_t p = 0; p < num_parts; p++)
    parts[p] = cgr__plan_make_part(p, cost_per_part, prefix, query_start, seq_lens, num_requests, tile_q);
}

void cgr__plan_build(const cgr_plan_input *input, int64_t *scratch, void *plan) {
  int32_t n = input->num_requests;
  int32_t *query_start = (int32_t *)(scratch + n + 1); /* after the prefix */
  query_start[0] = 0;
  for (int32_t i = 0; i < n; i++)
    query_start[i + 1] = query_start[i] + input->query_lens[i];
  cgr__plan_fill(query_start, input->seq_lens, n, input->num_parts, input->tile_q, scratch, plan);
}
