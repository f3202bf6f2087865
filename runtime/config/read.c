/* Reads a configuration: the limits, the modes, and what this version reserves. */
#include "runtime/config/config.h"

#include <stdio.h>
#include <string.h>

#include "base/sized.h"
#include "base/status.h"
#include "cgr/names.h"
#include "devices/error.h"
#include "graphs/graphs.h"
#include "kernels/stamp.h"
#include "tracing/flight.h"
#include "tracing/json.h"
#include "tracing/statistics.h"

static void set_default(int32_t *value, int32_t otherwise) {
  if (*value == 0)
    *value = otherwise;
}

/* ------------------------------------------------------------------------------------------------------------------ head */

/* Until 1.0 each minor version has headers of its own; after that, all minor versions of a major one have. */
static cgr_status check_version(uint32_t version) {
  const uint32_t step = CGR_VERSION_MAJOR == 0 ? 100 : 10000, first = CGR_VERSION / step * step;
  if (version / step == CGR_VERSION / step)
    return CGR_OK;
  return cgr__fail(CGR_ERROR_INVALID_STRUCT, "config: version is %u, expected %u to %u: compile with the headers of cgr %d.%d",
                   version, first, first + step - 1, CGR_VERSION_MAJOR, CGR_VERSION_MINOR);
}

static cgr_status read_head(const cgr_config *config, cgr_config *copy) {
  /* First the version: a struct of a later minor version may set fields that are unknown here. */
  if (config && config->size > sizeof *copy && config->size <= CGR__MAX_STRUCT && config->magic == CGR_CONFIG_MAGIC)
    CGR__TRY(check_version(config->version));
  CGR__TRY(cgr__sized_read("config", "CGR_CONFIG_INIT", config, copy, sizeof *copy));
  if (copy->magic != CGR_CONFIG_MAGIC)
    return cgr__fail(CGR_ERROR_INVALID_STRUCT, "config: magic is %#x, expected %#x: use CGR_CONFIG_INIT", copy->magic,
                     CGR_CONFIG_MAGIC);
  return check_version(copy->version);
}

/* Opens the device that is named. */
static cgr_device *open_named(const char *name, cgr__findings *f) {
  static const char function[] = "cgr_device_open: ";
  cgr_device *dev = NULL;
  cgr_status status = cgr_device_open(name, NULL, &dev);
  const char *text = cgr_last_message();
  if (status == CGR_OK)
    return dev;
  if (strncmp(text, function, sizeof function - 1) == 0)
    text += sizeof function - 1;
  cgr__findings_add(f, status, "device", "cannot be opened: %s", text);
  return NULL;
}

/* The device of a configuration; NULL after a finding. */
static cgr_device *find_device(const cgr_config *config, bool *owns, cgr__findings *f) {
  cgr_device *dev = config->device_handle;
  *owns = !dev;
  if (!dev)
    return open_named(config->device, f);
  if (dev->magic == CGR__DEVICE_MAGIC)
    return dev;
  cgr__findings_add(f, CGR_ERROR_INVALID_ARGUMENT, "device_handle", "is %p, expected an open device", (void *)dev);
  return NULL;
}

/* What the device can do: nothing, with kind 0, when that is not known. */
static void ask_device_abilities(cgr__setup *setup, cgr_device *dev, cgr__findings *f) {
  setup->device = (cgr_device_info)CGR_DEVICE_INFO_INIT;
  setup->checks = dev && dev->report;
  setup->allocations = dev ? dev->allocations : NULL;
  int error = dev ? dev->ops->info(dev, &setup->device) : 0;
  if (!error)
    return;
  setup->device = (cgr_device_info)CGR_DEVICE_INFO_INIT;
  cgr__findings_add_failure(f, cgr__device_fail(dev, error, "asking the device"), "device");
}

/* -------------------------------------------------------------------------------------------------------- limits and modes */

/* An invalid limit has its finding already; later checks use a stand-in that refuses nothing. */
static void check_limit(cgr__findings *f, const char *field, int32_t *value, int32_t low, int32_t high, int32_t placeholder) {
  if (!cgr__in_range(f, field, *value, low, high))
    *value = placeholder;
}

