#include "tests/support/cover.h"

#include <stdbool.h>

typedef struct list {
  cgr__cover_item *items;
  int64_t count, capacity;
} list;

/* Whether an index that the plan holds can be followed at all. */
static bool is_request(const cgr__cover_batch *batch, int32_t request) { return request >= 0 && request < batch->num_requests; }

static int32_t query_len_of(const cgr__cover_batch *batch, int32_t request) {
  return batch->query_start[request + 1] - batch->query_start[request];
}

/* Whether the item is of this batch: new tokens and KV tiles that its request has. */
static bool is_inside(const cgr__plan_class *c, const cgr__cover_batch *batch, const cgr__plan_item *item, int32_t tile_kv) {
  if (!is_request(batch, item->request) || item->head_block < 0 || item->head_block >= c->head_blocks)
    return false;
  return item->query_begin >= 0 && item->num_queries > 0 &&
         (int64_t)item->query_begin + item->num_queries <= query_len_of(batch, item->request) && item->kv_begin >= 0 &&
         item->kv_end > item->kv_begin && ((int64_t)item->kv_end - 1) * tile_kv < batch->seq_lens[item->request];
}

static bool header_fits(const cgr__plan_class *c, const cgr__plan_header *header) {
  return header->num_parts == c->num_parts && header->num_decodes >= 0 && header->num_decodes <= c->max_requests &&
         header->num_entries >= 0 && header->num_entries <= c->max_entries;
}

/* A part whose request is none of the batch, and that has something to do, would be walked into memory that is not there. */
static bool part_fits(const cgr__cover_batch *batch, const cgr__plan_header *header, const cgr__plan_part *part) {
  if (part->begin.decode < 0 || part->end.decode > header->num_decodes || part->begin.decode > part->end.decode)
    return false;
  return part->begin.decode == header->num_decodes || is_request(batch, part->request);
}

static bool add_part(list *found, const cgr__plan_class *c, const cgr__plan_header *header, const cgr__plan_part *part, int32_t p,
                     const cgr__cover_batch *batch, const int32_t *decodes) {
  cgr__plan_batch planned = { batch->query_start, batch->seq_lens, decodes };
  cgr__cover_item next = { .part = p, .entry = -1 };
  if (!part_fits(batch, header, part))
    return false;
  cgr__plan_walk walk = cgr__plan_walk_begin(part, &planned);
  while (cgr__plan_walk_next(&walk, c, part, p, &planned, &next.item)) {
    if (found->count >= found->capacity || !is_inside(c, batch, &next.item, c->decode_tile_kv) ||
        walk.at.decode > header->num_decodes)
      return false;
    found->items[found->count++] = next;
  }
  return !cgr__plan_walk_next(&walk, c, part, p, &planned, &next.item); /* what has ended stays so */
}

static bool add_entry(list *found, const cgr__plan_class *c, const cgr__plan_entry *entry, int32_t e,
                      const cgr__cover_batch *batch) {
  cgr__cover_item next = { .part = -1, .entry = e };
  if (!is_request(batch, entry->request))
    return false;
  for (int32_t h = 0; h < c->head_blocks; h++) {
    next.item = cgr__plan_prefill_item(c, entry, h, query_len_of(batch, entry->request));
    if (found->count >= found->capacity || !is_inside(c, batch, &next.item, c->prefill_tile_kv))
      return false;
    found->items[found->count++] = next;
  }
  return true;
}

int64_t cgr__cover_plan(const cgr__plan_class *c, const void *plan, const cgr__cover_batch *batch, cgr__cover_item *items,
                        int64_t capacity) {
  const unsigned char *bytes = plan;
  const cgr__plan_header *header = plan;
  const cgr__plan_part *parts = (const cgr__plan_part *)(const void *)(header + 1);
  const int32_t *decodes = (const int32_t *)(const void *)(bytes + cgr__plan_decodes_offset(c));
  const cgr__plan_entry *entries = (const cgr__plan_entry *)(const void *)(bytes + cgr__plan_entries_offset(c));
  list found = { items, 0, capacity };
  if (!header_fits(c, header))
    return -1;
  for (int32_t i = 0; i < header->num_decodes; i++)
    if (!is_request(batch, decodes[i]))
      return -1;
  for (int32_t p = 0; p < c->num_parts; p++)
    if (!add_part(&found, c, header, &parts[p], p, batch, decodes))
      return -1;
  for (int32_t e = 0; e < header->num_entries; e++)
    if (!add_entry(&found, c, &entries[e], e, batch))
      return -1;
  return found.count;
}
