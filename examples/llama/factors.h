/* Factors of a cache of i8: K's, one for each token and KV head, which cgr's append writes; V's, one for each channel, measured
 * once on random tokens before the engine captures its graphs. */
#ifndef LLAMA_FACTORS_H
#define LLAMA_FACTORS_H

#include "examples/llama/engine.h"

/* Takes the memory of one layer's factors. It is zeros at first, as that of the cache. */
void llama_factors_lay_out(const llama_config *config, const llama_limits *limits, llama_arena *arena, llama_factors *factors);
/* Sets them in a layer. */
void llama_factors_describe(const llama_config *config, const llama_limits *limits, const llama_factors *factors,
                            cgr_layer *layer);
/* Runs one eager step that measures V, and sets V's factors. */
int llama_factors_measure(llama_engine *engine, const cgr_capture *capture);

#endif