/* A limit of at least max_requests; max_requests replaces a bad value. */
static void check_limit_of_requests(cgr__findings *f, const char *field, int32_t *value, int32_t max_requests, int32_t high) {
  if (!cgr__in_range_why(f, field, *value, max_requests, high, "at least max_requests"))
    *value = max_requests;
}

/* Afterwards max_other_lens[s] bounds the rows of every set that exists. */
static void check_other_lens(cgr_config *c, cgr__findings *f) {
  for (int32_t s = 0; s < CGR__MAX_SETS; s++) {
    cgr__field field = cgr__field_of("max_other_lens", s, "");
    if (s > 0 && s < c->num_length_sets) {
      set_default(&c->max_other_lens[s], c->max_seq_len);
      check_limit(f, field.name, &c->max_other_lens[s], 1, CGR__MAX_SEQ_LEN, 1);
    } else if (c->max_other_lens[s] != 0) {
      cgr__findings_add(f, CGR_ERROR_INVALID_ARGUMENT, field.name, "is %d, expected 0: %s", c->max_other_lens[s],
                        s == 0 ? "max_seq_len bounds the sequences" : "there is no such length set");
      c->max_other_lens[s] = 0;
    }
  }
}

static void check_time_every(cgr_config *c, cgr__findings *f) {
  int32_t value = c->time_every;
  if (value >= 1 && value <= CGR__MAX_TIME_EVERY && (value & (value - 1)) == 0)
    return;
  cgr__findings_add(f, CGR_ERROR_INVALID_ARGUMENT, "time_every", "is %d, expected a power of two, 1 .. %d", value,
                    CGR__MAX_TIME_EVERY);
  c->time_every = 1;
}

static void check_config_limits(cgr_config *c, cgr__findings *f) {
  bool rows_given = c->max_rows != 0;
  check_limit(f, "max_requests", &c->max_requests, 1, CGR__MAX_REQUESTS, 1);
  if (rows_given)
    check_limit_of_requests(f, "max_rows", &c->max_rows, c->max_requests, CGR__MAX_ROWS);
  set_default(&c->max_rows, c->max_requests);
  check_limit_of_requests(f, "max_tokens", &c->max_tokens, c->max_requests, CGR__MAX_TOKENS);
  check_limit(f, "max_seq_len", &c->max_seq_len, 1, CGR__MAX_SEQ_LEN, 1);
  set_default(&c->ring_depth, 4);
  check_limit(f, "ring_depth", &c->ring_depth, CGR__MIN_RING_DEPTH, CGR__MAX_RING_DEPTH, CGR__MIN_RING_DEPTH);
  set_default(&c->max_changes, 4096);
  check_limit(f, "max_changes", &c->max_changes, 1, CGR__MAX_CHANGES, 1);
  check_limit(f, "num_parts", &c->num_parts, 0, CGR__MAX_PARTS, 1);
  set_default(&c->wait_timeout_ms, 30000);
  set_default(&c->num_length_sets, 1);
  check_limit(f, "num_length_sets", &c->num_length_sets, 1, CGR__MAX_SETS, CGR__MAX_SETS);
  check_other_lens(c, f);
  check_limit(f, "wait_timeout_ms", &c->wait_timeout_ms, 1, INT32_MAX, 1);
  check_limit(f, "flight_depth", &c->flight_depth, 0, CGR__MAX_FLIGHT_DEPTH, 0);
  c->flight_depth = (int32_t)cgr__flight_depth(c->flight_depth);
  set_default(&c->time_every, CGR__DEFAULT_TIME_EVERY);
  check_time_every(c, f);
}

static void check_config_enums(const cgr_config *c, cgr__findings *f) {
  (void)cgr__is_one(f, "graph_mode", c->graph_mode, &cgr__graph_modes);
  (void)cgr__is_one(f, "attention_support", c->attention_support, &cgr__graph_supports);
  (void)cgr__is_one(f, "wait_mode", c->wait_mode, &cgr__wait_modes);
}

static void check_config_reserved(cgr__findings *f, const char *field, int64_t value, int64_t most) {
  if (value < 0 || value > most)
    cgr__findings_add(f, CGR_ERROR_UNSUPPORTED, field, "is %lld, expected %s in this version", (long long)value,
                      most == 0 ? "0" : "0 or 1");
}

