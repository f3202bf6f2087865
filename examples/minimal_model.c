/* The model on the host: functions that a stream calls. On CUDA they are kernels, those of minimal_model.cu. */
#include <stdio.h>
#include <string.h>

#include "minimal_arithmetic.h"

static cgr_status find_buffer(cgr_runtime *runtime, cgr_buffer buffer, void **address) {
  cgr_buffer_view view = CGR_BUFFER_VIEW_INIT;
  cgr_status status = cgr_buffer_get(runtime, NULL, buffer, 0, &view);
  *address = view.data;
  return status;
}

cgr_status minimal_create(cgr_runtime *runtime, minimal_model *model) {
  const cgr_buffer names[4] = { CGR_BUFFER_INPUT_IDS, CGR_BUFFER_POSITIONS, CGR_BUFFER_LOGITS_INDICES, CGR_BUFFER_NEXT_TOKENS };
  const size_t heads = MINIMAL_TOKENS * MINIMAL_HEAD_DIM;
  cgr_device *device = NULL;
  cgr_device_info info = CGR_DEVICE_INFO_INIT;
  void *buffers[4], *memory = NULL;
  cgr_status status = cgr_runtime_device(runtime, &device);
  if (status == CGR_OK)
    status = cgr_device_get_info(device, &info);
#ifndef MINIMAL_CUDA
  if (status == CGR_OK && info.kind == CGR_DEVICE_KIND_CUDA) {
    fputs("minimal_model.c was compiled without MINIMAL_CUDA, expected the device host\n", stderr);
    return CGR_ERROR_UNSUPPORTED;
  }
#endif
  for (int i = 0; i < 4 && status == CGR_OK; i++)
    status = find_buffer(runtime, names[i], &buffers[i]);
  if (status == CGR_OK)
    status = cgr_memory_alloc(device, 4 * heads * sizeof *model->q + MINIMAL_TOKENS * MINIMAL_X * sizeof *model->x, &memory);
  if (status != CGR_OK)
    return status;
  uint16_t *q = memory;
  *model = (minimal_model){ .device = device, .kind = info.kind, .ordinal = info.ordinal, .q = q };
  model->k = q + heads, model->v = q + 2 * heads, model->out = q + 3 * heads, model->x = (float *)(q + 4 * heads);
  model->input_ids = buffers[0], model->positions = buffers[1];
  model->logits_indices = buffers[2], model->next_tokens = buffers[3];
  return CGR_OK;
}

cgr_status minimal_destroy(minimal_model *model) { return cgr_memory_free(model->device, model->q); }

static void run(const void *args) {
  const minimal_launch *launch = args;
  for (int32_t i = 0; i < launch->count; i++)
    minimal_one(launch, i);
}

static cgr_status enqueue(const minimal_launch *launch, cudaStream_t stream) {
#ifdef MINIMAL_CUDA
  if (launch->model.kind == CGR_DEVICE_KIND_CUDA)
    return minimal_launch_cuda(launch, stream) == 0 ? CGR_OK : CGR_ERROR_DEVICE;
#endif
  return cgr_launch_host(launch->model.device, run, launch, sizeof *launch, stream);
}

cgr_status minimal_embed(const minimal_model *model, int32_t num_tokens, cudaStream_t stream) {
  const minimal_launch launch = { *model, MINIMAL_EMBED, 0, num_tokens, 0 };
  return enqueue(&launch, stream);
}

cgr_status minimal_project(const minimal_model *model, int32_t layer, int32_t num_tokens, cudaStream_t stream) {
  const minimal_launch launch = { *model, MINIMAL_PROJECT, layer, num_tokens, 0 };
  return enqueue(&launch, stream);
}

cgr_status minimal_add(const minimal_model *model, int32_t layer, int32_t num_tokens, cudaStream_t stream) {
  const minimal_launch launch = { *model, MINIMAL_ADD, layer, num_tokens, 0 };
  return enqueue(&launch, stream);
}

cgr_status minimal_sample(const minimal_model *model, int32_t num_requests, cudaStream_t stream) {
  const minimal_launch launch = { *model, MINIMAL_SAMPLE, 0, num_requests, 0 };
  return enqueue(&launch, stream);
}

cgr_status minimal_record(cgr_recorder *recorder, void *context) {
  const minimal_model *model = context;
  cgr_record_info info = CGR_RECORD_INFO_INIT;
  TRY(cgr_record_get_info(recorder, &info));
  TRY(minimal_embed(model, info.num_tokens, info.stream));
  for (int32_t layer = 0; layer < 2; layer++) {
    cgr_attention attention = CGR_ATTENTION_INIT;
    attention.layer = layer;
    TRY(cgr_view_make(model->q, CGR_DTYPE_BF16, 1, MINIMAL_HEAD_DIM, &attention.q));
    TRY(cgr_view_make(model->k, CGR_DTYPE_BF16, 1, MINIMAL_HEAD_DIM, &attention.k));
    TRY(cgr_view_make(model->v, CGR_DTYPE_BF16, 1, MINIMAL_HEAD_DIM, &attention.v));
    TRY(cgr_view_make(model->out, CGR_DTYPE_BF16, 1, MINIMAL_HEAD_DIM, &attention.out));
    TRY(minimal_project(model, layer, info.num_tokens, info.stream));
    TRY(cgr_record_attention(recorder, &attention));
    TRY(minimal_add(model, layer, info.num_tokens, info.stream));
  }
  return minimal_sample(model, info.num_requests, info.stream);
}

int32_t minimal_tokens(const char *text, int32_t *tokens) {
  int32_t count = 0;
  tokens[0] = 0;
  for (; count < MINIMAL_TOKENS && text[count]; count++)
    tokens[count] = text[count] & (MINIMAL_VOCAB - 1); /* ASCII's low bits */
  return count > 0 ? count : 1;
}

char minimal_letter(int32_t token) { return token == 0 ? ' ' : (char)('a' + token - 1); }

void minimal_print(const int32_t *tokens, int32_t count) {
  for (int32_t i = 0; i < count; i++)
    putchar(minimal_letter(tokens[i]));
}

int minimal_help(const char *program, int argc, char **argv) {
  if (argc < 2 || (strcmp(argv[1], "--help") != 0 && strcmp(argv[1], "-h") != 0))
    return 0;
  printf("Usage: %s [DEVICE [TEXT]]\n\n"
         "Continues TEXT to 65 letters, with a model of two layers whose weights were written by hand. Its rule: after\n"
         "each letter comes the one that followed it most often so far. \"graphs g\" becomes \"graphs graphs graphs\".\n"
         "If a letter is new, or two have followed it equally often, the rule does not say what comes.\n\n"
         "  DEVICE  host, cuda or cuda:N; default: a GPU if there is one, else host\n"
         "  TEXT    letters and spaces, of which the first %d count; default: \"graphs g\"\n",
         program, MINIMAL_TOKENS);
  return 1;
}
