/* What --check adds with --draft lookup: requests that come, end, leave, are preempted and find no page get the tokens that plain
 * decode gives them. Each plain token has a margin, by which its logit is above the next: where tokens part, the margin must be
 * so small that rounding decides. Steps must be replayed, but for at most one in 200, whose reasons are named. */
#ifndef LLAMA_CHECK_DRAFTS_H
#define LLAMA_CHECK_DRAFTS_H

#include "examples/llama/check.h"

/* `config->steps` says how many requests there are. 0 when everything held. */
int llama_check_drafts(const llama_check_config *config, const llama_limits *limits, const llama_weights *weights, llama_ops *ops,
                       cudaStream_t stream);

#endif
