#include "base/key.h"
#include "cgr/names.h"

#include <stdio.h>

cgr__key_text cgr__key_name(const cgr_key *key) {
  cgr__key_text name;
  const int length = snprintf(name.text, sizeof name.text, "%s %dr %dt q%d v%u", cgr_graph_kind_name((cgr_graph_kind)key->kind),
                              key->num_requests, key->num_tokens, key->query_len, key->variant);
  if (key->program != 0)
    snprintf(name.text + length, sizeof name.text - (size_t)length, " p%d", key->program);
  return name;
}
