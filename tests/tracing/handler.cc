#include "tests/tracing/handler.h"

#include <cstring>

namespace cgr_test {

Tool &Tool::Get() {
  static Tool *tool = new Tool;
  return *tool;
}

void Tool::Clear() {
  events.clear();
  wrong.clear();
}

std::string Tool::Tree() const {
  std::string tree;
  for (const Event &event : events) {
    if (!event.begin) {
      tree += tree.back() == '(' ? "" : ")";
      if (tree.back() == '(')
        tree.pop_back();
      continue;
    }
    tree += tree.empty() || tree.back() == '(' ? "" : " ";
    tree += event.name;
    auto value = event.payload.find("value");
    if (value != event.payload.end() && event.name != "cgr_step_wait")
      tree += ":" + value->second;
    tree += "(";
  }
  return tree;
}

int Tool::Depth() const {
  int depth = 0;
  for (const Event &event : events)
    depth += event.begin ? 1 : -1;
  return depth;
}

const Tool::Event *Tool::Find(const std::string &name, bool begin) const {
  for (const Event &event : events)
    if (event.begin == begin && event.name == name)
      return &event;
  return nullptr;
}

} // namespace cgr_test

#if defined(CGR_WITH_NVTX) && defined(CGR_NVTX_SCHEMAS)

#include <nvtx3/nvToolsExt.h>
#include <nvtx3/nvToolsExtCuda.h>
#include <nvtx3/nvToolsExtPayload.h>

