#include "examples/llama/json.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "examples/llama/error.h"

static int read_stream(FILE *file, const char *path, size_t limit, char **bytes, size_t *size) {
  size_t capacity = 4096, used = 0;
  char *buffer = malloc(capacity + 1);
  while (buffer) {
    used += fread(buffer + used, 1, capacity - used, file);
    if (used < capacity)
      break;
    if (used > limit) {
      free(buffer);
      return llama_fail("%s: longer than %zu bytes", path, limit);
    }
    capacity *= 2;
    char *larger = realloc(buffer, capacity + 1);
    if (!larger)
      free(buffer);
    buffer = larger;
  }
  if (!buffer)
    return llama_fail("%s: no memory", path);
  if (ferror(file)) {
    free(buffer);
    return llama_fail("%s: %s", path, strerror(errno));
  }
  buffer[used] = 0;
  *bytes = buffer;
  *size = used;
  return 0;
}

int llama_read_file(const char *path, size_t limit, char **bytes, size_t *size) {
  FILE *file = fopen(path, "rb");
  if (!file)
    return llama_fail("%s: %s", path, strerror(errno));
  int result = read_stream(file, path, limit, bytes, size);
  fclose(file);
  return result;
}

char *llama_join(const char *folder, const char *name) {
  size_t size = strlen(folder) + strlen(name) + 2;
  char *path = malloc(size);
  if (!path)
    llama_fail("no memory");
  else
    snprintf(path, size, "%s/%s", folder, name);
  return path;
}

/* cJSON would skip it, but transformers, Python and safetensors refuse it. */
static int refuse_byte_order_mark(const char *text, size_t size, const char *what) {
  if (size < 3 || memcmp(text, "\xef\xbb\xbf", 3) != 0)
    return 0;
  return llama_fail("%s: the first bytes are a byte order mark (EF BB BF), expected JSON without one", what);
}

int llama_json_parse(const char *text, size_t size, const char *what, cJSON **object) {
  const char *end = NULL;
  TRY(refuse_byte_order_mark(text, size, what));
  cJSON *parsed = cJSON_ParseWithLengthOpts(text, size, &end, 0);
  if (!parsed)
    return llama_fail("%s: not JSON (near byte %td of %zu)", what, end ? end - text : (ptrdiff_t)0, size);
  for (; end < text + size && *end; end++)
    if (!strchr(" \t\r\n", *end))
      break;
  int whole = end == text + size;
  if (!whole || !cJSON_IsObject(parsed)) {
    cJSON_Delete(parsed);
    return whole ? llama_fail("%s: not a JSON object", what) : llama_fail("%s: something follows the JSON object", what);
  }
  *object = parsed;
  return 0;
}

int llama_json_read(const char *path, size_t limit, cJSON **object) {
  char *text = NULL;
  size_t size = 0;
  TRY(llama_read_file(path, limit, &text, &size));
  int result = llama_json_parse(text, size, path, object);
  free(text);
  return result;
}

const cJSON *llama_json_find(const cJSON *object, const char *name) {
  const cJSON *found = NULL;
  for (const cJSON *item = object ? object->child : NULL; item; item = item->next)
    if (item->string && strcmp(item->string, name) == 0)
      found = item;
  return found;
}

const cJSON *llama_json_member(const cJSON *object, const char *name) {
  const cJSON *item = llama_json_find(object, name);
  return item && !cJSON_IsNull(item) ? item : NULL;
}

bool llama_json_is(const cJSON *item, const char *text) { return cJSON_IsString(item) && strcmp(item->valuestring, text) == 0; }

int llama_json_unexpected(const cJSON *item, const char *name, const char *expected) {
  char *text = item ? cJSON_PrintUnformatted(item) : NULL;
  const char *got = text ? text : item ? "something else" : "missing";
  int length = (int)strlen(got);
  llama_fail("%s is %.*s%s, expected %s", name, length > 60 ? 57 : length, got, length > 60 ? "..." : "", expected);
  cJSON_free(text);
  return -1;
}

int llama_json_whole(const cJSON *item, const char *what, uint64_t *value) {
  if (!cJSON_IsNumber(item) || !(item->valuedouble >= 0 && item->valuedouble <= 9007199254740992.0) ||
      floor(item->valuedouble) != item->valuedouble)
    return llama_json_unexpected(item, what, "a whole number from 0 to 2^53");
  *value = (uint64_t)item->valuedouble;
  return 0;
}

static int in_range(const cJSON *item, double low, double high) {
  return cJSON_IsNumber(item) && item->valuedouble >= low && item->valuedouble <= high;
}

int llama_json_double(const cJSON *object, const char *name, double low, double high, double *value) {
  const cJSON *item = llama_json_find(object, name);
  char expected[96];
  if (!item)
    return 0;
  snprintf(expected, sizeof(expected), "a number from %g to %g", low, high);
  if (!in_range(item, low, high))
    return llama_json_unexpected(item, name, expected);
  *value = item->valuedouble;
  return 0;
}

int llama_json_int(const cJSON *object, const char *name, int64_t low, int64_t high, int32_t *value) {
  const cJSON *item = llama_json_find(object, name);
  char expected[96];
  if (!item)
    return 0;
  snprintf(expected, sizeof(expected), "a whole number from %lld to %lld", (long long)low, (long long)high);
  if (!in_range(item, (double)low, (double)high) || floor(item->valuedouble) != item->valuedouble)
    return llama_json_unexpected(item, name, expected);
  *value = (int32_t)item->valuedouble;
  return 0;
}

int llama_json_bool(const cJSON *object, const char *name, bool *value) {
  const cJSON *item = llama_json_find(object, name);
  if (!item)
    return 0;
  if (!cJSON_IsBool(item))
    return llama_json_unexpected(item, name, "true or false");
  *value = cJSON_IsTrue(item);
  return 0;
}
