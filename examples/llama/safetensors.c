/* A safetensors file is a length (u64), a JSON header of that length and the data. Nothing in it is trusted: a file is
 * accepted if each tensor's bytes follow from its type and shape and are inside the file, and the tensors together cover the data
 * exactly once, which also catches a truncated file. */
#include "examples/llama/safetensors.h"

#include <cgr/cgr.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "examples/llama/error.h"
#include "examples/llama/json.h"
#include "examples/llama/number.h"

#define HEADER_LIMIT ((uint64_t)100 << 20) /* bytes, as the format's own library has it */
#define INDEX_LIMIT ((size_t)64 << 20)
#define MAX_SHARDS 4096
#define MAX_COUNT ((uint64_t)1 << 46) /* elements of a tensor */

typedef struct shard {
  char *name; /* of the file, inside the folder */
  void *map;
  size_t size;
} shard;

struct llama_checkpoint {
  shard *shards;
  int num_shards;
  llama_tensor *tensors; /* sorted by name */
  size_t num_tensors;
};

/* ----------------------------------------------------------------------------------------------------------- one tensor */

static const struct {
  const char *name;
  unsigned size;
  cgr_dtype dtype;
} types[] = {
  { "F32", 4, CGR_DTYPE_FP32 },  { "F16", 2, CGR_DTYPE_FP16 },     { "BF16", 2, CGR_DTYPE_BF16 },    { "F64", 8, CGR_DTYPE_NONE },
  { "I64", 8, CGR_DTYPE_NONE },  { "I32", 4, CGR_DTYPE_NONE },     { "I16", 2, CGR_DTYPE_NONE },     { "I8", 1, CGR_DTYPE_NONE },
  { "U64", 8, CGR_DTYPE_NONE },  { "U32", 4, CGR_DTYPE_NONE },     { "U16", 2, CGR_DTYPE_NONE },     { "U8", 1, CGR_DTYPE_NONE },
  { "BOOL", 1, CGR_DTYPE_NONE }, { "F8_E4M3", 1, CGR_DTYPE_NONE }, { "F8_E5M2", 1, CGR_DTYPE_NONE },
};

static int read_type(const cJSON *item, llama_tensor *tensor, uint64_t *size) {
  const cJSON *type = llama_json_member(item, "dtype");
  if (cJSON_IsString(type))
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
      if (strcmp(types[i].name, type->valuestring) == 0) {
        tensor->type = types[i].name;
        tensor->dtype = (int32_t)types[i].dtype;
        *size = types[i].size;
        return 0;
      }
  return llama_json_unexpected(type, "dtype", "one of F32, F16, BF16 or the others of the format");
}

static int read_dimensions(const cJSON *item, llama_tensor *tensor) {
  const cJSON *shape = llama_json_member(item, "shape");
  if (!cJSON_IsArray(shape))
    return llama_fail("shape: expected a list");
  tensor->count = 1;
  for (const cJSON *side = shape->child; side; side = side->next) {
    uint64_t n = 0;
    if (tensor->rank == LLAMA_MAX_RANK)
      return llama_fail("shape: more than %d dimensions", LLAMA_MAX_RANK);
    TRY(llama_json_whole(side, "shape", &n));
    if (n > MAX_COUNT || (n > 0 && tensor->count > MAX_COUNT / n))
      return llama_fail("shape: more than 2^46 elements");
    tensor->shape[tensor->rank++] = (int64_t)n;
    tensor->count *= n;
  }
  return 0;
}

static int read_offsets(const cJSON *item, uint64_t data_size, uint64_t element, llama_tensor *tensor) {
  const cJSON *offsets = llama_json_member(item, "data_offsets");
  if (!cJSON_IsArray(offsets) || cJSON_GetArraySize(offsets) != 2)
    return llama_fail("data_offsets: expected two numbers");
  TRY(llama_json_whole(offsets->child, "data_offsets", &tensor->begin));
  TRY(llama_json_whole(offsets->child->next, "data_offsets", &tensor->end));
  if (tensor->begin > tensor->end || tensor->end > data_size)
    return llama_fail("data_offsets: [%llu, %llu) is not inside the %llu bytes of data", (unsigned long long)tensor->begin,
                      (unsigned long long)tensor->end, (unsigned long long)data_size);
  if (tensor->end - tensor->begin != tensor->count * element)
    return llama_fail("data_offsets: %llu bytes for %llu elements of %llu", (unsigned long long)(tensor->end - tensor->begin),
                      (unsigned long long)tensor->count, (unsigned long long)element);
  return 0;
}

static int read_tensor(const cJSON *item, const unsigned char *data, uint64_t data_size, llama_tensor *tensor) {
  uint64_t element = 0;
  if (!cJSON_IsObject(item))
    return llama_fail("expected an object");
  TRY(read_type(item, tensor, &element));
  TRY(read_dimensions(item, tensor));
  TRY(read_offsets(item, data_size, element, tensor));
  tensor->data = data + tensor->begin;
  return 0;
}

