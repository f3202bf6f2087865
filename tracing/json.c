#include "tracing/json.h"

#include <inttypes.h>

#include "base/key.h"
#include "cgr/cgr.h"
#include "cgr/names.h"

static void add_error(cgr__text *text, const char *message, int code) {
  cgr__text_add(text, "\"device_code\": %d, \"message\": ", code);
  cgr__text_add_json(text, message);
  cgr__text_add(text, "}");
}

/* What a device that reports an error late was doing: the first step that it has not completed. */
static void add_incomplete(cgr__text *text, const cgr__dump_head *head) {
  const cgr_flight_record *r = head->incomplete_record;
  cgr__text_add(text, ",\n \"first_incomplete\": ");
  if (head->incomplete == 0) {
    cgr__text_add(text, "null");
    return;
  }
  cgr__text_add(text, "{\"seq\": %" PRIu64, head->incomplete);
  if (r)
    cgr__text_add(text, ", \"outcome\": \"%s\", \"key\": \"%s\", \"key_index\": %d",
                  cgr_flight_outcome_name((cgr_flight_outcome)r->outcome), cgr__key_name(&r->key).text, r->key_index);
  cgr__text_add(text, "}");
}

void cgr__json_head(cgr__text *text, const cgr__dump_head *head) {
  cgr__text_add(text, "{\"version\": ");
  cgr__text_add_json(text, cgr_build_info());
  cgr__text_add(text, ",\n \"device\": {\"kind\": ");
  cgr__text_add_json(text, head->device_kind);
  cgr__text_add(text, ", \"name\": ");
  cgr__text_add_json(text, head->device);
  cgr__text_add(text,
                "},\n \"layout\": \"%016" PRIx64 "\", \"launched\": %" PRIu64 ", \"completed\": %" PRIu64
                ", \"guard_errors\": %" PRIu64 ",\n \"dead\": ",
                head->layout, head->launched, head->completed, head->guard_errors);
  if (head->dead) {
    cgr__text_add(text, "{");
    add_error(text, head->dead, head->dead_code);
  } else {
    cgr__text_add(text, "null");
  }
  cgr__text_add(text, ",\n \"last_failure\": ");
  if (head->failure->status != CGR_OK) {
    cgr__text_add(text, "{\"seq\": %" PRIu64 ", \"key\": \"%s\", \"status\": \"%s\", ", head->failure->seq,
                  cgr__key_name(&head->failure->key).text, cgr_status_name((cgr_status)head->failure->status));
    add_error(text, head->failure->message, head->failure->device_code);
  } else {
    cgr__text_add(text, "null");
  }
  add_incomplete(text, head);
}

static void add_guard(cgr__text *text, const cgr_guard *guard) {
  cgr__text_add(text, ", \"guard\": {\"error\": \"%s\", \"row\": %d, \"index\": %d, \"value\": %" PRId64 "}",
                cgr_guard_error_name((cgr_guard_error)guard->error), guard->row, guard->index, guard->value);
}

void cgr__json_record(cgr__text *text, const cgr_flight_record *r) {
  cgr__text_add(text, "{\"seq\": %" PRIu64 ", \"outcome\": \"%s\", \"status\": \"%s\"", r->seq,
                cgr_flight_outcome_name((cgr_flight_outcome)r->outcome), cgr_status_name((cgr_status)r->status));
  if (r->reason >= 0)
    cgr__text_add(text, ", \"reason\": \"%s\"", cgr_reason_name((cgr_reason)r->reason));
  if (r->outcome != CGR_FLIGHT_REFUSED || r->key_index >= 0)
    cgr__text_add(text, ", \"key\": \"%s\", \"key_index\": %d", cgr__key_name(&r->key).text, r->key_index);
  if (r->outcome == CGR_FLIGHT_REFUSED)
    cgr__text_add(text, ", \"repeats\": %" PRIu64, r->repeats);
  if (r->seq > 0)
    cgr__text_add(text, ", \"completed\": %s", r->completed ? "true" : "false");
  if (r->outcome != CGR_FLIGHT_REFUSED && r->outcome != CGR_FLIGHT_INTERNAL)
    cgr__text_add(text, ", \"requests\": %d, \"tokens\": %d, \"padded_requests\": %d, \"padded_tokens\": %d", r->num_requests,
                  r->num_tokens, r->key.num_requests, r->key.num_tokens);
  cgr__text_add(text, ", \"bytes_staged\": %" PRIu64, r->bytes_staged);
  cgr__text_add(text, ", \"layout\": \"%08x\", \"at_ns\": %" PRIu64 ", \"prepare_ns\": %" PRIu64 ", \"launch_ns\": %" PRIu64,
                r->layout, r->at_ns, r->prepare_ns, r->launch_ns);
  if (r->guard.error != CGR_GUARD_NONE)
    add_guard(text, &r->guard);
  cgr__text_add(text, "}");
}
