/* cgr: the CUDA graph runtime. C11, also valid C++11. What an engine needs to run its steps.
 *
 * The runtime turns the steps of an LLM engine into CUDA graph replays. An engine opens a device, makes its KV cache, creates a
 * runtime over both and captures its model once per bucket. Then, per step, it calls cgr_step_prepare and cgr_step_launch.
 *
 * Start with the rules in base.h, then read in this order. Apart, for those who need them: inspect.h and tracing.h look at a
 * runtime, names.h has the names of enumerators, planners.h plans without a runtime, gather.h copies pages of an 8-bit cache
 * as 16-bit values, ask.h asks what kernels can do and want, programs.h has a draft model next to its target, ranks.h keeps
 * several GPUs in step, collectives.h has what collectives of other libraries need, stops.h ends requests on the device, interop/
 * has the plans of other libraries' kernels, and an adapter for NCCL.
 *
 * Reserved for later versions, and refused by name until then (CGR_ERROR_UNSUPPORTED, or CGR_ERROR_INVALID_ARGUMENT where only
 * the number of a lane is given): more than one lane, several steps in one launch. */
#ifndef CGR_CGR_H
#define CGR_CGR_H

#include "cgr/base.h"      /* rules, statuses, element types, the version */
#include "cgr/device.h"    /* devices, memory, streams, events, copies */
#include "cgr/needs.h"     /* what attention kernels can do and want */
#include "cgr/attention.h" /* views, groups of pages, layers, the attention call, backends */
#include "cgr/config.h"    /* modes, sizes, the configuration; validate, memory, create, destroy */
#include "cgr/requests.h"  /* rows and their pages */
#include "cgr/record.h"    /* persistent buffers; what `record` calls */
#include "cgr/step.h"      /* batches, the standing batch, prepare, launch, wait, results */
#include "cgr/graphs.h"    /* reasons, capture, budgets, regions */

#endif
