/* Files and JSON, read with suspicion. */
#ifndef LLAMA_JSON_H
#define LLAMA_JSON_H

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Reads a whole file of at most `limit` bytes; `*bytes` is the caller's to free and ends with a 0 that `*size` does not count. */
int llama_read_file(const char *path, size_t limit, char **bytes, size_t *size);

/* Joins folder and name; the caller frees it. NULL after a failure. */
char *llama_join(const char *folder, const char *name);

/* Parses a text that is one object, aside from white space. `what` names it in messages. The caller deletes it. */
int llama_json_parse(const char *text, size_t size, const char *what, cJSON **object);
/* The same from a file, which messages name by its path. */
int llama_json_read(const char *path, size_t limit, cJSON **object);

/* A whole number, 0 .. 2^53. */
int llama_json_whole(const cJSON *item, const char *what, uint64_t *value);

/* Members of an object. An absent one leaves the value as it is; null is refused like anything else that is not a number. */
int llama_json_int(const cJSON *object, const char *name, int64_t low, int64_t high, int32_t *value);
int llama_json_double(const cJSON *object, const char *name, double low, double high, double *value);
int llama_json_bool(const cJSON *object, const char *name, bool *value);

/* The member of this name (the last one, as in Python), or NULL if it is absent. Names are compared exactly. */
const cJSON *llama_json_find(const cJSON *object, const char *name);
/* The same, and NULL when it is null. */
const cJSON *llama_json_member(const cJSON *object, const char *name);

/* Whether the item is this text. */
bool llama_json_is(const cJSON *item, const char *text);

/* Fails with "name is <the item's text>, expected ..."; a NULL item is missing. */
int llama_json_unexpected(const cJSON *item, const char *name, const char *expected);

#endif
