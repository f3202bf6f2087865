/* Lengths of rows in the sets after 0: words of their data, whose pages are checked when they are set. */
#include "base/status.h"
#include "requests/ledger.h"

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
  group = cgr__rows_shortest_group(rows, row, set, &capacity);
  if (num_tokens > capacity)
    return cgr__fail(CGR_ERROR_PAGES_MISSING,
                     "cgr_request_set_other_length: num_tokens is %d, expected at most %d (the pages of row %d in group %d)",
                     num_tokens, capacity, row, group);
  for (int32_t s = 1; s < rows->limits->num_sets; s++)
    lengths[s - 1] = s == set ? num_tokens : cgr__rows_other_length(rows, row, s);
  if (rows->has_ledger)
    cgr__ledger_set_length(rows, row, set, num_tokens);
  cgr__rows_set_data(rows, row, rows->lengths, lengths);
  return CGR_OK;
}
