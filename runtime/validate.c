/* What a configuration can run on and what it takes, without creating anything. */
#include <stdlib.h>

#include "runtime/runtime.h"

/* Checks a configuration on `device`, or on the one that it names, and hands the setup to `use` while the device is open. */
static cgr_status with_setup(const cgr_config *config, cgr_device *device, cgr__findings *findings,
                             cgr_status (*use)(const cgr__setup *setup, void *context), void *context) {
  cgr_config known;
  bool owns = false;
  CGR__TRY(cgr__config_read(config, &known));
  if (device)
    known.device_handle = device;
  CGR__TRY(cgr__config_device(&known, &device, &owns));
  cgr__setup *setup = calloc(1, sizeof *setup);
  cgr_status status = CGR_OK;
  if (setup) {
    cgr__setup_make(&known, device, setup, findings);
    status = findings->count == 0 ? use(setup, context) : CGR_OK;
    free(setup->layers);
  } else {
    status = cgr__fail(CGR_ERROR_OUT_OF_MEMORY, "config: no host memory (%zu bytes)", sizeof *setup);
  }
  free(setup);
  if (owns)
    cgr_device_close(device);
  return status;
}

static cgr_status lay_out(const cgr__setup *setup, cgr__layout *layout) {
  return cgr__layout_make(&setup->limits, setup->declared, setup->config.num_buffers, layout);
}

/* The last check needs the sizes of everything. */
static cgr_status check_memory(const cgr__setup *setup, void *context) {
  cgr__layout *layout = malloc(sizeof *layout);
  if (!layout)
    return cgr__fail(CGR_ERROR_OUT_OF_MEMORY, "cgr_validate: no host memory (%zu bytes)", sizeof *layout);
  cgr_status status = lay_out(setup, layout);
  if (status == CGR_OK)
    cgr__check_memory(&setup->config, layout, context);
  free(layout);
  return status;
}

static cgr_status validate(const cgr_config *config, cgr_device *device, cgr__findings *findings) {
  cgr_status status = with_setup(config, device, findings, check_memory, findings);
  if (status != CGR_OK) {
    cgr__findings_add_failure(findings, status, "config");
    return status; /* with the message that creation fails with */
  }
  return cgr__findings_status(findings, "cgr_validate: config");
}

cgr_status cgr_validate(const cgr_config *config, cgr_device *device, cgr_finding *list, int32_t capacity, int32_t *count) {
  cgr__findings findings;
  CGR__REQUIRE(count, "cgr_validate");
  *count = 0;
  if (capacity < 0 || (capacity > 0 && !list))
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "cgr_validate: findings is %p with capacity %d, expected room for them",
                     (void *)list, capacity);
  cgr__findings_init(&findings, list, capacity);
  cgr_status status = validate(config, device, &findings);
  *count = findings.count;
  return status;
}

static cgr_status measure(const cgr__setup *setup, void *context) {
  cgr_memory_sizes *sizes = context;
  cgr__layout *layout = malloc(sizeof *layout);
  if (!layout)
    return cgr__fail(CGR_ERROR_OUT_OF_MEMORY, "cgr_runtime_memory: no host memory (%zu bytes)", sizeof *layout);
  cgr_status status = lay_out(setup, layout);
  sizes->device_bytes = layout->bytes;
  sizes->pinned_bytes = layout->pinned_bytes;
  sizes->host_bytes = sizeof(struct cgr_runtime) + cgr__setup_host_bytes(setup);
  free(layout);
  return status;
}

cgr_status cgr_runtime_memory(const cgr_config *config, cgr_memory_sizes *sizes) {
  cgr__findings findings;
  cgr_memory_sizes full = CGR_MEMORY_SIZES_INIT;
  CGR__TRY(cgr__sized_check("cgr_runtime_memory: sizes", sizes));
  cgr__findings_init(&findings, NULL, 0);
  CGR__TRY(with_setup(config, NULL, &findings, measure, &full));
  CGR__TRY(cgr__findings_status(&findings, "cgr_runtime_memory: config"));
  cgr__sized_write(sizes, &full, sizeof full);
  return CGR_OK;
}
