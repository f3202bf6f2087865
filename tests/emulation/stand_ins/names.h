// Names of the emulated kernels, in place of those that are compiled for a GPU: included last, for the product's headers.
#ifndef CGR_TESTS_EMULATION_STAND_INS_NAMES_H
#define CGR_TESTS_EMULATION_STAND_INS_NAMES_H

#define cgr cgr_emulated

#define cgr__cuda_append cgr__emulated_append
#define cgr__cuda_append_preload cgr__emulated_append_preload
#define cgr__cuda_attention cgr__emulated_attention
#define cgr__cuda_attention_preload cgr__emulated_attention_preload

#endif
