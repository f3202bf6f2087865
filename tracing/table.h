/* Statistics as a table for people. */
#ifndef CGR_TRACING_TABLE_H
#define CGR_TRACING_TABLE_H

#include "tracing/report.h"

#ifdef __cplusplus
extern "C" {
#endif

void cgr__table_write(cgr__text *text, const cgr__report *report);

#ifdef __cplusplus
}
#endif
#endif
