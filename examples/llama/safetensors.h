/* The tensors of a folder: model.safetensors, or the shards that model.safetensors.index.json names. */
#ifndef LLAMA_SAFETENSORS_H
#define LLAMA_SAFETENSORS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LLAMA_MAX_RANK 8

typedef struct llama_tensor {
  char *name;
  const char *type; /* the file's name for its dtype, "BF16" */
  int32_t dtype;    /* cgr_dtype; CGR_DTYPE_NONE for one that is not read here (F64, U8, ...) */
  int32_t rank;
  int64_t shape[LLAMA_MAX_RANK];
  uint64_t count;            /* elements */
  uint64_t begin, end;       /* bytes in the data part of its file */
  const unsigned char *data; /* mapped; not aligned */
} llama_tensor;

typedef struct llama_checkpoint llama_checkpoint;

/* Every header is checked: lengths, types, products, offsets inside the file, no overlap and no hole. */
int llama_checkpoint_open(const char *folder, llama_checkpoint **checkpoint);
void llama_checkpoint_close(llama_checkpoint *checkpoint);

/* NULL when there is none of this name. */
const llama_tensor *llama_checkpoint_find(const llama_checkpoint *checkpoint, const char *name);

/* Whether two tensors of fp32, fp16 or bf16 and of one shape have the same values. */
int llama_tensor_equal(const llama_tensor *a, const llama_tensor *b);

/* Elements [first, first + count) as fp32 or bf16 (rounded to nearest even). */
void llama_tensor_read(const llama_tensor *tensor, uint64_t first, uint64_t count, int32_t dtype, void *out);

#ifdef __cplusplus
}
#endif
#endif
