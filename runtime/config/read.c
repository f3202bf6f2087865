/* Reads a configuration: the limits, the modes, and what this version reserves. */
#include "runtime/config/config.h"

#include <stdio.h>
#include <string.h>

#include "base/sized.h"
#include "base/status.h"
#include "devices/error.h"
#include "graphs/graphs.h"

static void set_default(int32_t *value, int32_t otherwise) {
  if (*value == 0)
    *value = otherwise;
}

/* ------------------------------------------------------------------------------------------------------------------ head */

cgr_status cgr__config_read(const cgr_config *config, cgr_config *copy) {
  CGR__TRY(cgr__sized_read("config", config, copy, sizeof *copy));
  if (copy->magic != CGR_CONFIG_MAGIC)
    return cgr__fail(CGR_ERROR_INVALID_STRUCT, "config: magic is %#x, expected %#x: use CGR_CONFIG_INIT", copy->magic,
                     CGR_CONFIG_MAGIC);
  if (copy->version / 10000 != CGR_VERSION_MAJOR || copy->version < 200)
    return cgr__fail(CGR_ERROR_INVALID_STRUCT, "config: version is %u, expected %d.2 or a later %d: compile with this header",
                     copy->version, CGR_VERSION_MAJOR, CGR_VERSION_MAJOR);
  return CGR_OK;
}

cgr_status cgr__config_device(const cgr_config *config, cgr_device **dev, bool *owns) {
  *owns = false;
  *dev = config->device_handle;
  if (*dev && (*dev)->magic != CGR__DEVICE_MAGIC) {
    *dev = NULL;
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "config: device_handle is %p, expected an open device",
                     (void *)config->device_handle);
  }
  if (*dev)
    return CGR_OK;
  CGR__TRY(cgr_device_open(config->device, NULL, dev));
  *owns = true;
  return CGR_OK;
}

/* -------------------------------------------------------------------------------------------------------- limits and modes */

/* A limit that is no good itself has its finding; what is measured against it goes on with one that refuses nothing. */
static void make_measurable(cgr_config *c) {
  if (c->max_requests < 1 || c->max_requests > CGR__MAX_REQUESTS)
    c->max_requests = CGR__MAX_REQUESTS;
  if (c->max_seq_len < 1 || c->max_seq_len > CGR__MAX_SEQ_LEN)
    c->max_seq_len = 1;
  if (c->max_tokens < 1 || c->max_tokens > CGR__MAX_TOKENS)
    c->max_tokens = 1;
}

static void check_limits(cgr_config *c, cgr__findings *f) {
  bool requests = cgr__in_range(f, "max_requests", c->max_requests, 1, CGR__MAX_REQUESTS);
  int32_t least = requests ? c->max_requests : 1;
  set_default(&c->max_rows, c->max_requests);
  if (requests)
    cgr__in_range(f, "max_rows", c->max_rows, least, CGR__MAX_ROWS);
  cgr__in_range(f, "max_tokens", c->max_tokens, least, CGR__MAX_TOKENS);
  cgr__in_range(f, "max_seq_len", c->max_seq_len, 1, CGR__MAX_SEQ_LEN);
  set_default(&c->ring_depth, 4);
  cgr__in_range(f, "ring_depth", c->ring_depth, CGR__MIN_RING_DEPTH, CGR__MAX_RING_DEPTH);
  set_default(&c->max_changes, 4096);
  cgr__in_range(f, "max_changes", c->max_changes, 1, CGR__MAX_CHANGES);
  cgr__in_range(f, "num_parts", c->num_parts, 0, CGR__MAX_PARTS);
  set_default(&c->wait_timeout_ms, 30000);
  cgr__in_range(f, "wait_timeout_ms", c->wait_timeout_ms, 1, INT32_MAX);
}

static void check_enum(cgr__findings *f, const char *field, int32_t value, int32_t last) {
  if (value < 0 || value > last)
    cgr__findings_add(f, CGR_ERROR_INVALID_ENUM, field, "is %d, expected 0 .. %d", value, last);
}

static void check_reserved(cgr__findings *f, const char *field, int64_t value, int64_t most) {
  if (value < 0 || value > most)
    cgr__findings_add(f, CGR_ERROR_UNSUPPORTED, field, "is %lld, expected %s in this version", (long long)value,
              most == 0 ? "0" : "0 or 1");
}

static void check_modes(const cgr_config *c, cgr__findings *f) {
  check_enum(f, "graph_mode", c->graph_mode, CGR_MODE_FULL_AND_PIECEWISE);
  check_enum(f, "attention_support", c->attention_support, CGR_SUPPORT_ALWAYS);
  check_reserved(f, "num_backends", c->num_backends, 0);
  check_reserved(f, "num_programs", c->num_programs, 1);
  check_reserved(f, "num_lanes", c->num_lanes, 1);
  check_reserved(f, "num_draft_tokens", c->num_draft_tokens, 0);
  check_reserved(f, "max_steps", c->max_steps, 0);
  check_reserved(f, "num_query_lens", c->num_query_lens, 0);
  check_reserved(f, "num_mixed_buckets", c->num_mixed_buckets, 0);
  cgr__findings_add_used(f, "reserved", c->reserved);
  cgr__findings_add_used(f, "reserved2", c->reserved2);
}

/* --------------------------------------------------------------------------------------------------------------- buckets */

