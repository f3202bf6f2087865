/* The optional outputs of cgr_metadata: their checks, and filling them from the others. */
#ifndef CGR_PLANNERS_METADATA_METADATA_ON_DEMAND_H
#define CGR_PLANNERS_METADATA_METADATA_ON_DEMAND_H

#include <stdint.h>

#include "planners/metadata/metadata.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Check the struct, whose other fields are good; and that there is room for the pages that the batch has in one group. */
cgr_status cgr__metadata_check_on_demand(const cgr_metadata *m);
cgr_status cgr__metadata_check_pages(const cgr_metadata *m, int32_t group, int64_t pages);
/* After cgr__metadata_fill. */
void cgr__metadata_fill_on_demand(const cgr_metadata *m, cgr__refuse_function refused, void *context);

#ifdef __cplusplus
}
#endif

#endif
