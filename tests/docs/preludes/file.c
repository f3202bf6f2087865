/* The block is a file. */
#include <stdio.h>

#include "cgr/cgr.h"
@BLOCK@