/* ------------------------------------------------------------------------------------------------------------- one file */

static int by_offset(const void *a, const void *b) {
  const llama_tensor *x = a, *y = b;
  if (x->begin != y->begin)
    return x->begin < y->begin ? -1 : 1;
  return x->end < y->end ? -1 : x->end > y->end;
}

static int check_cover(llama_tensor *tensors, size_t count, uint64_t data_size) {
  uint64_t covered = 0;
  qsort(tensors, count, sizeof(*tensors), by_offset);
  for (size_t i = 0; i < count; i++) {
    if (tensors[i].begin != covered)
      return llama_fail("tensor %s: %s at byte %llu of the data", tensors[i].name,
                        tensors[i].begin < covered ? "overlaps another" : "leaves a hole", (unsigned long long)covered);
    covered = tensors[i].end;
  }
  if (covered != data_size)
    return llama_fail("%llu bytes of data, of which no tensor owns the last %llu", (unsigned long long)data_size,
                      (unsigned long long)(data_size - covered));
  return 0;
}

/* Takes the tensors of a header after those that the checkpoint has. */
static int read_tensors(llama_checkpoint *c, const cJSON *header, const unsigned char *data, uint64_t data_size) {
  size_t first = c->num_tensors, count = 0;
  for (const cJSON *item = header->child; item; item = item->next)
    count += strcmp(item->string, "__metadata__") != 0;
  if (count == 0)
    return llama_fail("no tensors");
  llama_tensor *tensors = realloc(c->tensors, (first + count) * sizeof(*tensors));
  if (!tensors)
    return llama_fail("no memory");
  c->tensors = tensors;
  for (const cJSON *item = header->child; item; item = item->next) {
    if (strcmp(item->string, "__metadata__") == 0)
      continue;
    llama_tensor *tensor = &tensors[c->num_tensors];
    memset(tensor, 0, sizeof(*tensor));
    tensor->name = strdup(item->string);
    if (!tensor->name)
      return llama_fail("no memory");
    c->num_tensors++;
    if (read_tensor(item, data, data_size, tensor) != 0)
      return llama_fail_in(tensor->name);
  }
  return check_cover(tensors + first, count, data_size);
}

static int map_file(const char *path, shard *file) {
  struct stat status;
  int descriptor = open(path, O_RDONLY | O_CLOEXEC);
  if (descriptor < 0)
    return llama_fail("%s", strerror(errno));
  int result = fstat(descriptor, &status) != 0 ? llama_fail("%s", strerror(errno))
               : !S_ISREG(status.st_mode)      ? llama_fail("not a file")
               : status.st_size < 10           ? llama_fail("%lld bytes are too few", (long long)status.st_size)
                                               : 0;
  if (result == 0) {
    void *map = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, descriptor, 0);
    if (map == MAP_FAILED) {
      result = llama_fail("cannot be mapped: %s", strerror(errno));
    } else {
      file->map = map;
      file->size = (size_t)status.st_size;
    }
  }
  close(descriptor);
  return result;
}

static int read_file(llama_checkpoint *c, const char *path, shard *file) {
  TRY(map_file(path, file));
  const unsigned char *bytes = file->map;
  uint64_t length = 0, rest = file->size - 8;
  for (int i = 7; i >= 0; i--)
    length = length << 8 | bytes[i];
  if (length > rest || length > HEADER_LIMIT)
    return llama_fail("a header of %llu bytes in a file of %zu", (unsigned long long)length, file->size);
  cJSON *header = NULL;
  TRY(llama_json_parse((const char *)bytes + 8, (size_t)length, "header", &header));
  int result = read_tensors(c, header, bytes + 8 + length, rest - length);
  cJSON_Delete(header);
  return result;
}

static int add_shard(llama_checkpoint *c, const char *folder, const char *name) {
  if (c->num_shards == MAX_SHARDS)
    return llama_fail("more than %d files", MAX_SHARDS);
  shard *shards = realloc(c->shards, (size_t)(c->num_shards + 1) * sizeof(*shards));
  if (!shards)
    return llama_fail("no memory");
  c->shards = shards;
  shard *file = &shards[c->num_shards];
  memset(file, 0, sizeof(*file));
  file->name = strdup(name);
  if (!file->name)
    return llama_fail("no memory");
  c->num_shards++;
  char *path = llama_join(folder, name);
  if (!path)
    return -1;
  int result = read_file(c, path, file);
  if (result != 0)
    llama_fail_in(path);
  free(path);
  return result;
}

/* ------------------------------------------------------------------------------------------------------------ all files */

static int by_name(const void *a, const void *b) {
  return strcmp(((const llama_tensor *)a)->name, ((const llama_tensor *)b)->name);
}

static int sort_by_name(llama_checkpoint *c) {
  qsort(c->tensors, c->num_tensors, sizeof(*c->tensors), by_name);
  for (size_t i = 1; i < c->num_tensors; i++)
    if (strcmp(c->tensors[i - 1].name, c->tensors[i].name) == 0)
      return llama_fail("tensor %s stands there twice", c->tensors[i].name);
  return 0;
}

