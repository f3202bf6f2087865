/* What an engine can verify before it serves anyone: that its graphs hold nothing that a replay must not depend on
 * (cgr_runtime_audit), and that they do what eager steps do (cgr_runtime_self_test). */
#ifndef LLAMA_PROVE_H
#define LLAMA_PROVE_H

#include "examples/llama/engine.h"

/* Captures an engine's graphs, audits and tests them. 0, or -1 with the first finding as the message. */
int llama_prove(const llama_limits *limits, const llama_weights *weights, llama_ops *ops, cudaStream_t stream);

#endif
