/* In an engine that gives its running requests their pages. */
#include "tests/docs/preludes/common.h"

typedef struct request {
  int32_t row, computed, num_pages;
} request;
extern request running[64];
extern int32_t num_running, page_size, rows[64], firsts[64], new_pages[64];
int32_t take_page(void);

cgr_status block(void) {
@BLOCK@
  return CGR_OK;
}
