/* The limits of the formats' planners, each written once; what they share with the rest of the library is in base/limits.h.
 * The headers in cgr/interop/ state them. */
#ifndef CGR_INTEROP_LIMITS_H
#define CGR_INTEROP_LIMITS_H

#include "base/limits.h"

#define CGR__FORMATS_MAX_LEN CGR__MAX_SEQ_LEN /* tokens or rows of a request */
#define CGR__FORMATS_MAX_SMS 4096
#define CGR__FORMATS_MAX_PAGE_SIZE 65536 /* tokens */

#define CGR__FA3_MAX_HEAD_DIM 256
#define CGR__FA3_MAX_HEAD_DIM_V 512
#define CGR__FA3_MAX_SPLITS 255 /* of a request */
#define CGR__FA3_MIN_TILE 16    /* rows and keys of a tile */
#define CGR__FA3_MAX_TILE 512

#define CGR__FLASHINFER_MAX_CTAS 64 /* of a multiprocessor */

#define CGR__FLASHMLA_MAX_PARTS 1024 /* a part has at least one multiprocessor, so this bounds those, too */
#define CGR__FLASHMLA_MAX_QUERY_LEN (1 << 16)
#define CGR__FLASHMLA_MAX_OVERHEAD 64      /* blocks */
#define CGR__FLASHMLA_MAX_BLOCKS (1 << 29) /* of all requests with their overheads */

#define CGR__BLOCK_TABLE_MAX_PAGES (1 << 27) /* of a row */

#endif
