#include "requests/page_names.h"

#include <stdio.h>

cgr__page_edit_names cgr__page_edit_names_of(const cgr__page_edit *edit, int32_t i) {
  cgr__page_edit_names names = { "first", "count", "" };
  if (edit->entry < 0) {
    snprintf(names.page, sizeof names.page, "pages[%d]", i);
    return names;
  }
  snprintf(names.first, sizeof names.first, "firsts[%d]", edit->entry);
  snprintf(names.page, sizeof names.page, "pages[%lld] (of rows[%d])", (long long)edit->place + i, edit->entry);
  if (edit->counts_itself)
    snprintf(names.count, sizeof names.count, "the count");
  else
    snprintf(names.count, sizeof names.count, "counts[%d]", edit->entry);
  return names;
}
