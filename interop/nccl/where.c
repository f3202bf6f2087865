/* Which collective the device is in: names, and marks that the device writes. */
#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "interop/nccl/nccl.h"

#define NUM_NUMBERS (2 * CGR__NCCL_MAX_TEXTS)

static int32_t find_text(const cgr_nccl *n, const char *text, uint32_t count) {
  for (uint32_t i = 0; i < count; i++)
    if (strcmp(n->text[i], text) == 0)
      return (int32_t)i;
  return -1;
}

int32_t cgr__nccl_text(cgr_nccl *n, int32_t kind, const char *label) {
  char text[CGR__NCCL_TEXT_BYTES];
  (void)snprintf(text, sizeof text, "%s %s%s%.31s", n->name, cgr_nccl_kind_name((cgr_nccl_kind)kind),
                 label && label[0] ? " " : "", label ? label : "");
  int32_t found = find_text(n, text, __atomic_load_n(&n->num_texts, __ATOMIC_ACQUIRE));
  if (found >= 0)
    return found;
  pthread_mutex_lock(&n->texts_lock);
  found = find_text(n, text, n->num_texts);
  if (found < 0) {
    const bool is_last = n->num_texts >= CGR__NCCL_MAX_TEXTS - 1;
    found = (int32_t)(is_last ? CGR__NCCL_MAX_TEXTS - 1 : n->num_texts);
    if (n->num_texts == (uint32_t)found) {
      if (is_last)
        (void)snprintf(n->text[found], sizeof n->text[found], "%s others", n->name);
      else
        memcpy(n->text[found], text, sizeof text);
      __atomic_store_n(&n->num_texts, (uint32_t)found + 1, __ATOMIC_RELEASE);
    }
  }
  pthread_mutex_unlock(&n->texts_lock);
  return found;
}

/* ----------------------------------------------------------------------------------------------------------------- marks */

/* The device's own copy of 0, 1, 2, ... */
static cgr_status send_numbers(cgr_nccl *n, void *numbers, uint32_t *pinned) {
  cudaStream_t stream;
  for (uint32_t i = 0; i < NUM_NUMBERS; i++)
    pinned[i] = i;
  CGR__TRY(cgr_stream_create(n->device, &stream));
  cgr_status status = cgr_copy(n->device, numbers, pinned, NUM_NUMBERS * sizeof *pinned, stream);
  const cgr_status waited = cgr_stream_synchronize(n->device, stream);
  const cgr_status destroyed = cgr_stream_destroy(n->device, stream);
  status = status == CGR_OK ? waited : status;
  return status == CGR_OK ? destroyed : status;
}

cgr_status cgr__nccl_make_marks(cgr_nccl *n) {
  void *numbers = NULL, *pinned = NULL;
  cgr_device_info info = CGR_DEVICE_INFO_INIT;
  CGR__TRY(cgr_device_get_info(n->device, &info));
  n->marks.by_host = info.kind == CGR_DEVICE_KIND_HOST;
  CGR__TRY(cgr_memory_alloc(n->device, NUM_NUMBERS * sizeof(uint32_t), &numbers));
  n->marks.numbers = numbers;
  CGR__TRY(cgr_memory_alloc_pinned(n->device, NUM_NUMBERS * sizeof(uint32_t), &pinned));
  n->marks.word = pinned;
  CGR__TRY(send_numbers(n, numbers, pinned));
  n->marks.word[0] = NUM_NUMBERS; /* in none yet */
  return CGR_OK;
}

void cgr__nccl_free_marks(cgr_nccl *n) {
  if (n->marks.numbers)
    (void)cgr_memory_free(n->device, (void *)(uintptr_t)n->marks.numbers);
  if (n->marks.word)
    (void)cgr_memory_free_pinned(n->device, n->marks.word);
  n->marks = (cgr__nccl_marks){ NULL, NULL, false };
}

/* A copy of the host device's is not one store. */
typedef struct word_to_write {
  uint32_t *word;
  uint32_t number, reserved;
} word_to_write;

static void write_word(const void *args) {
  const word_to_write *w = args;
  __atomic_store_n(w->word, w->number, __ATOMIC_RELAXED);
}

cgr_status cgr__nccl_mark(cgr_nccl *n, int32_t text, bool after, cudaStream_t stream) {
  if (!after)
    __atomic_store_n(&n->enqueued, (uint32_t)text + 1, __ATOMIC_RELAXED);
  if (!n->marks.word)
    return CGR_OK;
  const uint32_t i = (uint32_t)text + (after ? CGR__NCCL_MAX_TEXTS : 0);
  if (n->marks.by_host)
    return cgr_launch_host(n->device, write_word, &(word_to_write){ n->marks.word, i, 0 }, sizeof(word_to_write), stream);
  return cgr_copy(n->device, n->marks.word, &n->marks.numbers[i], sizeof n->marks.numbers[i], stream);
}

cgr_status cgr_nccl_where(void *nccl, char *out, size_t capacity) {
  cgr_nccl *n = nccl;
  CGR__TRY(cgr__nccl_check_handle(n, "cgr_nccl_where"));
  CGR__REQUIRE(out, "cgr_nccl_where");
  const uint32_t enqueued = __atomic_load_n(&n->enqueued, __ATOMIC_RELAXED);
  uint32_t word = NUM_NUMBERS;
  pthread_mutex_lock(&n->lock); /* the marks go with the runtime */
  const bool has_marks = n->marks.word != NULL;
  if (has_marks)
    word = __atomic_load_n(n->marks.word, __ATOMIC_RELAXED);
  pthread_mutex_unlock(&n->lock);
  if (has_marks && word < NUM_NUMBERS)
    (void)snprintf(out, capacity, "%s %s", word < CGR__NCCL_MAX_TEXTS ? "in" : "after", n->text[word % CGR__NCCL_MAX_TEXTS]);
  else if (has_marks || enqueued == 0)
    (void)snprintf(out, capacity, "before the first collective of %s", n->name);
  else
    (void)snprintf(out, capacity, "last enqueued by the host: %s", n->text[enqueued - 1]);
  return CGR_OK;
}
