/* What most blocks of the guide use but do not show. */
#include <stdio.h>
#include <stdlib.h>

#include "cgr/cgr.h"
#include "cgr/gather.h"
#include "cgr/inspect.h"
#include "cgr/names.h"
#include "cgr/planners.h"
#include "cgr/stops.h"
#include "cgr/tracing.h"

#define TRY(call)                   \
  do {                              \
    cgr_status try_status = (call); \
    if (try_status != CGR_OK)       \
      return try_status;            \
  } while (0)

extern cgr_device *device;
extern cgr_runtime *rt;
extern cgr_capture capture;
extern cgr_batch batch;
extern void *engine;

cgr_status block(void);
