/* Files and JSON, read with suspicion. */
#ifndef LLAMA_JSON_H
#define LLAMA_JSON_H

#include <cjson/cJSON.h>
#include <stddef.h>
#include <stdint.h>

/* Reads a whole file of at most `limit` bytes; `*bytes` is the caller's to free and ends with a 0 that `*size` does not count. */
int llama_read_file(const char *path, size_t limit, char **bytes, size_t *size);

/* Joins folder and name; the caller frees it. NULL after a failure. */
char *llama_join(const char *folder, const char *name);

/* Parses an object that fills the text, white space aside. `what` names it in messages. The caller deletes it. */
int llama_json_parse(const char *text, size_t size, const char *what, cJSON **object);

/* A whole number, 0 .. 2^53. */
int llama_json_whole(const cJSON *item, const char *what, uint64_t *value);

/* Members of an object; an absent or null one leaves the value as it is. */
int llama_json_int(const cJSON *object, const char *name, int64_t low, int64_t high, int32_t *value);
int llama_json_double(const cJSON *object, const char *name, double low, double high, double *value);
int llama_json_bool(const cJSON *object, const char *name, int32_t *value);

/* The member, or NULL when it is absent or null. Names are compared exactly. */
const cJSON *llama_json_member(const cJSON *object, const char *name);

#endif
