/* The host's copy of rows' data, and which words of it the device does not have. */
#include "requests/data.h"

#include <string.h>

#include "base/status.h"
#include "requests/changes.h"
#include "requests/ledger.h"
#include "requests/pages.h"

static int32_t *words_of(const cgr__data *data, int32_t row) { return data->words_of + (int64_t)row * data->words; }

static void pad_row(const cgr__data *data, int32_t row) {
  int32_t *words = words_of(data, row);
  for (int32_t w = 0; w < data->words; w++)
    words[w] = (int32_t)data->padding[w % 2];
}

void cgr__rows_fill_data(cgr__rows *rows) {
  for (int32_t b = 0; b < rows->num_data; b++)
    for (int32_t row = 0; row < rows->limits->max_rows; row++)
      pad_row(&rows->data[b], row);
}

void cgr__rows_set_data(cgr__rows *rows, int32_t row, int32_t buffer, const void *given) {
  cgr__data *data = &rows->data[buffer];
  int32_t *words = words_of(data, row), first = 0, end = data->words;
  const unsigned char *from = given;
  while (first < end && memcmp(words + first, from + 4 * (size_t)first, 4) == 0)
    first++;
  while (end > first && memcmp(words + end - 1, from + 4 * (size_t)(end - 1), 4) == 0)
    end--;
  if (first == end)
    return;
  memcpy(words + first, from + 4 * (size_t)first, 4 * (size_t)(end - first));
  data->row[row].set = true;
  cgr__changes_mark_data(rows, row, buffer, first, end);
}

/* What the row's last owner set is still on the device. */
void cgr__rows_clear_data(cgr__rows *rows, int32_t row) {
  for (int32_t b = 0; b < rows->num_data; b++) {
    cgr__data *data = &rows->data[b];
    if (data->words == 0 || !data->row[row].set)
      continue;
    pad_row(data, row);
    data->row[row].set = false;
    cgr__changes_mark_data(rows, row, b, 0, data->words);
  }
}

/* ----------------------------------------------------------------------------------------------- lengths in sets after 0 */

/* Their pages are checked when they are set. */
cgr_status cgr__rows_set_other_length(cgr__rows *rows, int32_t row, int32_t set, int32_t num_tokens) {
  int32_t lengths[CGR__MAX_SETS], capacity, group;
  if (rows->limits->num_sets <= 1)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT,
                     "cgr_request_set_other_length: set is %d, expected a length set after 0: cgr_config.num_length_sets is 1",
                     set);
  if (set < 1 || set >= rows->limits->num_sets)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT,
                     "cgr_request_set_other_length: set is %d, expected 1 .. %d (cgr_request_set_length sets that of set 0)", set,
                     rows->limits->num_sets - 1);
  if (num_tokens < 0)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "cgr_request_set_other_length: num_tokens is %d, expected at least 0",
                     num_tokens);
  if (num_tokens > rows->limits->max_lens[set])
    return cgr__fail(CGR_ERROR_SEQUENCE_TOO_LONG,
                     "cgr_request_set_other_length: num_tokens is %d, expected at most %d (max_other_lens[%d])", num_tokens,
                     rows->limits->max_lens[set], set);
  group = cgr__rows_shortest_group(rows, row, 0, set, &capacity);
  if (num_tokens > capacity)
    return cgr__fail(CGR_ERROR_PAGES_MISSING,
                     "cgr_request_set_other_length: num_tokens is %d, expected at most %d (the pages of row %d in group %d): "
                     "cgr_request_set_pages gives it more",
                     num_tokens, capacity, row, group);
  for (int32_t s = 1; s < rows->limits->num_sets; s++)
    lengths[s - 1] = s == set ? num_tokens : cgr__rows_other_length(rows, row, s);
  if (rows->has_ledger)
    cgr__ledger_set_length(rows, row, set, num_tokens);
  cgr__rows_set_data(rows, row, rows->lengths, lengths);
  return CGR_OK;
}
