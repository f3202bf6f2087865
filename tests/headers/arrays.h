/* Arrays of structs are stepped through by the size of their first element, whatever size the library knows for the struct. */
#ifndef CGR_TESTS_HEADERS_ARRAYS_H
#define CGR_TESTS_HEADERS_ARRAYS_H

#include "tests/headers/sized.h"
#include "tests/headers/world.h"

/* `count` elements of `stride` bytes, from an array of elements of `known` bytes. */
static unsigned char *array_of(const void *elements, int count, size_t known, size_t stride) {
  unsigned char *array = (unsigned char *)malloc((size_t)count * stride);
  for (int i = 0; i < count; i++) {
    void *element = sized_copy((const unsigned char *)elements + (size_t)i * known, known, stride, 0);
    memcpy(array + (size_t)i * stride, element, stride);
    free(element);
  }
  return array;
}

/* The configuration has exactly this finding and is not created; field NULL: it has none and is. */
static void check_finding(const cgr_config *config, cgr_status status, const char *field, int32_t layer, int32_t group) {
  cgr_finding findings[3];
  int32_t count = -1;
  cgr_runtime *runtime = NULL;
  const cgr_status expected = field ? status : CGR_OK;
  CHECK_CALL(expected, field ? field : "", cgr_validate(config, NULL, findings, 3, &count));
  CHECK(count == (field ? 1 : 0));
  CHECK(!field || (strcmp(findings[0].field, field) == 0 && findings[0].status == (int32_t)status));
  CHECK(!field || (findings[0].layer == layer && findings[0].group == group));
  CHECK_CALL(expected, field ? field : "", cgr_runtime_create(config, &runtime));
  CHECK((runtime != NULL) == !field);
  CHECK_OK(cgr_runtime_destroy(runtime));
}

/* The same config with another array in it. */
typedef void (*place_array)(cgr_config *config, const void *array);
static void place_layers(cgr_config *config, const void *array) { config->layers = (const cgr_layer *)array; }
static void place_buffers(cgr_config *config, const void *array) { config->buffers = (const cgr_buffer_decl *)array; }

/* Three elements of another size: all good; one whose size differs from the first's; one that sets a field unknown here. */
static void check_array(cgr_config config, place_array place, const void *elements, size_t known, size_t stride,
                        const char *const names[3], bool layers) {
  unsigned char *array = array_of(elements, 3, known, stride);
  place(&config, array);
  check_finding(&config, CGR_OK, NULL, -1, -1);
  for (int i = 1; i < 3; i++) {
    uint32_t own = (uint32_t)stride, other = own + 8;
    unsigned char *element = array + (size_t)i * stride;
    memcpy(element, &other, sizeof other);
    check_finding(&config, CGR_ERROR_INVALID_STRUCT, names[i], layers ? i : -1, -1);
    memcpy(element, &own, sizeof own);
    if (stride <= known)
      continue;
    element[stride - 1] = 1;
    check_finding(&config, CGR_ERROR_NEWER_STRUCT, names[i], layers ? i : -1, -1);
    element[stride - 1] = 0;
  }
  check_finding(&config, CGR_OK, NULL, -1, -1);
  free(array);
}

static void test_layer_arrays(const world *w) {
  static const char *const names[3] = { "layers[0]", "layers[1]", "layers[2]" };
  static const size_t strides[] = { offsetof(cgr_layer, v) + offsetof(cgr_kv_view, scale), sizeof(cgr_layer),
                                    sizeof(cgr_layer) + 8, sizeof(cgr_layer) + 64 };
  cgr_config config = w->config;
  cgr_layer layers[3];
  memcpy(layers, w->layers, sizeof layers);
  config.num_layers = 3;
  for (size_t s = 0; s < sizeof strides / sizeof strides[0]; s++) {
    check_array(config, place_layers, layers, sizeof layers[0], strides[s], names, true);
    layers[2].head_dim = 7;
    unsigned char *array = array_of(layers, 3, sizeof layers[0], strides[s]);
    place_layers(&config, array);
    check_finding(&config, CGR_ERROR_UNSUPPORTED, "layers[2].head_dim", 2, -1);
    layers[2].head_dim = WORLD_DIM;
    free(array);
  }
}