static bool has_shard(const llama_checkpoint *c, const char *name) {
  for (int i = 0; i < c->num_shards; i++)
    if (strcmp(c->shards[i].name, name) == 0)
      return true;
  return false;
}

static int read_index(llama_checkpoint *c, const char *folder, const cJSON *index) {
  const cJSON *map = llama_json_member(index, "weight_map");
  if (!cJSON_IsObject(map))
    return llama_fail("model.safetensors.index.json: weight_map is missing");
  for (const cJSON *item = map->child; item; item = item->next) {
    if (!cJSON_IsString(item) || item->valuestring[0] == '.' || strchr(item->valuestring, '/'))
      return llama_fail("model.safetensors.index.json: %s does not name a file of the folder", item->string);
    if (!has_shard(c, item->valuestring))
      TRY(add_shard(c, folder, item->valuestring));
  }
  TRY(sort_by_name(c));
  for (const cJSON *item = map->child; item; item = item->next)
    if (!llama_checkpoint_find(c, item->string))
      return llama_fail("model.safetensors.index.json: no file has the tensor %s", item->string);
  return 0;
}

static int read_folder(llama_checkpoint *c, const char *folder) {
  char *single = llama_join(folder, "model.safetensors");
  if (!single)
    return -1;
  int exists = access(single, F_OK) == 0;
  free(single);
  if (exists) {
    TRY(add_shard(c, folder, "model.safetensors"));
    return sort_by_name(c);
  }
  char *path = llama_join(folder, "model.safetensors.index.json"), *text = NULL;
  size_t size = 0;
  cJSON *index = NULL;
  if (!path)
    return -1;
  int result = access(path, F_OK) != 0 ? llama_fail("%s: neither model.safetensors nor model.safetensors.index.json", folder)
                                       : llama_read_file(path, INDEX_LIMIT, &text, &size);
  free(path);
  if (result == 0)
    result = llama_json_parse(text, size, "model.safetensors.index.json", &index);
  free(text);
  if (result == 0)
    result = read_index(c, folder, index);
  cJSON_Delete(index);
  return result;
}

int llama_checkpoint_open(const char *folder, llama_checkpoint **checkpoint) {
  *checkpoint = NULL;
  llama_checkpoint *c = calloc(1, sizeof(*c));
  if (!c)
    return llama_fail("no memory");
  if (read_folder(c, folder) != 0) {
    llama_checkpoint_close(c);
    return -1;
  }
  *checkpoint = c;
  return 0;
}

void llama_checkpoint_close(llama_checkpoint *c) {
  if (!c)
    return;
  for (size_t i = 0; i < c->num_tensors; i++)
    free(c->tensors[i].name);
  for (int i = 0; i < c->num_shards; i++) {
    if (c->shards[i].map)
      munmap(c->shards[i].map, c->shards[i].size);
    free(c->shards[i].name);
  }
  free(c->tensors);
  free(c->shards);
  free(c);
}

const llama_tensor *llama_checkpoint_find(const llama_checkpoint *c, const char *name) {
  size_t low = 0, high = c->num_tensors;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    int order = strcmp(c->tensors[middle].name, name);
    if (order == 0)
      return &c->tensors[middle];
    if (order < 0)
      low = middle + 1;
    else
      high = middle;
  }
  return NULL;
}

/* ------------------------------------------------------------------------------------------------------------- elements */

static float element(const llama_tensor *tensor, uint64_t i) {
  float value;
  uint16_t half;
  if (tensor->dtype == CGR_DTYPE_FP32) {
    memcpy(&value, tensor->data + 4 * i, 4);
    return value;
  }
  memcpy(&half, tensor->data + 2 * i, 2);
  return tensor->dtype == CGR_DTYPE_BF16 ? llama_from_bf16(half) : llama_from_fp16(half);
}

int llama_tensor_equal(const llama_tensor *a, const llama_tensor *b) {
  if (a->dtype == b->dtype)
    return memcmp(a->data, b->data, a->end - a->begin) == 0;
  for (uint64_t i = 0; i < a->count; i++)
    if (element(a, i) != element(b, i))
      return 0;
  return 1;
}

void llama_tensor_read(const llama_tensor *tensor, uint64_t first, uint64_t count, int32_t dtype, void *out) {
  float *floats = out;
  uint16_t *halves = out;
  if (tensor->dtype == dtype) {
    size_t size = dtype == CGR_DTYPE_FP32 ? 4 : 2;
    memcpy(out, tensor->data + first * size, count * size);
  } else if (dtype == CGR_DTYPE_FP32) {
    for (uint64_t i = 0; i < count; i++)
      floats[i] = element(tensor, first + i);
  } else {
    for (uint64_t i = 0; i < count; i++)
      halves[i] = llama_to_bf16(element(tensor, first + i));
  }
}
