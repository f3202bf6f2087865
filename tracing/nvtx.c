/* NVTX version 3: headers only, which look for a tool when the first of their functions is called. */
#include "tracing/nvtx.h"

#ifdef CGR_WITH_NVTX

#include <pthread.h>
#include <stddef.h>

#include <nvtx3/nvToolsExt.h>
#include <nvtx3/nvToolsExtCuda.h>
#ifdef CGR_NVTX_SCHEMAS /* toolkits have them from CUDA 13.0 on; before that, a step shows only its number */
#include <nvtx3/nvToolsExtPayload.h>
#endif

#include "cgr/cgr.h"
#include "cgr/names.h"

static const uint32_t category_of[CGR__RANGE_COUNT] = {
#define RANGE_CATEGORY(name, text, category) CGR__CATEGORY_##category,
  CGR__RANGE_LIST(RANGE_CATEGORY)
#undef RANGE_CATEGORY
};

static const char *const categories[CGR__CATEGORY_COUNT] = {
#define CATEGORY_TEXT(name, text) text,
  CGR__CATEGORY_LIST(CATEGORY_TEXT)
#undef CATEGORY_TEXT
};

/* One per process, for as long as it runs: ranges of several runtimes may be open, and what the tool keeps of them is small. */
static struct {
  pthread_once_t once;
  nvtxDomainHandle_t domain; /* NULL: no tool listens */
  nvtxStringHandle_t name[CGR__RANGE_COUNT];
  bool schemas; /* the tool knows payloads with one */
} nvtx = { .once = PTHREAD_ONCE_INIT };

/* --------------------------------------------------------------------------------------------------------------- schemas */

#ifdef CGR_NVTX_SCHEMAS