namespace cgr_test {
namespace {

struct Schema {
  std::vector<nvtxPayloadSchemaEntry_t> entries;
  std::vector<std::string> names; // of the entries
  size_t bytes = 0;
};

std::map<uint64_t, Schema> schemas;
std::map<uint64_t, std::map<uint64_t, std::string>> enums;
std::vector<Tool::Event> open_ranges;

const char *Text(nvtxStringHandle_t handle) { return reinterpret_cast<const char *>(handle); }

std::string ValueOf(const nvtxPayloadSchemaEntry_t &entry, const unsigned char *data) {
  const auto read = [&](auto value) {
    std::memcpy(&value, data + entry.offset, sizeof value);
    return value;
  };
  switch (entry.type) {
  case NVTX_PAYLOAD_ENTRY_TYPE_INT32:
    return std::to_string(read(int32_t()));
  case NVTX_PAYLOAD_ENTRY_TYPE_UINT32:
    return std::to_string(read(uint32_t()));
  case NVTX_PAYLOAD_ENTRY_TYPE_UINT64:
    return std::to_string(read(uint64_t()));
  }
  auto list = enums.find(entry.type);
  if (list == enums.end() || !list->second.count(read(uint32_t()))) {
    Tool::Get().wrong.push_back(std::string("a field whose type was not registered: ") + entry.name);
    return "";
  }
  return list->second[read(uint32_t())];
}

Tool::Fields Decode(const nvtxPayloadData_t *data, size_t count) {
  Tool::Fields fields;
  for (size_t i = 0; i < count; i++) {
    auto schema = schemas.find(data[i].schemaId);
    if (schema == schemas.end() || data[i].size != schema->second.bytes) {
      Tool::Get().wrong.push_back("a payload whose schema was not registered, or of another size");
      continue;
    }
    for (size_t f = 0; f < schema->second.entries.size(); f++)
      fields[schema->second.names[f]] = ValueOf(schema->second.entries[f], static_cast<const unsigned char *>(data[i].payload));
  }
  return fields;
}

Tool::Fields PayloadOf(const nvtxEventAttributes_t *e) {
  switch (e->payloadType) {
  case NVTX_PAYLOAD_UNKNOWN:
    return {};
  case NVTX_PAYLOAD_TYPE_INT32:
    return { { "value", std::to_string(e->payload.iValue) } };
  case NVTX_PAYLOAD_TYPE_UNSIGNED_INT64:
    return { { "value", std::to_string(e->payload.ullValue) } };
  case NVTX_PAYLOAD_TYPE_EXT:
    return Decode(reinterpret_cast<const nvtxPayloadData_t *>(uintptr_t(e->payload.ullValue)), size_t(e->reserved0));
  }
  Tool::Get().wrong.push_back("a payload of an unknown type");
  return {};
}

nvtxDomainHandle_t NVTX_API CreateDomain(const char *name) {
  Tool::Get().domains[name]++;
  return reinterpret_cast<nvtxDomainHandle_t>(strdup(name));
}

nvtxStringHandle_t NVTX_API RegisterString(nvtxDomainHandle_t, const char *text) {
  Tool::Get().registered[text]++;
  return reinterpret_cast<nvtxStringHandle_t>(strdup(text));
}

void NVTX_API NameCategory(nvtxDomainHandle_t, uint32_t category, const char *name) { Tool::Get().categories[category] = name; }

int NVTX_API Push(nvtxDomainHandle_t domain, const nvtxEventAttributes_t *e) {
  Tool &tool = Tool::Get();
  if (e->messageType != NVTX_MESSAGE_TYPE_REGISTERED)
    tool.wrong.push_back("a range whose name is not registered");
  if (e->version != NVTX_VERSION || e->size != sizeof *e)
    tool.wrong.push_back("an event of another version");
  Tool::Event event{ true, reinterpret_cast<const char *>(domain), Text(e->message.registered), "", PayloadOf(e) };
  if (e->category != 0)
    event.category = tool.categories.count(e->category) ? tool.categories[e->category] : "?";
  tool.events.push_back(event);
  open_ranges.push_back(event);
  return int(open_ranges.size()) - 1;
}

int PopWith(const Tool::Fields &payload) {
  Tool &tool = Tool::Get();
  if (open_ranges.empty()) {
    tool.wrong.push_back("an end without a begin");
    return -1;
  }
  Tool::Event event = open_ranges.back();
  open_ranges.pop_back();
  event.begin = false;
  event.payload = payload;
  tool.events.push_back(event);
  return int(open_ranges.size());
}

int NVTX_API Pop(nvtxDomainHandle_t) { return PopWith({}); }
int NVTX_API PopPayload(nvtxDomainHandle_t, const nvtxPayloadData_t *data, size_t count) { return PopWith(Decode(data, count)); }

uint64_t NVTX_API RegisterSchema(nvtxDomainHandle_t, const nvtxPayloadSchemaAttr_t *a) {
  Schema schema;
  schema.entries.assign(a->entries, a->entries + a->numEntries);
  for (const nvtxPayloadSchemaEntry_t &entry : schema.entries)
    schema.names.push_back(entry.name);
  schema.bytes = a->payloadStaticSize;
  if (schemas.count(a->schemaId) || a->schemaId < NVTX_PAYLOAD_SCHEMA_ID_STATIC_START)
    Tool::Get().wrong.push_back("a schema whose id is taken or not static");
  schemas[a->schemaId] = schema;
  return a->schemaId;
}

uint64_t NVTX_API RegisterEnum(nvtxDomainHandle_t, const nvtxPayloadEnumAttr_t *a) {
  for (size_t i = 0; i < a->numEntries; i++)
    enums[a->schemaId][a->entries[i].value] = a->entries[i].name;
  return a->schemaId;
}

void NVTX_API NameStream(CUstream stream, const char *name) { Tool::Get().streams[stream] = name; }
void NVTX_API NameEvent(CUevent event, const char *name) { Tool::Get().cuda_events[event] = name; }

// The library only pushes and pops; a range made by start and end would be missing from the tree.
nvtxRangeId_t NVTX_API Start(nvtxDomainHandle_t, const nvtxEventAttributes_t *) {
  Tool::Get().wrong.push_back("a range that is started, expected pushes");
  return 0;
}

template <class Function> void Set(const NvtxFunctionTable table, unsigned int size, unsigned int id, Function function) {
  if (id < size)
    *table[id] = reinterpret_cast<NvtxFunctionPointer>(function);
}

int NVTX_API Inject(NvtxGetExportTableFunc_t get_table) {
  auto *callbacks = static_cast<const NvtxExportTableCallbacks *>(get_table(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable table = nullptr;
  unsigned int size = 0;
  if (!callbacks || !callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size))
    return 0;
  Set(table, size, NVTX_CBID_CORE2_DomainCreateA, CreateDomain);
  Set(table, size, NVTX_CBID_CORE2_DomainRegisterStringA, RegisterString);
  Set(table, size, NVTX_CBID_CORE2_DomainNameCategoryA, NameCategory);
  Set(table, size, NVTX_CBID_CORE2_DomainRangePushEx, Push);
  Set(table, size, NVTX_CBID_CORE2_DomainRangePop, Pop);
  Set(table, size, NVTX_CBID_CORE2_DomainRangeStartEx, Start);
  if (!callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CUDA, &table, &size))
    return 0;
  Set(table, size, NVTX_CBID_CUDA_NameCuStreamA, NameStream);
  Set(table, size, NVTX_CBID_CUDA_NameCuEventA, NameEvent);
  return 1;
}

int NVTX_API InjectExtension(nvtxExtModuleInfo_t *module) {
  if (module->moduleId != NVTX_EXT_PAYLOAD_MODULEID)
    return 0;
  intptr_t *slots = module->segments[0].functionSlots;
  slots[NVTX3EXT_CBID_nvtxPayloadSchemaRegister] = reinterpret_cast<intptr_t>(RegisterSchema);
  slots[NVTX3EXT_CBID_nvtxPayloadEnumRegister] = reinterpret_cast<intptr_t>(RegisterEnum);
  slots[NVTX3EXT_CBID_nvtxRangePopPayload] = reinterpret_cast<intptr_t>(PopPayload);
  return 1;
}

// The headers' variables, which a program has once; NVTX looks at them when it is first called.
const bool injected = [] {
  InitializeInjectionNvtx2_fnptr = Inject;
  InitializeInjectionNvtxExtension_fnptr = InjectExtension;
  return true;
}();

} // namespace

bool Tool::IsThere() { return injected; }

} // namespace cgr_test

#else

bool cgr_test::Tool::IsThere() { return false; }

#endif
