/* What a configuration can run on and what it takes, without creating anything. */
#include <stdlib.h>

#include "runtime/runtime.h"

/* What reading a configuration takes; too much for a stack. */
typedef struct reading {
  cgr_device *dev;
  bool owns;
  cgr__setup setup;
  cgr__layout layout;
} reading;

static void tell_sizes(const reading *r, cgr_memory_sizes *sizes) {
  sizes->device_bytes = r->layout.bytes;
  sizes->pinned_bytes = r->layout.pinned_bytes;
  sizes->host_bytes = sizeof(struct cgr_runtime) + cgr__setup_host_bytes(&r->setup);
}

/* Checks a configuration on `device`, or on the one that it names. `sizes`, if given, are filled in when nothing is found. */
static cgr_status check_config(const cgr_config *config, cgr_device *device, cgr__findings *findings, cgr_memory_sizes *sizes) {
  reading *r = calloc(1, sizeof *r);
  if (!r)
    return cgr__fail(CGR_ERROR_OUT_OF_MEMORY, "config: no host memory (%zu bytes)", sizeof *r);
  r->dev = device;
  cgr_status status = cgr__setup_read(config, &r->dev, &r->owns, &r->setup, &r->layout, findings);
  if (status == CGR_OK && findings->count == 0 && sizes)
    tell_sizes(r, sizes);
  if (r->owns)
    cgr_device_close(r->dev);
  free(r->setup.layers);
  free(r);
  return status;
}

static cgr_status validate_config(const cgr_config *config, cgr_device *device, cgr__findings *findings) {
  cgr_status status = check_config(config, device, findings, NULL);
  if (status != CGR_OK) {
    cgr__findings_add_failure(findings, status, "config");
    return cgr__fail_in("cgr_validate", status); /* with the message that creation fails with */
  }
  return cgr__findings_status(findings, "cgr_validate: config");
}

cgr_status cgr_validate(const cgr_config *config, cgr_device *device, cgr_finding *list, int32_t capacity, int32_t *count) {
  cgr__findings findings;
  CGR__TRY(cgr__findings_check("cgr_validate", list, capacity, count));
  cgr__findings_init(&findings, list, capacity);
  cgr_status status = validate_config(config, device, &findings);
  *count = findings.count;
  return status;
}

static cgr_status find_sizes(const cgr_config *config, cgr_memory_sizes *sizes) {
  cgr_config asked;
  cgr__findings findings;
  cgr_memory_sizes full = CGR_MEMORY_SIZES_INIT;
  CGR__TRY(cgr__sized_check("cgr_runtime_memory: sizes", "CGR_MEMORY_SIZES_INIT", sizes));
  CGR__TRY(cgr__sized_read("config", "CGR_CONFIG_INIT", config, &asked, sizeof asked));
  asked.device_memory = asked.pinned_memory = NULL; /* what is given so far does not count: how much to give is the question */
  asked.device_memory_size = asked.pinned_memory_size = 0;
  cgr__findings_init(&findings, NULL, 0);
  findings.see = "cgr_validate";
  CGR__TRY(check_config(&asked, NULL, &findings, &full));
  CGR__TRY(cgr__findings_status(&findings, "cgr_runtime_memory: config"));
  cgr__sized_write(sizes, &full, sizeof full);
  return CGR_OK;
}

cgr_status cgr_runtime_memory(const cgr_config *config, cgr_memory_sizes *sizes) {
  cgr_status status = find_sizes(config, sizes);
  return cgr__fail_in("cgr_runtime_memory", status);
}
