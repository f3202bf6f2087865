/* Data of rows: the host's copy, and which words of it the device does not have. */
#include <string.h>

#include "requests/changes.h"

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
