#include "examples/llama/prompts.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "examples/llama/error.h"
#include "examples/llama/json.h"

#define FILE_LIMIT ((size_t)64 << 20)

/* In the manner of the text that the bundled model was trained on, short and long. */
static const char *const own_prompts[] = {
  "In the beginning ",
  "And it came to pass",
  "Psalms 23\n\nThe LORD is ",
  "And Jesus answered and said unto them, ",
  "The words of the wise man are as ",
  "And the LORD spake unto Moses, saying,",
  "Blessed are they that ",
  "And David said to ",
  "Now these are the names of the children of Israel, which came into Egypt; every man and his household came with Jacob. "
  "Reuben, Simeon, Levi, and Judah, Issachar, Zebulun, and Benjamin, Dan, and Naphtali, Gad, and Asher. And all the souls ",
  "A soft answer turneth away wrath: but grievous words stir up ",
  "Hear, O Israel: ",
  "And there were in the same country shepherds abiding in the field, keeping watch over their flock by night. And, lo, the "
  "angel of the Lord came upon them, and ",
};

bool llama_tokens_are_bytes(const llama_model *model) {
  return !model->has_tokenizer && model->config.vocab_size >= 256 && model->config.vocab_size <= 260;
}

static int add_prompt(llama_prompts *prompts, int32_t *tokens, int32_t count) {
  llama_prompt *items = realloc(prompts->items, (size_t)(prompts->count + 1) * sizeof(*items));
  if (!items) {
    free(tokens);
    return llama_fail("no memory");
  }
  prompts->items = items;
  items[prompts->count++] = (llama_prompt){ tokens, count, NULL, 0 };
  return 0;
}

static int add_text(llama_prompts *prompts, const char *text, size_t length, int32_t first_token) {
  int32_t count = 0;
  if (!prompts->bytes)
    return llama_fail("this model's tokens are not bytes, and tokenizer.json is not read: give prompts as --prompt-ids");
  if (length > FILE_LIMIT)
    return llama_fail("a prompt has %zu bytes, expected at most %zu", length, FILE_LIMIT);
  int32_t *tokens = malloc((length + 1) * sizeof(*tokens));
  if (!tokens)
    return llama_fail("no memory");
  if (first_token >= 0)
    tokens[count++] = first_token;
  for (size_t i = 0; i < length; i++)
    tokens[count++] = (unsigned char)text[i];
  if (count == 0) {
    free(tokens);
    return llama_fail("--prompt is empty, expected a text: this model has no token that begins one");
  }
  return add_prompt(prompts, tokens, count);
}

static int add_file(llama_prompts *prompts, const char *path, int32_t first_token) {
  char *text = NULL;
  size_t size = 0;
  int result = 0;
  TRY(llama_read_file(path, FILE_LIMIT, &text, &size));
  for (size_t start = 0, end; result == 0 && start < size; start = end + 1) {
    const char *newline = memchr(text + start, '\n', size - start);
    end = newline ? (size_t)(newline - text) : size;
    size_t length = end - start;
    length -= length > 0 && text[end - 1] == '\r';
    if (length > 0)
      result = add_text(prompts, text + start, length, first_token);
  }
  free(text);
  return result;
}

/* "1,2,3" */
static int parse_ids(const char *option, const char *text, int32_t vocab, int32_t **ids, int32_t *count) {
  size_t capacity = strlen(text) / 2 + 1;
  int32_t *tokens = malloc(capacity * sizeof(*tokens)), n = 0;
  if (!tokens)
    return llama_fail("no memory");
  for (const char *at = text;; at++) {
    char *end;
    errno = 0;
    long long id = strtoll(at, &end, 10);
    if (errno || end == at || id < 0 || id >= vocab || (*end && *end != ',')) {
      free(tokens);
      return llama_fail("%s is %.80s, expected token ids from 0 to %d with commas between them, not \"%.20s\"", option,
                        *text ? text : "empty", vocab - 1, at);
    }
    tokens[n++] = (int32_t)id;
    at = end;
    if (!*at)
      break;
  }
  *ids = tokens;
  *count = n;
  return 0;
}

static int add_ids(llama_prompts *prompts, const llama_options *options, int32_t vocab) {
  for (int i = 0; i < options->prompt_ids.count; i++) {
    int32_t *tokens, count;
    TRY(parse_ids("--prompt-ids", options->prompt_ids.items[i], vocab, &tokens, &count));
    TRY(add_prompt(prompts, tokens, count));
  }
  if (options->force_ids.count > prompts->count)
    return llama_fail("--force-ids is given %d times for %d prompt%s, expected at most once for each", options->force_ids.count,
                      prompts->count, llama_plural(prompts->count));
  for (int i = 0; i < options->force_ids.count; i++)
    TRY(parse_ids("--force-ids", options->force_ids.items[i], vocab, &prompts->items[i].forced, &prompts->items[i].num_forced));
  return 0;
}

static int make(const llama_options *options, const llama_model *model, llama_prompts *prompts) {
  int32_t first_token = options->no_bos ? -1 : model->config.bos_token;
  for (int i = 0; i < options->prompts.count; i++)
    TRY(add_text(prompts, options->prompts.items[i], strlen(options->prompts.items[i]), first_token));
  if (options->prompts_file)
    TRY(add_file(prompts, options->prompts_file, first_token));
  TRY(add_ids(prompts, options, model->config.vocab_size));
  if (prompts->count == 0 && options->prompts_file)
    return llama_fail("--prompts: %s has no prompt, expected one in each line", options->prompts_file);
  if (prompts->count == 0 && !prompts->bytes)
    return llama_fail("no prompt is given, expected --prompt-ids: this model's tokens are not bytes");
  if (prompts->count == 0)
    for (size_t i = 0; i < sizeof(own_prompts) / sizeof(own_prompts[0]); i++)
      TRY(add_text(prompts, own_prompts[i], strlen(own_prompts[i]), first_token));
  return 0;
}

int llama_prompts_make(const llama_options *options, const llama_model *model, llama_prompts *prompts) {
  memset(prompts, 0, sizeof(*prompts));
  prompts->bytes = llama_tokens_are_bytes(model);
  if (make(options, model, prompts) == 0)
    return 0;
  llama_prompts_free(prompts);
  return -1;
}

void llama_prompts_free(llama_prompts *prompts) {
  for (int i = 0; i < prompts->count; i++) {
    free(prompts->items[i].tokens);
    free(prompts->items[i].forced);
  }
  free(prompts->items);
  memset(prompts, 0, sizeof(*prompts));
}

/* Bytes outside ASCII are shown as \xNN: a model may break off in the middle of a character. */
static void print_byte(FILE *out, int32_t token) {
  if (token == '\n' || token == '\t' || (token >= ' ' && token < 127))
    fputc((int)token, out);
  else if (token >= 256)
    fprintf(out, "<%d>", token);
  else if (token != 0)
    fprintf(out, "\\x%02x", (unsigned)token);
}

void llama_tokens_print(FILE *out, const int32_t *tokens, int32_t count, bool bytes) {
  for (int32_t i = 0; i < count; i++)
    if (bytes)
      print_byte(out, tokens[i]);
    else
      fprintf(out, "%s%d", i ? "," : "", tokens[i]);
}
