/* Data of rows, which an engine declares as a buffer; and the lengths of rows in sets after 0, which are such data. */
#ifndef CGR_REQUESTS_DATA_H
#define CGR_REQUESTS_DATA_H

#include "requests/rows.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Sets a row's data, cgr__data.words words that need no alignment; padding when the row opens. */
void cgr__rows_set_data(cgr__rows *rows, int32_t row, int32_t buffer, const void *words);
void cgr__rows_clear_data(cgr__rows *rows, int32_t row);
void cgr__rows_fill_data(cgr__rows *rows);

/* Lengths in sets after 0. The pages of their groups always cover them. */
cgr_status cgr__rows_set_other_length(cgr__rows *rows, int32_t row, int32_t set, int32_t num_tokens);
static inline int32_t cgr__rows_other_length(const cgr__rows *rows, int32_t row, int32_t set) {
  const cgr__data *lengths = &rows->data[rows->lengths];
  return lengths->words_of[(int64_t)row * lengths->words + set - 1];
}

#ifdef __cplusplus
}
#endif

#endif
