/* Row counts are rounded up (llama_gemm_rows; the buffers have room, and nothing reads the extra rows) to keep the shapes few:
 * the algorithm is chosen once per shape, and a replayed and an eager step of the same size run the same kernels. After creation
 * nothing is allocated but a choice's two layouts. All calls share the workspace, and must therefore go to one stream. */
#include "examples/llama/cuda/gemm.h"

#include <cublasLt.h>
#include <stdbool.h>
#include <stdlib.h>

#include "examples/llama/error.h"

#define WORKSPACE ((size_t)32 << 20) /* bytes */

typedef struct choice {
  bool ready;
  cublasLtMatrixLayout_t weight, x, out;
  cublasLtMatmulAlgo_t algorithm;
} choice;

struct llama_cuda_gemm {
  cgr_device *device;
  cublasLtHandle_t handle;
  cublasLtMatmulDesc_t plain, biased; /* biased: the epilogue adds the bias that was set last */
  cublasLtMatmulPreference_t preference;
  void *workspace;
  int32_t num_sizes;
  choice *choices; /* [LLAMA_NUM_MATRICES][num_sizes] */
};

/* The index of a rounded row count: 16, 32, .. 256, 320, 384, .. */
static int32_t size_index(int32_t rows) {
  int32_t rounded = llama_gemm_rows(rows);
  return rounded <= 256 ? rounded / 16 - 1 : 15 + (rounded - 256) / 64;
}

static cublasStatus_t describe(choice *c, const llama_gemm_args *a) {
  cudaDataType_t out_type = a->out_dtype == CGR_DTYPE_FP32 ? CUDA_R_32F : CUDA_R_16BF;
  uint64_t rows = (uint64_t)llama_gemm_rows(a->rows), n = (uint64_t)a->n, k = (uint64_t)a->k;
  /* Row-major [r, c] is column-major [c, r]: out^T [n, rows] = weight [n, k] * x^T [k, rows]. */
  cublasStatus_t status = cublasLtMatrixLayoutCreate(&c->weight, CUDA_R_16BF, k, n, a->k);
  if (status == CUBLAS_STATUS_SUCCESS)
    status = cublasLtMatrixLayoutCreate(&c->x, CUDA_R_16BF, k, rows, a->k);
  if (status == CUBLAS_STATUS_SUCCESS)
    status = cublasLtMatrixLayoutCreate(&c->out, out_type, n, rows, a->n);
  return status;
}

static cublasStatus_t choose(llama_cuda_gemm *g, const llama_gemm_args *a, cublasLtMatmulDesc_t operation, choice *c) {
  cublasLtMatmulHeuristicResult_t result;
  int found = 0;
  cublasStatus_t status = describe(c, a);
  if (status == CUBLAS_STATUS_SUCCESS)
    status =
        cublasLtMatmulAlgoGetHeuristic(g->handle, operation, c->weight, c->x, c->out, c->out, g->preference, 1, &result, &found);
  if (status == CUBLAS_STATUS_SUCCESS && found == 0)
    status = CUBLAS_STATUS_NOT_SUPPORTED;
  if (status == CUBLAS_STATUS_SUCCESS) {
    c->algorithm = result.algo;
    c->ready = true;
  }
  return status;
}

cgr_status llama_cuda_gemm_run(llama_cuda_gemm *g, const llama_gemm_args *a, cudaStream_t stream) {
  const float one = 1.0f, beta = a->add ? 1.0f : 0.0f;
  int32_t index = size_index(a->rows);
  if (index >= g->num_sizes)
    return CGR_ERROR_INVALID_ARGUMENT;
  choice *c = &g->choices[a->matrix * g->num_sizes + index];
  cublasLtMatmulDesc_t operation = a->bias ? g->biased : g->plain;
  if (a->bias && cublasLtMatmulDescSetAttribute(g->biased, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &a->bias, sizeof(a->bias)) !=
                     CUBLAS_STATUS_SUCCESS)
    return CGR_ERROR_DEVICE;
  if (!c->ready && choose(g, a, operation, c) != CUBLAS_STATUS_SUCCESS)
    return CGR_ERROR_UNSUPPORTED;
  cublasStatus_t status = cublasLtMatmul(g->handle, operation, &one, a->weight, c->weight, a->x, c->x, &beta, a->out, c->out,
                                         a->out, c->out, &c->algorithm, g->workspace, WORKSPACE, stream);
  return status == CUBLAS_STATUS_SUCCESS ? CGR_OK : CGR_ERROR_DEVICE;
}

