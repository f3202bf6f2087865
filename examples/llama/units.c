#include "examples/llama/units.h"

#include <stdio.h>
#include <string.h>

llama_words llama_count(uint64_t count) {
  llama_words digits, words = { "" };
  int length = snprintf(digits.text, sizeof(digits.text), "%llu", (unsigned long long)count), at = 0;
  for (int i = 0; i < length; i++) {
    if (i > 0 && (length - i) % 3 == 0)
      words.text[at++] = ',';
    words.text[at++] = digits.text[i];
  }
  return words;
}

/* `names` from the smallest unit on. */
static llama_words scale_value(double value, const char *const names[4], const char *smallest) {
  llama_words words;
  int unit = -1;
  for (; unit < 3 && value >= 1000.0; unit++)
    value /= 1000.0;
  if (unit < 0)
    snprintf(words.text, sizeof(words.text), "%.0f%s", value, smallest);
  else
    snprintf(words.text, sizeof(words.text), "%.1f%s", value, names[unit]);
  return words;
}

llama_words llama_scale(double value) { return scale_value(value, (const char *const[]){ "K", "M", "B", "T" }, ""); }

llama_words llama_bytes(double bytes) {
  return scale_value(bytes, (const char *const[]){ " KB", " MB", " GB", " TB" }, " bytes");
}
