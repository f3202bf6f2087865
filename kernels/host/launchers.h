/* The host device's launchers of the kernels of kernels/table.c. Each runs its kernel at once on the calling thread, on the same
 * buffers, plan and partials as the CUDA kernel, and merges in the same order. They allocate nothing, take no lock and keep no
 * state; the largest takes about 210 KB of stack. */
#ifndef CGR_KERNELS_HOST_LAUNCHERS_H
#define CGR_KERNELS_HOST_LAUNCHERS_H

#ifdef __cplusplus
extern "C" {
#endif

void cgr__host_prologue(const void *args);             /* cgr__step_args */
void cgr__host_planner(const void *args);              /* cgr__planner_args */
void cgr__host_fetch(const void *args);                /* cgr__step_args */
void cgr__host_staged(const void *args);               /* cgr__staged_args */
void cgr__host_on_demand(const void *args);            /* cgr__on_demand_args */
void cgr__host_epilogue(const void *args);             /* cgr__step_args */
void cgr__host_append(const void *args);               /* cgr__append_args */
void cgr__host_transform(const void *args);            /* cgr__transform_args */
void cgr__host_attention(const void *args);            /* cgr__attention_args */
void cgr__host_merge(const void *args);                /* cgr__merge_args */
void cgr__host_measure(const void *args);              /* cgr__measure_args */
void cgr__host_gather(const void *args);               /* cgr__gather_args */
void cgr__host_fill_pages(const void *args);           /* cgr__pages_args */
void cgr__host_digest_pages(const void *args);         /* cgr__pages_args */
void cgr__host_stamp(const void *args);                /* cgr__stamp_args */
void cgr__host_check_values(const void *args);         /* cgr__check_values_args */
void cgr__host_fingerprint(const void *args);          /* cgr__fingerprint_args */
void cgr__host_compare_fingerprints(const void *args); /* cgr__compare_fingerprints_args */

#ifdef __cplusplus
}
#endif
#endif