static void check_buckets(cgr__setup *setup, cgr__findings *f) {
  const cgr_config *c = &setup->config;
  for (int32_t i = 0; i < c->num_decode_buckets; i++) {
    int32_t bucket = c->decode_buckets[i];
    cgr__field field = cgr__field_of("decode_buckets", i, "");
    if (cgr__in_range(f, field.name, bucket, 1, c->max_requests) && i > 0 && bucket <= c->decode_buckets[i - 1])
      cgr__findings_add(f, CGR_ERROR_INVALID_ARGUMENT, field.name, "is %d, expected more than the one before, %d", bucket,
                c->decode_buckets[i - 1]);
    setup->buckets[i] = bucket;
  }
  setup->num_buckets = c->num_decode_buckets;
}

void cgr__setup_buckets(cgr__setup *setup, cgr__findings *f) {
  cgr_config *c = &setup->config;
  if (!cgr__in_range(f, "num_decode_buckets", c->num_decode_buckets, 0, CGR__MAX_BUCKETS))
    return;
  if (c->num_decode_buckets > 0 && !c->decode_buckets) {
    cgr__findings_add(f, CGR_ERROR_NULL_POINTER, "decode_buckets", "is NULL, expected %d sizes", c->num_decode_buckets);
    return;
  }
  if (c->num_decode_buckets > 0) {
    check_buckets(setup, f);
    return;
  }
  set_default(&c->max_decode_bucket, c->max_requests < 512 ? c->max_requests : 512);
  if (cgr__in_range(f, "max_decode_bucket", c->max_decode_bucket, 1, c->max_requests))
    setup->num_buckets = cgr__buckets_default(c->max_decode_bucket, setup->buckets);
}

/* ---------------------------------------------------------------------------------------------------------------- limits */

static void make_limits(cgr__setup *setup) {
  const cgr_config *c = &setup->config;
  cgr__limits *limits = &setup->limits;
  setup->attention = cgr__attention_sizes_of(&setup->device, setup->layers, c->num_layers, c->num_parts);
  limits->max_requests = c->max_requests;
  limits->max_rows = c->max_rows;
  limits->max_tokens = c->max_tokens;
  limits->max_seq_len = c->max_seq_len;
  limits->num_groups = c->num_groups;
  limits->num_sets = 1;
  limits->token_stride = 1;
  limits->ring_depth = c->ring_depth;
  limits->max_changes = c->max_changes;
  limits->plan_words = setup->attention.plan_words;
  limits->plan_counters = setup->attention.plan_counters;
  limits->partial_vectors = setup->attention.partial_vectors;
  limits->partial_dim = setup->attention.partial_dim;
  for (int32_t g = 0; g < c->num_groups; g++) {
    const cgr_group *group = &setup->groups[g];
    limits->pages_per_row[g] = (c->max_seq_len + group->page_size - 1) / group->page_size;
    limits->trash_page[g] = group->read_trash_page;
  }
}

void cgr__setup_make(const cgr_config *config, cgr_device *dev, cgr__setup *setup, cgr__findings *f) {
  setup->config = *config;
  setup->device = (cgr_device_info)CGR_DEVICE_INFO_INIT;
  int error = dev->ops->info(dev, &setup->device);
  if (error) {
    cgr__findings_add_failure(f, cgr__device_fail(dev, error, "asking the device"), "device");
    return;
  }
  check_limits(&setup->config, f);
  check_modes(&setup->config, f);
  make_measurable(&setup->config);
  cgr__setup_groups(setup, f);
  cgr__setup_layers(setup, f);
  cgr__setup_buckets(setup, f);
  cgr__setup_buffers(setup, f);
  if (f->count == 0)
    make_limits(setup);
}

static void check_supplied(const char *name, const void *memory, size_t have, size_t need, cgr__findings *f) {
  char size[32];
  snprintf(size, sizeof size, "%s_size", name);
  if (!memory && have > 0)
    cgr__findings_add(f, CGR_ERROR_NULL_POINTER, name, "is NULL, expected an address, as %s is %zu", size, have);
  if (memory && have < need)
    cgr__findings_add(f, CGR_ERROR_INVALID_ARGUMENT, size, "is %zu, expected at least %zu (cgr_runtime_memory)", have, need);
  if ((uintptr_t)memory % 256 != 0)
    cgr__findings_add(f, CGR_ERROR_INVALID_ARGUMENT, name, "is %p, expected a multiple of 256", memory);
}

void cgr__check_memory(const cgr_config *config, const cgr__layout *layout, cgr__findings *f) {
  check_supplied("device_memory", config->device_memory, config->device_memory_size, layout->bytes, f);
  check_supplied("pinned_memory", config->pinned_memory, config->pinned_memory_size, layout->pinned_bytes, f);
}

cgr__rows_config cgr__setup_rows(const cgr__setup *setup) {
  const cgr_config *c = &setup->config;
  return (cgr__rows_config){ c->max_rows, c->max_seq_len, c->num_groups, setup->groups };
}

size_t cgr__setup_host_bytes(const cgr__setup *setup) {
  const cgr_config *c = &setup->config;
  cgr__rows_config rows = cgr__setup_rows(setup);
  return cgr__rows_bytes(&rows) + cgr__compositions_bytes(c->max_requests, c->ring_depth) +
         ((size_t)c->max_requests + 1) * sizeof(int16_t);
}
