/* What the _INIT macros give, for bindings (cgr/bindings.h): the size, of a configuration also magic and version, and zeros. */
#include "cgr/bindings.h"

#include <stdbool.h>
#include <string.h>

#include "base/limits.h"
#include "base/status.h"

static const struct {
  cgr_struct kind;
  const char *name;
} structs[] = {
#define ROW(kind, number, type, init) { kind, #type },
  CGR_STRUCT_LIST(ROW)
#undef ROW
      { CGR_STRUCT_KEY, "cgr_key" },
};

static const char *find_name(cgr_struct kind) {
  for (size_t i = 0; i < sizeof structs / sizeof structs[0]; i++)
    if (structs[i].kind == kind)
      return structs[i].name;
  return NULL;
}

const char *cgr_struct_name(cgr_struct kind) {
  const char *name = find_name(kind);
  return name ? name : "unknown";
}

static bool is_struct_size(cgr_struct kind, size_t size) {
  if (kind == CGR_STRUCT_KEY)
    return size == sizeof(cgr_key);
  const size_t least = kind == CGR_STRUCT_CONFIG ? offsetof(cgr_config, device) : CGR__STRUCT_UNIT;
  return size >= least && size <= CGR__MAX_STRUCT && size % CGR__STRUCT_UNIT == 0;
}

cgr_status cgr_init(cgr_struct kind, uint32_t header_version, void *out, size_t size) {
  CGR__REQUIRE(out, "cgr_init");
  if (!find_name(kind))
    return cgr__fail(CGR_ERROR_INVALID_ENUM, "cgr_init: kind is %d, expected one of cgr_struct", (int)kind);
  if (!is_struct_size(kind, size))
    return cgr__fail(CGR_ERROR_INVALID_STRUCT, "cgr_init: size is %zu, expected that of a %s in the binding's headers", size,
                     cgr_struct_name(kind));
  memset(out, 0, size);
  const uint32_t begin[] = { (uint32_t)size, CGR_CONFIG_MAGIC, header_version };
  if (kind != CGR_STRUCT_KEY)
    memcpy(out, begin, kind == CGR_STRUCT_CONFIG ? sizeof begin : sizeof begin[0]);
  return CGR_OK;
}