/* Splits of k may only be summed in fp32. */
static cublasStatus_t prefer(llama_cuda_gemm *g) {
  size_t workspace = WORKSPACE;
  uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  cublasStatus_t status = cublasLtMatmulPreferenceCreate(&g->preference);
  if (status == CUBLAS_STATUS_SUCCESS)
    status = cublasLtMatmulPreferenceSetAttribute(g->preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace,
                                                  sizeof(workspace));
  if (status == CUBLAS_STATUS_SUCCESS)
    status = cublasLtMatmulPreferenceSetAttribute(g->preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reductions,
                                                  sizeof(reductions));
  return status;
}

/* A product with this epilogue. A bias has the type of the output. */
static cublasStatus_t describe_operation(cublasLtEpilogue_t epilogue, cublasLtMatmulDesc_t *operation) {
  cublasOperation_t transposed = CUBLAS_OP_T;
  cublasStatus_t status = cublasLtMatmulDescCreate(operation, CUBLAS_COMPUTE_32F, CUDA_R_32F);
  if (status == CUBLAS_STATUS_SUCCESS)
    status = cublasLtMatmulDescSetAttribute(*operation, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof(transposed));
  if (status == CUBLAS_STATUS_SUCCESS)
    status = cublasLtMatmulDescSetAttribute(*operation, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof(epilogue));
  return status;
}

static int make(llama_cuda_gemm *g) {
  g->choices = calloc((size_t)LLAMA_NUM_MATRICES * (size_t)g->num_sizes, sizeof(*g->choices));
  if (!g->choices)
    return llama_fail("no memory");
  cgr_status memory = cgr_memory_alloc(g->device, WORKSPACE, &g->workspace);
  if (memory != CGR_OK)
    return llama_fail("cuBLASLt's workspace: %s", cgr_last_message());
  cublasStatus_t status = cublasLtCreate(&g->handle);
  if (status == CUBLAS_STATUS_SUCCESS)
    status = describe_operation(CUBLASLT_EPILOGUE_DEFAULT, &g->plain);
  if (status == CUBLAS_STATUS_SUCCESS)
    status = describe_operation(CUBLASLT_EPILOGUE_BIAS, &g->biased);
  if (status == CUBLAS_STATUS_SUCCESS)
    status = prefer(g);
  return status == CUBLAS_STATUS_SUCCESS ? 0 : llama_fail("cuBLASLt: status %d", (int)status);
}

int llama_cuda_gemm_create(cgr_device *device, int32_t max_rows, llama_cuda_gemm **gemm) {
  *gemm = NULL;
  llama_cuda_gemm *g = calloc(1, sizeof(*g));
  if (!g)
    return llama_fail("no memory");
  g->device = device;
  g->num_sizes = size_index(max_rows) + 1;
  if (make(g) != 0) {
    llama_cuda_gemm_destroy(g);
    return -1;
  }
  *gemm = g;
  return 0;
}

void *llama_cuda_gemm_workspace(const llama_cuda_gemm *g, size_t *bytes) {
  *bytes = WORKSPACE;
  return g->workspace;
}

void llama_cuda_gemm_destroy(llama_cuda_gemm *g) {
  if (!g)
    return;
  for (int32_t i = 0; g->choices && i < LLAMA_NUM_MATRICES * g->num_sizes; i++) {
    choice *c = &g->choices[i];
    cublasLtMatrixLayout_t layouts[3] = { c->weight, c->x, c->out };
    for (int k = 0; k < 3; k++)
      if (layouts[k])
        cublasLtMatrixLayoutDestroy(layouts[k]);
  }
  if (g->preference)
    cublasLtMatmulPreferenceDestroy(g->preference);
  cublasLtMatmulDesc_t operations[2] = { g->plain, g->biased };
  for (int k = 0; k < 2; k++)
    if (operations[k])
      cublasLtMatmulDescDestroy(operations[k]);
  if (g->handle)
    cublasLtDestroy(g->handle);
  cgr_memory_free(g->device, g->workspace);
  free(g->choices);
  free(g);
}
