/* Stops: where a request ends, seen on the device, so that steps launched before the host knows do nothing for it. Not included by
 * cgr.h. */
#ifndef CGR_STOPS_H
#define CGR_STOPS_H

#include "cgr/requests.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Where a request ends. Lengths count all tokens of the row, the prompt's and the sampled ones, the last sampled one included. A
 * partial chunk samples nothing and ends nothing. */
typedef struct cgr_stops {
  uint32_t size;
  int32_t num_tokens;    /* 0 .. max_stop_tokens */
  const int32_t *tokens; /* [num_tokens] ids that end the request when it samples one: at least 0, and below vocab_size if that is
                            set. Copied; NULL with num_tokens 0 */
  int32_t max_length;    /* the request ends when it has this many tokens, 1 .. max_seq_len + 1; 0: it has no such end */
  int32_t min_length;    /* stop tokens end it only once it has this many tokens, 0 .. max_length, or .. max_seq_len + 1 */
} cgr_stops;
#define CGR_STOPS_INIT { (uint32_t)sizeof(cgr_stops), 0, NULL, 0, 0 }

/* Sets the row's stops, in a runtime with max_stop_tokens. A row opens without; they stay until it closes. They travel as
 * cgr_request_set_data does: 16 bytes for each word from the first to the last that changed, 3 + max_stop_tokens words at most.
 *
 * The last kernel of a step looks for the first sampled token that ends the request: a stop token, or the one that reaches
 * max_length (CGR_END_STOP_TOKEN if it is both). Guesses accepted after it are taken off as rejected ones are: result.num_tokens
 * and the row's length count up to it, result.ended says why. From then on the row has ended. It has no work in any later step,
 * whether that was launched already or not: seq_len 0, no slots, nothing written to its pages, num_tokens 0 and CGR_END_BEFORE.
 * This is not an error. Only a draft's request with ids of the host's (programs.h) still runs. The host takes such steps off the
 * row's length when it takes the result that ended the row, in any later call of cgr_step_prepare, _wait or cgr_runtime_flush.
 *
 * Until then its length is a bound for backends that plan on the host (CGR_PLAN_BOUNDS): preparing a step of it ahead is
 * CGR_ERROR_BUSY if one plans with exact lengths (it lacks CGR_BACKEND_PLANS_BOUNDS).
 *
 * This call brings back a row of which the host knows that it has ended (cgr_request_info.ended); so does
 * cgr_request_set_length. A row that opens has not ended. If a row ends in a step launched before this call and the host has not
 * seen that yet, it stays ended: call again. CGR_ERROR_INVALID_ARGUMENT: max_stop_tokens is 0, or a number is out of range.
 * CGR_ERROR_STATE while the row is in the prepared step.
 * Threads one · Capture no · Sync never · Alloc never */
CGR_API cgr_status cgr_request_set_stops(cgr_runtime *runtime, int32_t row, const cgr_stops *stops);

#ifdef __cplusplus
}
#endif
#endif
