/* One step of a self-test: the state before it, the step, and what it left. */
#include <stdlib.h>

#include "runtime/self_test/self_test.h"

static cgr_status failed(cgr__self_test *t, int error, const char *what) { return cgr__runtime_device_error(t->rt, error, what); }

static cgr_status sync(cgr__self_test *t) {
  return failed(t, t->rt->dev->ops->stream_sync(t->rt->dev, t->rt->own_stream), "cgr_runtime_self_test: waiting");
}

/* ----------------------------------------------------------------------------------------------------------------- pages */

static cgr__pages_args pages_args(cgr__self_test *t, int32_t cache, int v) {
  const cgr_layer *l = &t->rt->setup.layers[t->caches[cache]];
  size_t pages = (size_t)cgr__test_pages(t), lists = (size_t)t->rt->setup.config.num_groups * pages;
  cgr__pages_args a = { .view = v ? l->v : l->k, .num_pages = t->given.num_pages };
  a.pages = (const int32_t *)(void *)t->device + (size_t)l->group * pages;
  a.digest = (uint64_t *)(void *)(t->device + (lists * sizeof(int32_t) + 15) / 16 * 16) + ((size_t)cache * 2 + (size_t)v) * pages;
  a.seed = t->given.seed + (uint64_t)cache * 2 + (uint64_t)v;
  a.page_size = t->rt->setup.groups[l->group].page_size;
  a.num_heads = l->num_kv_heads;
  a.head_dim = v ? l->head_dim_v : l->head_dim;
  a.element_size = (int32_t)cgr_dtype_size((cgr_dtype)a.view.dtype);
  return a;
}

static cgr_status digest_pages(cgr__self_test *t, uint64_t *digests) {
  const cgr__device_ops *ops = t->rt->dev->ops;
  int error = 0;
  for (int32_t c = 0; c < t->num_caches && !error; c++)
    for (int v = 0; v < 2 && !error; v++) {
      cgr__pages_args args = pages_args(t, c, v);
      args.num_pages++; /* the read-trash page too */
      error = ops->launch(t->rt->dev, &cgr__kernel_digest_pages, &args, t->rt->own_stream);
    }
  if (!error && t->num_caches > 0)
    error = ops->copy(t->rt->dev, digests, pages_args(t, 0, 0).digest, cgr__test_digest_bytes(t), t->rt->own_stream);
  return failed(t, error, "cgr_runtime_self_test: summing up the pages");
}

static cgr_status fill_pages(cgr__self_test *t) {
  int error = 0;
  for (int32_t c = 0; c < t->num_caches && !error; c++)
    for (int v = 0; v < 2 && !error; v++) {
      cgr__pages_args args = pages_args(t, c, v);
      error = t->rt->dev->ops->launch(t->rt->dev, &cgr__kernel_fill_pages, &args, t->rt->own_stream);
    }
  return failed(t, error, "cgr_runtime_self_test: filling the pages");
}

cgr_status cgr__test_fill_pages(cgr__self_test *t) {
  CGR__TRY(fill_pages(t));
  CGR__TRY(digest_pages(t, t->before));
  return sync(t);
}

/* ------------------------------------------------------------------------------------------------------------------ step */

/* What the step will write itself holds something else before; the state of rows and of the protocol stays, and the counts, whose
 * last words are 0 for good. */
static cgr_status make_stale(cgr__self_test *t, int byte, const int32_t *padding) {
  cgr_runtime *rt = t->rt;
  const cgr__device_ops *ops = rt->dev->ops;
  int error = 0;
  for (int id = 0; id < CGR__BUFFER_COUNT && !error; id++) {
    cgr__buffer_shape shape = cgr__buffer_shape_of(&rt->setup.limits, id, 0);
    bool stays = shape.source == CGR__SOURCE_STATE || id == CGR_BUFFER_COUNTS;
    for (int32_t copy = 0; copy < shape.copies && !stays && !error; copy++) {
      size_t bytes = (size_t)(shape.rows * shape.columns) * cgr_dtype_size(shape.dtype);
      error = ops->fill(rt->dev, rt->arena + rt->layout.offset[id][copy], (uint64_t)byte, 1, bytes, rt->own_stream);
    }
  }
  rt->lane.device_batch = 0; /* the composition that was there */
  if (!error)
    error = ops->copy(rt->dev, &rt->lane.args.state->padding_token, padding, sizeof *padding, rt->own_stream);
  return failed(t, error, "cgr_runtime_self_test: writing what is stale");
}

