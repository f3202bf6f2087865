/* The read-trash pages, looked at when the device has a layer that checks: they must hold finite numbers, or a bad page in a
 * table gives NaN where it should be harmless. A copy of them is enqueued ahead of a step, on its stream, so that it comes after
 * whatever the engine has enqueued there. Nothing waits: the copy is looked at once the step has completed. */
#include <stdio.h>
#include <string.h>

#include "kernels/quantise.h"
#include "kernels/values.h"
#include "runtime/config/strided_set.h"
#include "runtime/step/step.h"

#define LAUNCHES_BETWEEN 16 /* from one look to the next */

/* What a layer has of a page: K, V, and the factors of each, if every token has its own. */
enum { NUM_TENSORS = 4 };
typedef struct page_of {
  cgr_kv_view view; /* of K or V; of factors, with their strides and a dim of 1 */
  int32_t page, num_tokens, num_heads, dim;
} page_of;

static page_of page_of_layer(const cgr__setup *setup, const cgr_layer *layer, int tensor) {
  const cgr_group *group = &setup->groups[layer->group];
  const cgr_kv_view *view = tensor % 2 ? &layer->v : &layer->k;
  int32_t dim = tensor % 2 && layer->head_dim_v > 0 ? layer->head_dim_v : layer->head_dim;
  if (tensor < 2) {
    const cgr_kv_view bytes = cgr__in_whole_bytes(view, &dim); /* 4 bits hold no NaN */
    return (page_of){ bytes, group->read_trash_page, group->page_size, layer->num_kv_heads, dim };
  }
  page_of p = { cgr__factors_of_tokens(view, layer->num_kv_heads), group->read_trash_page, 0, layer->num_kv_heads, 1 };
  p.num_tokens = p.view.base ? group->page_size : 0;
  return p;
}

static size_t head_bytes(const page_of *p) { return (size_t)p->dim * cgr_dtype_size((cgr_dtype)p->view.dtype); }

static size_t page_bytes(const page_of *p) { return (size_t)p->num_tokens * (size_t)p->num_heads * head_bytes(p); }

size_t cgr__read_trash_bytes(const cgr__setup *setup) {
  size_t bytes = 0;
  for (int32_t i = 0; i < setup->config.num_layers; i++)
    for (int k = 0; k < NUM_TENSORS && cgr__owns_cache(&setup->layers[i]); k++) {
      const page_of p = page_of_layer(setup, &setup->layers[i], k);
      bytes += page_bytes(&p);
    }
  return bytes;
}

/* ------------------------------------------------------------------------------------------------------------------ copies */

/* Packed as [token][head][d], or as [head][token][d] where the heads are further apart; in one copy if the page has no gaps. */
static int copy_page(cgr_runtime *rt, const page_of *p, unsigned char *to, cudaStream_t stream) {
  const int64_t size = (int64_t)cgr_dtype_size((cgr_dtype)p->view.dtype);
  const unsigned char *from = (const unsigned char *)p->view.base + p->page * p->view.stride_page * size;
  int64_t token = p->view.stride_token, head = p->view.stride_head, dim = p->dim;
  bool heads_outside = head > token;
  int64_t outer = heads_outside ? head : token, inner = heads_outside ? token : head;
  int32_t num_outer = heads_outside ? p->num_heads : p->num_tokens, num_inner = heads_outside ? p->num_tokens : p->num_heads;
  bool runs = inner == dim || num_inner == 1; /* the inner ones adjoin */
  if (runs && (outer == dim * num_inner || num_outer == 1))
    return rt->dev->ops->copy(rt->dev, to, from, page_bytes(p), stream);
  int error = 0;
  for (int32_t o = 0; o < num_outer && !error; o++)
    for (int32_t i = 0; i < (runs ? 1 : num_inner) && !error; i++) {
      size_t bytes = runs ? head_bytes(p) * (size_t)num_inner : head_bytes(p);
      error = rt->dev->ops->copy(rt->dev, to, from + (o * outer + i * inner) * size, bytes, stream);
      to += bytes;
    }
  return error;
}