/* A draft guesses: without guesses it has nothing to do. */
static void check_programs(cgr_config *c, cgr__findings *f) {
  set_default(&c->num_programs, 1);
  if (!cgr__in_range(f, "num_programs", c->num_programs, 1, CGR__MAX_PROGRAMS))
    c->num_programs = CGR__MAX_PROGRAMS;
  else if (c->num_programs > 1 && c->num_draft_tokens == 0)
    cgr__findings_add(f, CGR_ERROR_INVALID_ARGUMENT, "num_draft_tokens",
                      "is 0, expected at least 1 with num_programs %d: the programs after the first are drafts", c->num_programs);
}

static void check_modes(const cgr_config *c, cgr__findings *f) {
  check_config_enums(c, f);
  cgr__in_range(f, "nvtx", c->nvtx, 0, 1);
  cgr__in_range(f, "labels", c->labels, 0, 1);
  cgr__in_range(f, "check_values", c->check_values, 0, 1);
  if (!cgr__is_choice(&cgr__timing_modes, c->timing))
    cgr__findings_add(f, CGR_ERROR_INVALID_ARGUMENT, "timing", "%s", cgr__choices_refusal(&cgr__timing_modes, c->timing).text);
  check_config_reserved(f, "num_lanes", c->num_lanes, 1);
  check_config_reserved(f, "max_steps", c->max_steps, 0);
  cgr__in_range(f, "num_draft_tokens", c->num_draft_tokens, 0, CGR__MAX_DRAFT_TOKENS);
  cgr__in_range(f, "max_stop_tokens", c->max_stop_tokens, 0, CGR__MAX_STOP_TOKENS);
  cgr__in_range(f, "vocab_size", c->vocab_size, 0, INT32_MAX);
  cgr__findings_add_used(f, "reserved", c->reserved);
}

/* ---------------------------------------------------------------------------------------------------------------- limits */

static void make_limits(cgr__setup *setup) {
  const cgr_config *c = &setup->config;
  cgr__limits *limits = &setup->limits;
  limits->max_requests = c->max_requests;
  limits->max_rows = c->max_rows;
  limits->max_tokens = c->max_tokens;
  limits->num_groups = c->num_groups < 0 ? 0 : c->num_groups < CGR__MAX_GROUPS ? c->num_groups : CGR__MAX_GROUPS;
  limits->num_sets = c->num_length_sets;
  for (int32_t s = 0; s < c->num_length_sets; s++)
    limits->max_lens[s] = cgr__max_len(c, s);
  limits->token_stride = 1 + (c->num_draft_tokens > 0 && c->num_draft_tokens <= CGR__MAX_DRAFT_TOKENS ? c->num_draft_tokens : 0);
  limits->ring_depth = c->ring_depth;
  limits->max_changes = c->max_changes;
  limits->num_programs = c->num_programs;
  limits->stamp_stride = cgr__stamp_stride(c->timing, c->num_layers);
  limits->value_words = c->check_values != 0;
}

/* The rest of them. */
static void make_plan_limits(cgr__setup *setup) {
  cgr__limits *limits = &setup->limits;
  limits->plan_words = setup->plans.plan_words;
  limits->plan_counters = setup->plans.num_counters;
  limits->partial_vectors = setup->plans.partial_vectors;
  limits->partial_dim = setup->plans.partial_dim;
}

/* max_requests bounds the buckets, unless it is out of bounds itself. */
static int32_t largest_bucket(const cgr_config *config) {
  return config->max_requests >= 1 && config->max_requests <= CGR__MAX_REQUESTS ? config->max_requests : CGR__MAX_REQUESTS;
}

/* `setup->config` becomes complete along the way, so the order matters. */
static void make_setup(cgr__setup *setup, cgr__findings *f) {
  int32_t largest = largest_bucket(&setup->config);
  check_config_limits(&setup->config, f);
  check_modes(&setup->config, f);
  check_programs(&setup->config, f);
  cgr__setup_groups(setup, f);
  cgr__setup_backends(setup, f);
  cgr__setup_layers(setup, f);
  cgr__check_pools(setup, f);
  make_limits(setup);
  cgr__setup_keys(setup, largest, f);
  cgr__setup_buffers(setup, f);
  cgr__setup_backend_plans(setup, f);
  cgr__setup_lengths(setup, f);
  cgr__setup_stops(setup, f);
  cgr__setup_native(setup, f);
  make_plan_limits(setup);
  cgr__setup_on_demand(setup, f);
}