static cgr_status give_pages(cgr__self_test *t, int32_t i) {
  const cgr__test_case *c = &t->test_case;
  int32_t num_groups = t->rt->setup.config.num_groups;
  for (int32_t g = 0; g < num_groups; g++) {
    const int32_t *pages = t->given.pages + (size_t)g * (size_t)t->given.num_pages + c->first_page[i * num_groups + g];
    if (c->num_pages[i * num_groups + g] > 0)
      CGR__TRY(cgr_request_set_pages(t->rt, c->rows[i], g, 0, pages, c->num_pages[i * num_groups + g]));
  }
  return CGR_OK;
}

static cgr_status set_rows(cgr__self_test *t) {
  cgr__test_case *c = &t->test_case;
  cgr_runtime *rt = t->rt;
  for (int32_t i = 0; i < c->num_requests; i++) {
    if (c->rows[i] < 0) {
      CGR__TRY(cgr_request_open(rt, 0, &c->rows[i]));
      CGR__TRY(give_pages(t, i));
    }
    CGR__TRY(cgr_request_set_length(rt, c->rows[i], c->before[i]));
  }
  for (;;) { /* pages of many requests fill more slots than there are */
    uint64_t seq = 0;
    cgr_status status = cgr_runtime_flush(rt, 0, rt->own_stream, &seq);
    if (status != CGR_OK && status != CGR_ERROR_BUSY)
      return status;
    CGR__TRY(cgr__wait_completed(rt, "cgr_runtime_self_test", seq, rt->setup.config.wait_timeout_ms));
    if (status == CGR_OK)
      return CGR_OK;
  }
}

static cgr_status launch_case(cgr__self_test *t, cgr_graph_kind kind) {
  const cgr__test_case *c = &t->test_case;
  cgr_batch batch = CGR_BATCH_INIT;
  cgr_step step = CGR_STEP_INIT;
  cgr_key key = c->key;
  key.kind = (int32_t)kind;
  batch.num_requests = c->num_requests;
  batch.rows = c->rows;
  batch.query_lens = c->lens;
  batch.tokens = c->tokens;
  batch.variant = key.variant;
  batch.forced_key = &key;
  CGR__TRY(cgr_step_prepare(t->rt, &batch, &step));
  cgr_status status = cgr_step_launch(t->rt, &step, t->rt->own_stream);
  if (status != CGR_OK) {
    if (step.state == CGR_STEP_PREPARED)
      (void)cgr_step_cancel(t->rt, &step);
    return status;
  }
  return cgr_step_wait(t->rt, 0, step.seq, -1, NULL);
}

static cgr_status read_items(cgr__self_test *t, cgr__test_run *run) {
  const cgr__test_case *c = &t->test_case;
  int error = 0;
  free(run->content);
  run->content = calloc(1, (size_t)c->content_bytes + 1);
  if (!run->content)
    return cgr__fail(CGR_ERROR_OUT_OF_MEMORY, "cgr_runtime_self_test: no memory for %lld bytes", (long long)c->content_bytes);
  for (int32_t i = 0; i < c->num_items && !error; i++) {
    const cgr__test_item *item = &c->items[i];
    error = t->rt->dev->ops->copy(t->rt->dev, run->content + item->offset, item->data,
                                  (size_t)((item->rows - 1) * item->stride + item->row_bytes), t->rt->own_stream);
  }
  return failed(t, error, "cgr_runtime_self_test: reading what the step wrote");
}

cgr_status cgr__test_run_case(cgr__self_test *t, cgr_graph_kind kind, int stale, int32_t padding, cgr__test_run *run) {
  CGR__TRY(set_rows(t));
  CGR__TRY(fill_pages(t));
  CGR__TRY(make_stale(t, stale, &padding));
  cgr_status status = launch_case(t, kind);
  if (status != CGR_OK) {
    (void)sync(t); /* `padding` is read until then */
    return status;
  }
  CGR__TRY(digest_pages(t, run->digests));
  CGR__TRY(read_items(t, run));
  return sync(t);
}

void cgr__test_close_rows(cgr__self_test *t) {
  cgr__test_case *c = &t->test_case;
  for (int32_t i = 0; i < t->rt->setup.config.max_requests; i++) {
    if (c->rows[i] >= 0)
      (void)cgr_request_close(t->rt, c->rows[i]);
    c->rows[i] = -1;
  }
}
