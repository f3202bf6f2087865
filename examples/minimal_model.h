/* The model of the small examples, as four operations that run on the host and on CUDA.
 *
 * Its weights were not trained but written by hand, so its answer is known: each letter is followed by what followed it most
 * often so far. "graphs g" becomes "graphs graphs graphs". Two layers can do that and one cannot: layer 0 finds, by position,
 * which letter precedes each letter; layer 1 looks for letters that follow one like the last.
 *
 * A token's vector x has three parts of 32 numbers, one for each letter: which letter this is, which one precedes it, and
 * which ones may come next. Layer l adds its output to part l + 1, and the sampler takes the largest number of the last part. */
#ifndef MINIMAL_MODEL_H
#define MINIMAL_MODEL_H

#include <cgr/cgr.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
  MINIMAL_VOCAB = 32,            /* token 0 is a space, 1 to 26 are letters */
  MINIMAL_TOKENS = 32,           /* most tokens of a step */
  MINIMAL_X = 3 * MINIMAL_VOCAB, /* elements of x */
  MINIMAL_HEAD_DIM = 64          /* of the only head; this many positions can be told apart */
};
#define MINIMAL_SCALE 20.0f /* of q.k: a match outweighs the rest exp(20) to 1 */

typedef struct minimal_model {
  cgr_device *device;
  int32_t kind, ordinal;                                 /* of cgr_device_info */
  uint16_t *q, *k, *v, *out;                             /* bf16 [MINIMAL_TOKENS][MINIMAL_HEAD_DIM], device memory */
  float *x;                                              /* [MINIMAL_TOKENS][MINIMAL_X] after them in memory */
  const int32_t *input_ids, *positions, *logits_indices; /* cgr's buffers of these names */
  int32_t *next_tokens;
} minimal_model;

/* Returns a status that is not CGR_OK from the calling function. */
#define TRY(call)                   \
  do {                              \
    cgr_status try_status = (call); \
    if (try_status != CGR_OK)       \
      return try_status;            \
  } while (0)

/* Takes memory for the activations and finds cgr's buffers, which do not move while the runtime lives. */
cgr_status minimal_create(cgr_runtime *runtime, minimal_model *model);
cgr_status minimal_destroy(minimal_model *model); /* after the runtime, whose graphs hold its addresses */

/* Each enqueues one operation, for padded counts. */
cgr_status minimal_embed(const minimal_model *model, int32_t num_tokens, cudaStream_t stream);
cgr_status minimal_project(const minimal_model *model, int32_t layer, int32_t num_tokens, cudaStream_t stream); /* q, k, v of x */
cgr_status minimal_add(const minimal_model *model, int32_t layer, int32_t num_tokens, cudaStream_t stream);     /* out to x */
cgr_status minimal_sample(const minimal_model *model, int32_t num_requests, cudaStream_t stream);

/* A cgr_record_function: `record` of minimal.c, for programs that are about something else. cgr_capture.engine is the model. */
cgr_status minimal_record(cgr_recorder *recorder, void *model);

/* Text as tokens, at least one (a space) and at most MINIMAL_TOKENS: returns how many. And a token as a letter. */
int32_t minimal_tokens(const char *text, int32_t *tokens);
char minimal_letter(int32_t token);
void minimal_print(const int32_t *tokens, int32_t count);

/* Whether the first argument is -h or --help, for which it prints the arguments of `program` and the model's rule. */
int minimal_help(const char *program, int argc, char **argv);

#ifdef __cplusplus
}
#endif
#endif