cgr_status cgr__read_trash_copy(cgr_runtime *rt, cudaStream_t stream) {
  cgr__read_trash *r = &rt->read_trash;
  const cgr__setup *setup = &rt->setup;
  unsigned char *to = r->copies;
  if (to && r->seq == rt->lane.prepared.seq && r->stream != stream)
    r->seq = 0; /* a launch failed after the copy, and this one does not follow it on its stream */
  if (!to || r->seq > 0 || rt->lane.launched < r->next || (r->unseen && r->stream != stream))
    return CGR_OK;
  r->stream = stream;
  r->unseen = true;
  for (int32_t i = 0; i < setup->config.num_layers; i++)
    for (int k = 0; k < NUM_TENSORS && cgr__owns_cache(&setup->layers[i]); k++) {
      const page_of p = page_of_layer(setup, &setup->layers[i], k);
      int error = p.num_tokens > 0 ? copy_page(rt, &p, to, stream) : 0;
      CGR__TRY(cgr__runtime_device_error(rt, error, "cgr_step_launch: copying a read-trash page for the layer to check"));
      to += page_bytes(&p);
    }
  r->seq = rt->lane.prepared.seq;
  return CGR_OK;
}

/* -------------------------------------------------------------------------------------------------------------------- look */

/* Whether element `i` is NaN or infinite; for integers there is no such thing. */
static bool is_bad(int32_t dtype, const unsigned char *data, size_t i) {
  uint32_t word;
  uint16_t half;
  switch (dtype) {
  case CGR_DTYPE_FP32:
    memcpy(&word, data + 4 * i, sizeof word);
    return cgr__value_is_bad32(word, 0);
  case CGR_DTYPE_FP16:
  case CGR_DTYPE_BF16:
    memcpy(&half, data + 2 * i, sizeof half);
    return cgr__value_is_bad16(half, dtype == CGR_DTYPE_FP16 ? 0x7c00u : 0x7f80u, 0);
  case CGR_DTYPE_FP8_E4M3: /* without infinities */
    return (data[i] & 0x7fu) == 0x7fu;
  case CGR_DTYPE_FP8_E5M2:
    return (data[i] & 0x7cu) == 0x7cu;
  default:
    return false;
  }
}

/* The first bad element of a page that was copied. */
static bool find_bad(const page_of *p, const unsigned char *copy, int32_t *token, int32_t *head) {
  size_t count = (size_t)p->num_tokens * (size_t)p->num_heads * (size_t)p->dim, i = 0;
  if (count == 0)
    return false;
  while (i < count && !is_bad(p->view.dtype, copy, i))
    i++;
  int32_t row = (int32_t)(i / (size_t)p->dim);
  bool heads_outside = p->view.stride_head > p->view.stride_token;
  *token = heads_outside ? row % p->num_tokens : row / p->num_heads;
  *head = heads_outside ? row / p->num_tokens : row % p->num_heads;
  return i < count;
}

static void report_bad_page(cgr_runtime *rt, int32_t layer, int tensor, const page_of *p, int32_t token, int32_t head) {
  static const char *const names[NUM_TENSORS] = { "k", "v", "k.scale", "v.scale" };
  (void)cgr__fail(CGR_ERROR_STATE,
                  "page %d of group %d, its read-trash page, had NaN or an infinity in layers[%d].%s, token %d, head %d, in step "
                  "%llu, expected finite numbers: the engine fills it once, and nothing writes it (cgr_group.read_trash_page)",
                  p->page, rt->setup.layers[layer].group, layer, names[tensor], token, head,
                  (unsigned long long)rt->read_trash.seq);
  snprintf(rt->read_trash.found, sizeof rt->read_trash.found, "%s", cgr_last_message());
  (void)cgr__runtime_report(rt, CGR_ERROR_STATE);
}

void cgr__read_trash_look(cgr_runtime *rt) {
  cgr__read_trash *r = &rt->read_trash;
  const cgr__setup *setup = &rt->setup;
  const unsigned char *copy = r->copies;
  int32_t token, head;
  bool found = false;
  if (r->seq == 0 || cgr__ring_completed(&rt->lane.ring) < r->seq)
    return;
  for (int32_t i = 0; i < setup->config.num_layers; i++)
    for (int k = 0; k < NUM_TENSORS && !found && cgr__owns_cache(&setup->layers[i]); k++) {
      const page_of p = page_of_layer(setup, &setup->layers[i], k);
      found = find_bad(&p, copy, &token, &head);
      if (found)
        report_bad_page(rt, i, k, &p, token, head);
      copy += page_bytes(&p);
    }
  r->unseen = false;
  r->next = found ? 0 : r->seq + LAUNCHES_BETWEEN;
  r->seq = 0;
}

cgr_status cgr__read_trash_check(cgr_runtime *rt, const char *function) {
  cgr__read_trash_look(rt);
  if (rt->read_trash.found[0] == 0)
    return CGR_OK;
  (void)cgr__fail(CGR_ERROR_STATE, "%s: %s", function, rt->read_trash.found);
  rt->read_trash.found[0] = 0; /* the next step's copy tells whether it still is so */
  return CGR_ERROR_STATE;
}