#define COUNT(array) (sizeof(array) / sizeof(array)[0])
#define FIELD(member, kind, text) \
  { .type = (kind), .name = #member, .description = (text), .offset = offsetof(cgr__nvtx_range_step, member) }
#define KEY_FIELD(member, kind, text) \
  { .type = (kind), .name = #member, .description = (text), .offset = offsetof(cgr__nvtx_range_key, member) }

/* A key is how a step begins. */
static const nvtxPayloadSchemaEntry_t fields[] = {
  KEY_FIELD(graph, NVTX_PAYLOAD_ENTRY_TYPE_INT32, "index of the graph; -1: an eager step"),
  KEY_FIELD(kind, CGR__SCHEMA_KIND, "of the graph"),
  KEY_FIELD(padded_requests, NVTX_PAYLOAD_ENTRY_TYPE_INT32, "of the key"),
  KEY_FIELD(padded_tokens, NVTX_PAYLOAD_ENTRY_TYPE_INT32, "of the key"),
  KEY_FIELD(query_len, NVTX_PAYLOAD_ENTRY_TYPE_INT32, "of the key; 0: mixed"),
  KEY_FIELD(variant, NVTX_PAYLOAD_ENTRY_TYPE_UINT32, "of the key"),
  FIELD(num_requests, NVTX_PAYLOAD_ENTRY_TYPE_INT32, "real requests"),
  FIELD(num_tokens, NVTX_PAYLOAD_ENTRY_TYPE_INT32, "real tokens"),
  FIELD(reason, CGR__SCHEMA_REASON, "why the step runs as it does"),
  FIELD(drafts, NVTX_PAYLOAD_ENTRY_TYPE_INT32, "guesses that the step verifies"),
  FIELD(seq, NVTX_PAYLOAD_ENTRY_TYPE_UINT64, "number of the step"),
  FIELD(bytes_staged, NVTX_PAYLOAD_ENTRY_TYPE_UINT64, "bytes that the device reads for the step"),
};
#define KEY_FIELDS 6

_Static_assert(offsetof(cgr__nvtx_range_step, key) == 0, "a step begins with its key");

static uint64_t register_struct(uint64_t id, const char *name, size_t count, size_t bytes) {
  const nvtxPayloadSchemaAttr_t schema = {
    .fieldMask = NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_NAME | NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_TYPE |
                 NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_ENTRIES | NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_NUM_ENTRIES |
                 NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_STATIC_SIZE | NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_SCHEMA_ID,
    .name = name,
    .type = NVTX_PAYLOAD_SCHEMA_TYPE_STATIC,
    .entries = fields,
    .numEntries = count,
    .payloadStaticSize = bytes,
    .schemaId = id,
  };
  return nvtxPayloadSchemaRegister(nvtx.domain, &schema);
}

static uint64_t register_enum(uint64_t id, const char *name, const nvtxPayloadEnum_t *values, size_t count) {
  const nvtxPayloadEnumAttr_t list = {
    .fieldMask = NVTX_PAYLOAD_ENUM_ATTR_FIELD_NAME | NVTX_PAYLOAD_ENUM_ATTR_FIELD_ENTRIES |
                 NVTX_PAYLOAD_ENUM_ATTR_FIELD_NUM_ENTRIES | NVTX_PAYLOAD_ENUM_ATTR_FIELD_SIZE |
                 NVTX_PAYLOAD_ENUM_ATTR_FIELD_SCHEMA_ID,
    .name = name,
    .entries = values,
    .numEntries = count,
    .sizeOfEnum = sizeof(int32_t),
    .schemaId = id,
  };
  return nvtxPayloadEnumRegister(nvtx.domain, &list);
}

static bool register_schemas(void) {
  nvtxPayloadEnum_t kinds[CGR_KIND_FULL + 1] = { { 0 } }, reasons[CGR_REASON_COUNT_] = { { 0 } };
  for (size_t i = 0; i < COUNT(kinds); i++)
    kinds[i] = (nvtxPayloadEnum_t){ .name = cgr_graph_kind_name((cgr_graph_kind)i), .value = i };
  for (size_t i = 0; i < COUNT(reasons); i++)
    reasons[i] = (nvtxPayloadEnum_t){ .name = cgr_reason_name((cgr_reason)i), .value = i };
  return register_enum(CGR__SCHEMA_KIND, "kind", kinds, COUNT(kinds)) != 0 &&
         register_enum(CGR__SCHEMA_REASON, "reason", reasons, COUNT(reasons)) != 0 &&
         register_struct(CGR__SCHEMA_KEY, "key", KEY_FIELDS, sizeof(cgr__nvtx_range_key)) != 0 &&
         register_struct(CGR__SCHEMA_STEP, "step", COUNT(fields), sizeof(cgr__nvtx_range_step)) != 0;
}

/* The tool copies the data before the call returns. */
static void begin_data(nvtxEventAttributes_t *event, const nvtxPayloadData_t *data) {
  event->payloadType = NVTX_PAYLOAD_TYPE_EXT;
  event->reserved0 = 1; /* that many */
  event->payload.ullValue = (uint64_t)(uintptr_t)data;
}

#endif

/* ---------------------------------------------------------------------------------------------------------------- ranges */

static void open_once(void) {
  nvtx.domain = nvtxDomainCreateA("cgr");
  if (!nvtx.domain)
    return;
  for (uint32_t i = CGR__CATEGORY_NONE + 1; i < CGR__CATEGORY_COUNT; i++)
    nvtxDomainNameCategoryA(nvtx.domain, i, categories[i]);
  for (int i = 0; i < CGR__RANGE_COUNT; i++)
    nvtx.name[i] = nvtxDomainRegisterStringA(nvtx.domain, cgr__nvtx_range_name((cgr__nvtx_range)i));
#ifdef CGR_NVTX_SCHEMAS
  nvtx.schemas = register_schemas();
#endif
}

bool cgr__nvtx_open(void) {
  pthread_once(&nvtx.once, open_once);
  return nvtx.domain != NULL;
}

static nvtxEventAttributes_t event_of(cgr__nvtx_range range) {
  nvtxEventAttributes_t event = { .version = NVTX_VERSION, .size = NVTX_EVENT_ATTRIB_STRUCT_SIZE };
  if ((int)range >= CGR__RANGE_COUNT) { /* the engine's: the tool copies the name */
    event.category = CGR__CATEGORY_LAUNCH;
    event.messageType = NVTX_MESSAGE_TYPE_ASCII;
    event.message.ascii = cgr__nvtx_range_name(range);
    return event;
  }
  event.category = category_of[range];
  event.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
  event.message.registered = nvtx.name[range];
  return event;
}

static void push_event(const nvtxEventAttributes_t *event) { nvtxDomainRangePushEx(nvtx.domain, event); }

void cgr__nvtx_begin(cgr__nvtx_range range) {
  const nvtxEventAttributes_t event = event_of(range);
  push_event(&event);
}

void cgr__nvtx_begin_layer(cgr__nvtx_range range, int32_t layer) {
  nvtxEventAttributes_t event = event_of(range);
  event.payloadType = NVTX_PAYLOAD_TYPE_INT32;
  event.payload.iValue = layer;
  push_event(&event);
}

void cgr__nvtx_begin_number(cgr__nvtx_range range, uint64_t number) {
  nvtxEventAttributes_t event = event_of(range);
  event.payloadType = NVTX_PAYLOAD_TYPE_UNSIGNED_INT64;
  event.payload.ullValue = number;
  push_event(&event);
}

/* A struct of this schema; `number` stands in for it if the tool, or the toolkit, knows no schemas. */
static void begin_struct(cgr__nvtx_range range, uint64_t schema, const void *data, size_t bytes, uint64_t number) {
#ifdef CGR_NVTX_SCHEMAS
  const nvtxPayloadData_t payload = { schema, bytes, data };
  nvtxEventAttributes_t event = event_of(range);
  if (nvtx.schemas) {
    begin_data(&event, &payload);
    push_event(&event);
    return;
  }
#endif
  (void)schema, (void)data, (void)bytes;
  cgr__nvtx_begin_number(range, number);
}

void cgr__nvtx_begin_key(cgr__nvtx_range range, const cgr__nvtx_range_key *key) {
  begin_struct(range, CGR__SCHEMA_KEY, key, sizeof *key, (uint64_t)key->padded_tokens);
}

void cgr__nvtx_begin_step(cgr__nvtx_range range, const cgr__nvtx_range_step *step) {
  begin_struct(range, CGR__SCHEMA_STEP, step, sizeof *step, step->seq);
}

void cgr__nvtx_end(void) { nvtxDomainRangePop(nvtx.domain); }

/* Ends a range with the step as its payload. A tool that knows no schemas would not end it then, so it gets a plain pop. */
void cgr__nvtx_end_step(const cgr__nvtx_range_step *step) {
#ifdef CGR_NVTX_SCHEMAS
  const nvtxPayloadData_t data = { CGR__SCHEMA_STEP, sizeof *step, step };
  if (nvtx.schemas) {
    nvtxRangePopPayload(nvtx.domain, &data, 1);
    return;
  }
#endif
  (void)step;
  cgr__nvtx_end();
}

/* ----------------------------------------------------------------------------------------------------------------- names */

/* The device makes them with the driver's functions. */
void cgr__nvtx_name_stream(void *stream, const char *name) { nvtxNameCuStreamA((CUstream)stream, name); }
void cgr__nvtx_name_event(void *event, const char *name) { nvtxNameCuEventA((CUevent)event, name); }

#endif