/* If the arena would be too large, it is laid out again without page tables, partial outputs and declared buffers, which alone
 * can be that large. The result is a lower bound of its size. */
static void lay_out_buffers(const cgr__setup *setup, cgr__layout *layout, cgr__findings *f) {
  cgr__limits limits = setup->limits;
  cgr_status status = cgr__layout_make(&limits, setup->declared, setup->num_declared, layout);
  if (status == CGR_OK)
    return;
  cgr__findings_add_failure(f, status, "config");
  memset(limits.pages_per_row, 0, sizeof limits.pages_per_row);
  limits.partial_dim = 0;
  (void)cgr__layout_make(&limits, setup->declared, 0, layout);
}

cgr_status cgr__setup_read(const cgr_config *config, cgr_device **dev, bool *owns, cgr__setup *setup, cgr__layout *layout,
                           cgr__findings *f) {
  cgr_status status = read_head(config, &setup->config);
  if (status != CGR_OK) {
    *dev = NULL;
    return status;
  }
  if (*dev)
    setup->config.device_handle = *dev;
  *dev = find_device(&setup->config, owns, f);
  *owns = *owns && *dev;
  ask_device_abilities(setup, *dev, f);
  make_setup(setup, f);
  lay_out_buffers(setup, layout, f);
  cgr__check_memory(setup, layout, f);
  return CGR_OK;
}

cgr__rows_config cgr__setup_rows(const cgr__setup *setup) {
  cgr__rows_config rows = { .limits = &setup->limits, .groups = setup->groups };
  for (int32_t i = 0; i < setup->limits.num_groups; i++)
    rows.window_spans[i] = cgr__group_window_spans(setup, i);
  rows.lengths = setup->lengths;
  rows.stops = setup->stops;
  rows.ledger = setup->checks;
  for (int32_t i = 0; i < setup->num_declared; i++) {
    const cgr__declared *d = &setup->declared[i];
    if (d->source != CGR_SOURCE_STAGED || d->dimension != CGR_DIMENSION_ROWS)
      continue;
    uint64_t pattern = cgr__declared_pattern(d);
    rows.data[i].words = (int32_t)(cgr__declared_bytes(d) / 4);
    rows.data[i].padding[0] = (uint32_t)pattern;
    rows.data[i].padding[1] = (uint32_t)(pattern >> 32);
    rows.num_data = i + 1;
  }
  return rows;
}

int32_t cgr__setup_max_spans(const cgr__setup *setup) { return CGR_PHASE_LAYER + 3 * setup->config.num_layers; }

size_t cgr__setup_timing_bytes(const cgr__setup *setup) {
  size_t words = (size_t)setup->limits.stamp_stride + (size_t)setup->config.flight_depth;
  size_t bytes = words * sizeof(uint64_t) + (size_t)cgr__setup_max_spans(setup) * sizeof(cgr_span);
  return setup->limits.stamp_stride == 0 ? 0 : (bytes + CGR__ROW_BYTES - 1) / CGR__ROW_BYTES * CGR__ROW_BYTES;
}

size_t cgr__setup_flight_bytes(const cgr__setup *setup) {
  return (size_t)setup->config.flight_depth * sizeof(cgr__flight_entry) + cgr__statistics_bytes(cgr__keys_count(&setup->keys)) +
         cgr__setup_timing_bytes(setup);
}

size_t cgr__setup_dump_bytes(const cgr__setup *setup) {
  size_t records = (size_t)setup->config.flight_depth + 1; /* and the step that is prepared */
  return setup->config.dump ? CGR__JSON_HEAD_BYTES + records * CGR__JSON_RECORD_BYTES : 0;
}

size_t cgr__setup_host_bytes(const cgr__setup *setup) {
  cgr__rows_config rows = cgr__setup_rows(setup);
  return CGR__ROW_BYTES + cgr__setup_flight_bytes(setup) + cgr__setup_dump_bytes(setup) + cgr__rows_bytes(&rows) +
         cgr__lane_batches_bytes(&setup->limits) + cgr__keys_bytes(&setup->keys) + cgr__setup_backend_plans_layout(setup).bytes;
}
