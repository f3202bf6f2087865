#include "examples/llama/settings.h"

#include <cgr/names.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BUNDLED_MODEL "examples/llama/model"

static bool is_model(const char *format, const char *folder, char *path, size_t size) {
  char config[4096];
  if (!folder || snprintf(path, size, format, folder) >= (int)size ||
      snprintf(config, sizeof(config), "%s/config.json", path) >= (int)sizeof(config))
    return false;
  return access(config, R_OK) == 0;
}

/* The bundled model is in Bazel's runfiles, in the workspace, or next to the program. */
int llama_find_bundled_model(char *path, size_t size) {
  char self[2048] = "";
  ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);
  self[length < 0 ? 0 : length] = 0;
  char *slash = strrchr(self, '/');
  if (is_model("%s", BUNDLED_MODEL, path, size) || is_model("%s/cgr/" BUNDLED_MODEL, getenv("RUNFILES_DIR"), path, size) ||
      is_model("%s.runfiles/cgr/" BUNDLED_MODEL, self, path, size) ||
      is_model("%s.runfiles/_main/" BUNDLED_MODEL, self, path, size) ||
      is_model("%s/" BUNDLED_MODEL, getenv("BUILD_WORKSPACE_DIRECTORY"), path, size))
    return 0;
  if (slash) {
    *slash = 0;
    if (is_model("%s/model", self, path, size))
      return 0;
  }
  return llama_fail("the bundled model (" BUNDLED_MODEL ") is not found, expected it next to the program: give --model DIR");
}

/* Finds an option's value in a NULL-terminated list of names; without a value, `index` is unchanged. The names of cgr's
 * enumerators have spaces, which a command line writes as dashes. */
static int choose_name(const char *option, const char *value, const char *const *names, int32_t *index) {
  char expected[256] = "", name[32];
  size_t length = 0;
  for (int32_t i = 0; value && names[i]; i++) {
    snprintf(name, sizeof(name), "%s", names[i]);
    for (char *space = strchr(name, ' '); space; space = strchr(space, ' '))
      *space = '-';
    if (strcmp(value, name) == 0) {
      *index = i;
      return 0;
    }
    const char *separator = i == 0 ? "" : names[i + 1] ? ", " : " or ";
    length += (size_t)snprintf(expected + length, sizeof(expected) - length, "%s%s", separator, name);
  }
  return value ? llama_fail("%s is %s, expected %s", option, *value ? value : "empty", expected) : 0;
}

/* Reads the options that are names, before anything is loaded. */
int llama_read_names(const llama_options *o, llama_limits *n, int32_t *dtype) {
  const char *modes[CGR_MODE_FULL_AND_PIECEWISE + 2] = { NULL };
  const char *const layouts[] = { cgr_kv_layout_name(CGR_LAYOUT_NHD), cgr_kv_layout_name(CGR_LAYOUT_HND), NULL };
  const char *const dtypes[] = { cgr_dtype_name(CGR_DTYPE_BF16), cgr_dtype_name(CGR_DTYPE_FP32), NULL };
  static const char *const pages[] = { "16", "32", "64", NULL }, *const caches[] = { "same", "fp8", "fp8-e5m2", "int8", NULL };
  static const cgr_dtype cache_dtypes[] = { CGR_DTYPE_NONE, CGR_DTYPE_FP8_E4M3, CGR_DTYPE_FP8_E5M2, CGR_DTYPE_I8 };
  int32_t layout = 0, page = 0, cache = 0, type = -1;
  for (int32_t mode = CGR_MODE_DEFAULT; mode <= CGR_MODE_FULL_AND_PIECEWISE; mode++)
    modes[mode] = cgr_graph_mode_name((cgr_graph_mode)mode);
  TRY(choose_name("--mode", o->mode, modes, &n->graph_mode));
  TRY(choose_name("--kv", o->kv, caches, &cache));
  TRY(choose_name("--kv-layout", o->kv_layout, layouts, &layout));
  TRY(choose_name("--page-size", o->page_size, pages, &page));
  TRY(choose_name("--dtype", o->dtype, dtypes, &type));
  n->layout = layout == 0 ? CGR_LAYOUT_NHD : CGR_LAYOUT_HND;
  n->page_size = 16 << page;
  n->kv_dtype = cache_dtypes[cache];
  *dtype = type < 0 ? CGR_DTYPE_NONE : type == 0 ? CGR_DTYPE_BF16 : CGR_DTYPE_FP32;
  return 0;
}

int llama_read_draft(const llama_options *o, llama_draft *draft) {
  TRY(llama_draft_parse(o->draft, o->draft_tokens, draft));
  if (o->overcommit && o->force_ids.count)
    return llama_fail(
        "--force-ids: expected without --overcommit, with which requests begin again with the tokens that they sampled");
  if (draft->kind == LLAMA_DRAFT_NONE)
    return o->draft_compare ? llama_fail("--draft-compare: expected with --draft") : 0;
  if (o->force_ids.count)
    return llama_fail("--force-ids: expected without --draft, whose guesses follow what is sampled");
  if (o->logits)
    return llama_fail("--logits: expected without --draft, with which a step has several for a request");
  if (o->bench && draft->kind != LLAMA_DRAFT_COIN)
    return llama_fail("--draft is %s, expected coin with --bench, whose prompts are random", o->draft);
  if (o->draft_compare && (o->check || o->bench))
    return llama_fail("--draft-compare: expected without %s, which compares by itself", o->check ? "--check" : "--bench");
  return 0;
}

/* The last part of the path; of "." and the like, all of it. */
void llama_model_name(const llama_options *o, char *name, size_t size) {
  if (o->random_weights) {
    snprintf(name, size, "%s (random)", o->random_weights);
    return;
  }
  const char *path = o->model ? o->model : "bundled";
  size_t end = strlen(path), first;
  while (end > 1 && path[end - 1] == '/')
    end--;
  for (first = end; first > 0 && path[first - 1] != '/'; first--)
    ;
  snprintf(name, size, "%.*s", (int)(end - first), path + first);
}