/* The declared buffers are there, each with its own width. */
static void check_declared(const cgr_config *config, const cgr_buffer_decl *buffers) {
  cgr_runtime *runtime = NULL;
  CHECK_OK(cgr_runtime_create(config, &runtime));
  for (int i = 0; i < 3; i++) {
    cgr_buffer_view view = CGR_BUFFER_VIEW_INIT;
    CHECK_OK(cgr_buffer_get(runtime, NULL, CGR_BUFFER_DECLARED, i, &view));
    CHECK(view.shape[1] == buffers[i].width);
  }
  CHECK_OK(cgr_runtime_destroy(runtime));
}

static void test_buffer_arrays(const world *w) {
  static const char *const names[3] = { "buffers[0]", "buffers[1]", "buffers[2]" };
  static const char *const own[3] = { "first", "second", "third" };
  static const size_t strides[] = { offsetof(cgr_buffer_decl, padding), sizeof(cgr_buffer_decl), sizeof(cgr_buffer_decl) + 8,
                                    sizeof(cgr_buffer_decl) + 1000 };
  cgr_config config = w->config;
  cgr_buffer_decl buffers[3];
  config.num_buffers = 3;
  for (int i = 0; i < 3; i++) {
    buffers[i] = w->buffer;
    buffers[i].name = own[i];
    buffers[i].width = 10 + i;
  }
  for (size_t s = 0; s < sizeof strides / sizeof strides[0]; s++) {
    unsigned char *array = array_of(buffers, 3, sizeof buffers[0], strides[s]);
    check_array(config, place_buffers, buffers, sizeof buffers[0], strides[s], names, false);
    place_buffers(&config, array);
    check_declared(&config, buffers);
    free(array);
  }
}

/* The second group is read with the stride of the first. */
static void test_group_arrays(const world *w) {
  static const size_t strides[] = { offsetof(cgr_group, page_table), sizeof(cgr_group), sizeof(cgr_group) + 40 };
  cgr_config config = w->config;
  cgr_group groups[2];
  groups[0] = groups[1] = w->group;
  config.num_groups = 2;
  for (size_t s = 0; s < sizeof strides / sizeof strides[0]; s++) {
    cgr_finding findings[3];
    int32_t count = -1;
    groups[1].num_pages = WORLD_PAGES;
    unsigned char *good = array_of(groups, 2, sizeof groups[0], strides[s]);
    groups[1].num_pages = 2;
    unsigned char *bad = array_of(groups, 2, sizeof groups[0], strides[s]);
    config.groups = (const cgr_group *)(const void *)good;
    CHECK(cgr_validate(&config, NULL, findings, 3, &count) == CGR_OK && count == 0);
    config.groups = (const cgr_group *)(const void *)bad;
    CHECK_CALL(CGR_ERROR_INVALID_ARGUMENT, "groups[1].num_pages", cgr_validate(&config, NULL, findings, 3, &count));
    CHECK(count == 1 && findings[0].group == 1 && strcmp(findings[0].field, "groups[1].num_pages") == 0);
    free(good);
    free(bad);
  }
}

/* A struct that is too small is refused; the next one is as far away as the first says. */
static void test_backend_arrays(const world *w) {
  cgr_config config = w->config;
  uint32_t *backend = (uint32_t *)malloc(sizeof *backend);
  *backend = 3;
  config.backends = (const cgr_backend *)(const void *)backend;
  config.num_backends = 1;
  check_finding(&config, CGR_ERROR_INVALID_STRUCT, "backends[0]", -1, -1);
  free(backend);
}

static int test_arrays(void) {
  const int before = check_failures;
  world w;
  world_open(&w);
  test_layer_arrays(&w);
  test_buffer_arrays(&w);
  test_group_arrays(&w);
  test_backend_arrays(&w);
  world_close(&w);
  return check_failures - before;
}

#endif
