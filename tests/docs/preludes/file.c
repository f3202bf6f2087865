/* The block is a file. */
#include <stdio.h>

#include "cgr/cgr.h"
#include "cgr/inspect.h"
#include "cgr/interop/block_table.h"
#include "cgr/names.h"
#include "cgr/planners.h"
#include "cgr/tracing.h"
@BLOCK@
