/* Programs: a draft model next to its target, over the same requests. Not included by cgr.h.
 *
 * Program 0 is the target; the others, up to cgr_config.num_programs, are drafts. Each has layers and groups of its own
 * (cgr_layer.program, cgr_group.program), a `record` (cgr_capture.program), graphs of the same sizes (cgr_key.program) and, for
 * each row, a length: how many tokens the row has in this program's cache. A step is of one program (cgr_batch.program). All of
 * them share rows, tags, the ring and the numbers of steps, and the buffers of a step: those of groups belong to their program,
 * and each program has a CGR_BUFFER_ROW_COMPUTED (cgr_where.program).
 *
 * A request in a draft's step is of one of two kinds.
 * - It has ids from the host, as a prompt's chunks in the target do, with CGR_REQUEST_PARTIAL or without.
 * - It *follows*: with CGR_REQUEST_DRAFTS(n), n from 1 on, 1 + n tokens, and `tokens` NULL or CGR_TOKEN_LAST and CGR_TOKEN_DRAFTs,
 *   it catches up with what the target's last step with this row has sampled, one token and the guesses that it accepted, whether
 *   the host knows their number c or not. 1 + n bounds it. The first c tokens of the request are these; those after them repeat
 *   the last one, take pages and time, and count for nothing. CGR_BUFFER_LOGITS_INDICES is the last of the c. Then the row has
 *   one token more in the draft than in the target, the one that the target's next step begins with.
 *
 * What the sampler of a draft's step leaves in CGR_BUFFER_NEXT_TOKENS [i][0] is the row's guess 0, CGR_TOKEN_DRAFT(0) of the
 * target's next step; a draft that guesses several tokens at once writes those after it to CGR_BUFFER_DRAFT_TOKENS [i][1 ..].
 * So a batch of the target with flags CGR_REQUEST_DRAFTS(n), query lengths 1 + n and `tokens` NULL, then the same batch of the
 * draft, then that of the target again, and so on, run without the host's knowing what was accepted; where nothing else changes,
 * each travels as a header. The last token and the number of accepted guesses of a row stay those of the target. In results of
 * a draft num_tokens is 1 for a request that guessed, and tokens [0] its guess 0; they need not be waited for.
 *
 * A draft that does not follow every step of the target falls behind. A request that lacks less than 1 token, more than 1 + n, or
 * more than the target's last step has sampled is CGR_GUARD_LENGTH, with the number in `value`, and runs with length 0. Where the
 * host's bounds say so already, cgr_step_prepare refuses it (CGR_ERROR_INVALID_ARGUMENT). Give such a row its tokens from the
 * host, without CGR_REQUEST_DRAFTS, or set its length.
 *
 * cgr_request_set_length sets the target's length, and a draft's back to it if that may have more. A guess that is wrong, or
 * comes from a cache that lacks something, is rejected by the target: what is sampled never depends on a draft.
 *
 * Refused by name in this version: for drafts the standing batch, variants and length sets; several steps of a draft in one graph.
 * cgr_runtime_self_test runs the graphs of program 0 alone. */
#ifndef CGR_PROGRAMS_H
#define CGR_PROGRAMS_H

#include "cgr/config.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Sets how many of the row's tokens are in the cache of a draft, 1 .. num_programs - 1: fewer, or more over pages that the engine
 * or other rows fill (a shared prefix). It is 0 when a row opens. Pages and statuses are those of cgr_request_set_length, with the
 * draft's groups; the target's length and last token stay as they are. After CGR_ERROR_STEP of a draft's step, set its rows back.
 * CGR_ERROR_INVALID_ARGUMENT: there is no such draft, or num_tokens is negative. CGR_ERROR_STATE while the row is in the prepared
 * step.
 * Threads one · Capture no · Sync never · Alloc never */
CGR_API cgr_status cgr_program_set_length(cgr_runtime *runtime, int32_t row, int32_t program, int32_t num_tokens);

/* How many of the row's tokens are in the cache of a program after every step launched so far, at most and at least, as
 * cgr_request_info tells of program 0. Both are the same, and exact, when no step with guesses of the row is under way. A closed row
 * is CGR_ERROR_ROW_CLOSED. `most` or `least` may be NULL.
 * Threads one · Capture ok · Sync never · Alloc never */
CGR_API cgr_status cgr_program_get_length(cgr_runtime *runtime, int32_t row, int32_t program, int32_t *most, int32_t *least);

#ifdef __cplusplus
}
#endif
#endif
