/* FlashInfer's plans on the host device: the host planner, with lengths that it refuses told by the status. */
#include <string.h>

#include "kernels/families/flashinfer.h"
#include "kernels/host/launchers.h"
#include "planners/families/flashinfer_host.h"

void cgr__host_flashinfer(const void *pointer) {
  const cgr__flashinfer_args *args = (const cgr__flashinfer_args *)pointer;
  const cgr__flashinfer_arrays arrays = { args->qo_indptr, args->kv_indptr, args->live_requests };
  int32_t request;
  bool rows, good = cgr__flashinfer_lengths_fit(&args->key, &arrays, &request, &rows) &&
                    cgr__flashinfer_fill(&args->key, &arrays, args->int_workspace);
  if (!good)
    memset(args->int_workspace, 0, (size_t)args->key.at.bytes);
  if (args->status)
    *args->status = good ? CGR_OK : CGR_ERROR_INVALID_ARGUMENT;
}
