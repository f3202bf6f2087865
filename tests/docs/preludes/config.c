/* Before a runtime is created. */
#include "tests/docs/preludes/common.h"

extern cgr_config config;
extern cgr_group groups[2];
extern cgr_layer layers[32], encoder[12], cross[12];
extern int32_t num_layers;
extern void *cache; /* of a layer */
extern float *k_factors, *v_factors;
extern const int32_t *block_table; /* the engine's, in device memory */
extern int32_t block_table_columns;

extern void *models[2];

cgr_status target(cgr_recorder *recorder, void *model);
cgr_status draft(cgr_recorder *recorder, void *model);
void write_file(void *context, const char *json, size_t size);

cgr_status block(void) {
@BLOCK@
  return CGR_OK;
}
