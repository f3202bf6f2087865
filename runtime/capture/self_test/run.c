/* One run of a self-test: the state before each of its steps, the steps, and what they left. */
#include <stdlib.h>
#include <string.h>

#include "runtime/config/strided_set.h"
#include "runtime/record/record.h"
#include "runtime/step/step.h"
#include "runtime/capture/self_test/self_test.h"

static cgr_status test_failed(cgr__self_test *t, int error, const char *what) {
  return cgr__runtime_device_error(t->rt, error, what);
}

static cgr_status sync_stream(cgr__self_test *t) {
  return test_failed(t, t->rt->dev->ops->stream_sync(t->rt->dev, t->rt->own_stream), "cgr_runtime_self_test: waiting");
}

/* ----------------------------------------------------------------------------------------------------------------- pages */

/* Lists of pages on the device. */
enum list { LIST_PAGES, LIST_BEFORE, LIST_AFTER };

static const int32_t *list_of(const cgr__self_test *t, enum list list, int32_t group) {
  const int32_t *lists = (const int32_t *)(void *)t->device;
  return lists + (size_t)list * cgr__test_list_length(t) + (size_t)group * (size_t)cgr__test_num_pages(t);
}

static cgr__pages_args pages_args(const cgr__self_test *t, int32_t tensor) {
  const cgr_layer *l = cgr__test_layer(t, tensor);
  uint64_t *digests = (uint64_t *)(void *)(t->device + cgr__test_digest_offset(t));
  cgr__pages_args a = { .view = cgr__test_view(t, tensor), .num_pages = t->given.num_pages };
  a.pages = list_of(t, LIST_PAGES, l->group);
  a.digest = digests + (size_t)tensor * (size_t)cgr__test_num_pages(t);
  a.seed = t->given.seed + (uint64_t)tensor;
  a.page_size = t->rt->setup.groups[l->group].page_size;
  a.num_heads = l->num_kv_heads;
  a.head_dim = cgr__test_is_factor(tensor) ? 1 : tensor % 2 ? l->head_dim_v : l->head_dim;
  a.view = cgr__in_whole_bytes(&a.view, &a.head_dim);
  a.element_size = (int32_t)cgr_dtype_size((cgr_dtype)a.view.dtype);
  return a;
}

/* Digests tokens present after the step in pages that a request owns, and all of the other pages and the read-trash page. */
static cgr_status digest_pages(cgr__self_test *t, bool of_case, uint64_t *digests) {
  const cgr__device_ops *ops = t->rt->dev->ops;
  int error = 0;
  for (int32_t i = 0; i < cgr__test_num_tensors(t) && !error; i++) {
    if (!cgr__test_has_tensor(t, i))
      continue;
    cgr__pages_args args = pages_args(t, i);
    args.num_pages++;
    args.tokens = of_case ? list_of(t, LIST_AFTER, cgr__test_layer(t, i)->group) : NULL;
    error = ops->launch(t->rt->dev, &cgr__kernel_digest_pages, &args, t->rt->own_stream);
  }
  if (!error && t->num_caches > 0)
    error = ops->copy(t->rt->dev, digests, pages_args(t, 0).digest, cgr__test_digest_bytes(t), t->rt->own_stream);
  return test_failed(t, error, "cgr_runtime_self_test: summing up the pages");
}

/* Every run has its own noise in all pages; written over it, what requests have in their cache is the same in each. */
static cgr_status fill_pages(cgr__self_test *t, int run, bool of_case) {
  int error = 0;
  for (int32_t i = 0; i < cgr__test_num_tensors(t) && !error; i++) {
    if (!cgr__test_has_tensor(t, i))
      continue;
    cgr__pages_args args = pages_args(t, i), context = args;
    args.seed += (uint64_t)(cgr__test_noise(run) + 1) << 32;
    context.tokens = list_of(t, LIST_BEFORE, cgr__test_layer(t, i)->group);
    error = t->rt->dev->ops->launch(t->rt->dev, &cgr__kernel_fill_pages, &args, t->rt->own_stream);
    if (!error && of_case)
      error = t->rt->dev->ops->launch(t->rt->dev, &cgr__kernel_fill_pages, &context, t->rt->own_stream);
  }
  return test_failed(t, error, "cgr_runtime_self_test: filling the pages");
}

cgr_status cgr__test_fill_pages(cgr__self_test *t) {
  for (int run = 0; run < 3; run++) {
    CGR__TRY(fill_pages(t, run, false));
    CGR__TRY(digest_pages(t, false, t->filled[run]));
    CGR__TRY(sync_stream(t));
  }
  return CGR_OK;
}

static int32_t tokens_in_page(int32_t tokens, int32_t page, int32_t page_size) {
  int64_t in = tokens - (int64_t)page * page_size;
  return in < 0 ? 0 : in < page_size ? (int32_t)in : page_size;
}

/* The tokens that each page holds before and after the step. */
static cgr_status send_tokens(cgr__self_test *t) {
  const cgr__test_requests *of = &t->test_case.of;
  size_t list = cgr__test_list_length(t), pages = (size_t)cgr__test_num_pages(t);
  int32_t num_groups = t->rt->setup.config.num_groups;
  for (int32_t g = 0; g < num_groups; g++)
    for (size_t p = 0; p < pages; p++) {
      t->tokens[(size_t)g * pages + p] = 0;
      t->tokens[list + (size_t)g * pages + p] = t->rt->setup.groups[g].page_size;
    }
  for (int32_t i = 0; i < of->count * num_groups; i++) {
    int32_t g = i % num_groups, request = i / num_groups, size = t->rt->setup.groups[g].page_size;
    int32_t set = t->rt->setup.groups[g].length_set;
    for (int32_t p = 0; p < of->num_pages[i]; p++) {
      int32_t *at = t->tokens + (size_t)g * pages + (size_t)cgr__test_place(t, of, g, of->first_page[i] + p);
      *at = tokens_in_page(cgr__test_before(t, of, request, set), p, size);
      at[list] = tokens_in_page(cgr__test_after(t, of, request, set), p, size);
    }
  }
  int error = 0;
  if (list > 0)
    error = t->rt->dev->ops->copy(t->rt->dev, (int32_t *)(void *)t->device + list, t->tokens, 2 * list * sizeof *t->tokens,
                                  t->rt->own_stream);
  return test_failed(t, error, "cgr_runtime_self_test: sending what the pages hold");
}

/* ------------------------------------------------------------------------------------------------------------------ step */

/* How far rows of pages must be cleared. */
static bool is_extents(int id) { return id == CGR__BUFFER_BLOCK_EXTENTS || id == CGR__BUFFER_PREFILL_BLOCK_EXTENTS; }

/* One copy of a buffer. In a buffer of pages, kernels may read more of them than the step has written: pages that no row owns
 * take the place of `byte`, as of a batch of the longest requests. */
static int fill_stale(cgr__self_test *t, int id, int32_t copy, int byte) {
  cgr_runtime *rt = t->rt;
  cgr__buffer_shape shape = cgr__buffer_shape_of(&rt->setup.limits, id, copy);
  unsigned char *data = rt->arena + rt->layout.offset[id][copy];
  size_t count = (size_t)(shape.rows * shape.columns);
  const cgr__test_requests *of = &t->test_case.of;
  int32_t word, owned = of->owned[copy];
  if (is_extents(id))
    word = (int32_t)cgr__limits_kernel_pages(&rt->setup.limits, copy);
  else if (shape.shape == CGR__SHAPE_REQUEST_PAGES || shape.shape == CGR__SHAPE_BATCH_PAGES)
    word =
        t->pages[(int64_t)copy * t->given.num_pages + cgr__test_place(t, of, copy, owned + byte % (t->given.num_pages - owned))] *
        rt->setup.limits.pages_each[copy];
  else
    return rt->dev->ops->fill(rt->dev, data, (uint64_t)byte, 1, count * cgr_dtype_size(shape.dtype), rt->own_stream);
  return rt->dev->ops->fill(rt->dev, data, (uint64_t)(uint32_t)word, sizeof word, count, rt->own_stream);
}

/* What the step itself will write holds something else before. The state of rows and of the protocol stays, and so do the counts,
 * whose last words are always 0. Workspaces are zeros, which backends have to expect before any step: a plan that an eager step
 * has left must not help a graph that lacks one. */
static cgr_status make_stale(cgr__self_test *t, int byte, const int32_t *padding) {
  cgr_runtime *rt = t->rt;
  const cgr__device_ops *ops = rt->dev->ops;
  int error = 0;
  for (int id = 0; id < CGR__BUFFER_COUNT && !error; id++) {
    cgr__buffer_shape shape = cgr__buffer_shape_of(&rt->setup.limits, id, 0);
    bool stays = (shape.source == CGR__SOURCE_STATE && !is_extents(id)) || id == CGR_BUFFER_COUNTS;
    for (int32_t copy = 0; copy < shape.copies && !stays && !error; copy++)
      error = fill_stale(t, id, copy, byte);
  }
  if (!error)
    error = cgr__backend_plans_clear(rt, rt->own_stream);
  rt->lane.device_batch = 0; /* the batch layout that was there */
  if (!error)
    error = ops->copy(rt->dev, &rt->lane.args.state->padding_token, padding, sizeof *padding, rt->own_stream);
  return test_failed(t, error, "cgr_runtime_self_test: writing what is stale");
}

/* ------------------------------------------------------------------------------------------------------------------ rows */

static cgr_status give_own_pages(cgr__self_test *t, const cgr__test_requests *of, int32_t i) {
  int32_t num_groups = t->rt->setup.config.num_groups;
  for (int32_t g = 0; g < num_groups; g++) {
    const int32_t *pages = t->pages + (size_t)g * (size_t)t->given.num_pages;
    for (int32_t p = 0; p < of->num_pages[i * num_groups + g]; p++) {
      int32_t place = cgr__test_place(t, of, g, of->first_page[i * num_groups + g] + p);
      CGR__TRY(cgr_request_set_pages(t->rt, of->rows[i], g, p, &pages[place], 1));
    }
  }
  return CGR_OK;
}

/* After a request's pages comes one that it does not need and no request owns, a different one for each run: kernels find
 * it there if a row has had more pages. */
static cgr_status give_spare_pages(cgr__self_test *t, int32_t i, int run) {
  const cgr__test_requests *of = &t->test_case.of;
  const cgr_runtime *rt = t->rt;
  int32_t num_groups = rt->setup.config.num_groups, num_pages = t->given.num_pages;
  for (int32_t g = 0; g < num_groups; g++) {
    const int32_t *pages = t->pages + (size_t)g * (size_t)num_pages;
    int32_t count = of->num_pages[i * num_groups + g];
    int32_t spare = of->owned[g] + (i + cgr__test_noise(run)) % (num_pages - of->owned[g]);
    if (count > 0 && count < rt->setup.limits.pages_per_row[g])
      CGR__TRY(cgr_request_set_pages(t->rt, of->rows[i], g, count, &pages[cgr__test_place(t, of, g, spare)], 1));
  }
  return CGR_OK;
}

static cgr_status open_rows(cgr__self_test *t, cgr__test_requests *of) {
  for (int32_t i = 0; i < of->count; i++)
    if (of->rows[i] < 0) {
      CGR__TRY(cgr_request_open(t->rt, of->seeds[i], &of->rows[i]));
      CGR__TRY(give_own_pages(t, of, i));
    }
  return CGR_OK;
}

cgr_status cgr__test_shuffle_rows(cgr__self_test *t) {
  int32_t count = 2 * t->rt->setup.config.max_requests, row;
  count = count < t->rt->rows.limits->max_rows ? count : t->rt->rows.limits->max_rows;
  for (int32_t i = 0; i < count; i++) {
    int32_t other = cgr__test_pick(t, i + 1);
    CGR__TRY(cgr_request_open(t->rt, 0, &row));
    t->order[i] = t->order[other];
    t->order[other] = row;
  }
  for (int32_t i = 0; i < count; i++)
    CGR__TRY(cgr_request_close(t->rt, (int32_t)t->order[i]));
  return CGR_OK;
}

static cgr_status set_length(cgr__self_test *t, int32_t row, int32_t tokens) {
  CGR__TRY(cgr_request_set_length(t->rt, row, tokens));
  t->rt->rows.row[row].shared_prefix = false; /* its tokens are there: all runs are such steps as most of an engine's */
  return CGR_OK;
}

/* With the tokens before the step, and the data, that the requests have. */
static cgr_status set_rows(cgr__self_test *t, const cgr__test_requests *of) {
  for (int32_t i = 0; i < of->count; i++) {
    CGR__TRY(set_length(t, of->rows[i], cgr__test_before(t, of, i, 0)));
    for (int32_t s = 1; s < t->rt->setup.limits.num_sets; s++) /* of the step's own set with its tokens */
      CGR__TRY(cgr_request_set_other_length(t->rt, of->rows[i], s, cgr__test_after(t, of, i, s)));
    CGR__TRY(cgr__test_set_row_data(t, of->rows[i], of->seeds[i]));
  }
  return CGR_OK;
}

/* At length 0, with other data. They see no token but their own, so that all runs leave them in the same state. */
static cgr_status reset_rows(cgr__self_test *t) {
  const cgr__test_case *c = &t->test_case;
  for (int32_t i = 0; i < c->of.count; i++) {
    CGR__TRY(set_length(t, c->of.rows[i], 0));
    for (int32_t s = 1; s < t->rt->setup.limits.num_sets; s++)
      CGR__TRY(cgr_request_set_other_length(t->rt, c->of.rows[i], s, s == c->set ? c->first_lens[i] : 0));
    CGR__TRY(cgr__test_set_row_data(t, c->of.rows[i], ~c->of.seeds[i]));
  }
  return CGR_OK;
}

static cgr_status send_changes(cgr__self_test *t) {
  cgr_runtime *rt = t->rt;
  for (;;) { /* pages of many requests fill more ring slots than there are */
    cgr_mark last = { 0, 0, 0 };
    cgr_status status = cgr_runtime_flush(rt, NULL, &last, rt->own_stream);
    if (status != CGR_OK && status != CGR_ERROR_BUSY)
      return status;
    CGR__TRY(cgr__wait_completed(rt, "cgr_runtime_self_test", last.seq, rt->setup.config.wait_timeout_ms));
    if (status == CGR_OK)
      return CGR_OK;
  }
}

void cgr__test_close_rows(cgr__self_test *t, cgr__test_requests *of) {
  for (int32_t i = 0; i < t->rt->setup.config.max_requests; i++) {
    if (of->rows[i] >= 0)
      (void)cgr_request_close(t->rt, of->rows[i]);
    of->rows[i] = -1;
  }
}

/* ----------------------------------------------------------------------------------------------------------------- steps */

/* The calls of `record` that made the step which was launched last. */
static cgr__record_calls calls_of_step(cgr__self_test *t, const cgr_key *key) {
  const cgr__graph_entry *entry = key->kind == CGR_KIND_NONE ? NULL : cgr__graphs_find(&t->rt->graphs, key);
  const cgr__record_calls *made = &t->rt->recorder.base.calls;
  if (!entry)
    return *made;
  cgr__record_calls calls = entry->calls;
  for (int i = 0; i < CGR__RECORDED_COUNT && entry->breaks; i++)
    calls.count[i] += made->count[i];
  calls.checked |= entry->breaks ? made->checked : 0;
  return calls;
}

/* Runs t->batch. `calls` and `result` may be NULL. */
static cgr_status run_batch(cgr__self_test *t, cgr__record_calls *calls, cgr_step_result *result) {
  const cgr__test_batch *b = &t->batch;
  cgr_batch batch = CGR_BATCH_INIT;
  cgr_step step = CGR_STEP_INIT;
  cgr_staged staged[CGR__MAX_DECLARED];
  CGR__TRY(send_changes(t));
  batch.num_requests = b->num_requests;
  batch.rows = b->rows;
  batch.query_lens = b->lens;
  batch.tokens = b->tokens;
  batch.variant = b->key.variant;
  batch.forced_key = &b->key;
  batch.staged = staged;
  batch.num_staged = cgr__test_batch_data(t, staged);
  CGR__TRY(cgr_step_prepare(t->rt, &batch, &step));
  cgr_status status = cgr_step_launch(t->rt, &step, t->rt->own_stream);
  if (status != CGR_OK) {
    if (step.state == CGR_STEP_PREPARED)
      (void)cgr_step_cancel(t->rt, &step);
    return status;
  }
  if (calls)
    *calls = calls_of_step(t, &b->key);
  return cgr_step_wait(t->rt, step.mark, -1, result);
}

static cgr_status read_items(cgr__self_test *t, cgr__test_run *run, bool of_next) {
  const cgr__test_case *c = &t->test_case;
  int error = 0;
  for (int32_t i = 0; i < c->num_items && !error; i++) {
    const cgr__test_item *item = &c->items[i];
    if (item->of_next == of_next && item->data)
      error = t->rt->dev->ops->copy(t->rt->dev, run->content + item->offset, item->data,
                                    (size_t)((item->rows - 1) * item->stride + item->row_bytes), t->rt->own_stream);
  }
  return test_failed(t, error, "cgr_runtime_self_test: reading what the step wrote");
}

/* What the host is told. */
static void keep_result(const cgr__self_test *t, cgr__test_run *run, const cgr_step_result *result) {
  const cgr__test_case *c = &t->test_case;
  for (int32_t i = 0; i < c->num_items; i++)
    for (int32_t r = 0; r < c->items[i].rows && !c->items[i].data; r++)
      if (r < result->num_requests && result->num_tokens[r] > 0)
        memcpy(run->content + c->items[i].offset + r * c->items[i].stride, &result->tokens[r * result->token_stride],
               sizeof *result->tokens);
}

/* Of another size than the key's. It may reach positions that no decoy after it does, and the case reads them in memory of the
 * engine's own: so every run has it, and the same one. */
static cgr_status run_other_size(cgr__self_test *t) {
  CGR__TRY(reset_rows(t));
  return cgr__test_batch_other(t) ? run_batch(t, NULL, NULL) : CGR_OK;
}

/* Host code that does something once for each size has to do it again after a step of another size. It has done so for this
 * decoy, and not for the one after it. */
static cgr_status run_earlier_decoy(cgr__self_test *t) {
  CGR__TRY(reset_rows(t));
  cgr__test_batch_first(t, cgr__test_random(t, UINT64_MAX));
  return run_batch(t, NULL, NULL);
}

/* Of rows that are in no other step. */
static cgr_status run_later_decoy(cgr__self_test *t) {
  cgr__test_compose_decoy(t);
  if (t->decoy.count == 0)
    return CGR_OK;
  CGR__TRY(open_rows(t, &t->decoy));
  CGR__TRY(set_rows(t, &t->decoy));
  cgr__test_batch_decoy(t);
  CGR__TRY(run_batch(t, NULL, NULL));
  cgr__test_close_rows(t, &t->decoy);
  return CGR_OK;
}

static cgr_status run_decoy(cgr__self_test *t, int run) {
  CGR__TRY(open_rows(t, &t->test_case.of));
  for (int32_t i = 0; i < t->test_case.of.count; i++)
    CGR__TRY(give_spare_pages(t, i, run));
  CGR__TRY(run_other_size(t));
  if (run == 1)
    CGR__TRY(run_earlier_decoy(t));
  CGR__TRY(reset_rows(t));
  cgr__test_batch_first(t, CGR__SEED_OF_DECOY);
  CGR__TRY(run_batch(t, NULL, NULL));
  return run == 2 ? run_later_decoy(t) : CGR_OK;
}

static cgr_status run_case(cgr__self_test *t, int index, cgr_graph_kind kind, int stale, int32_t padding) {
  CGR__TRY(set_rows(t, &t->test_case.of));
  CGR__TRY(send_changes(t));
  CGR__TRY(send_tokens(t));
  CGR__TRY(fill_pages(t, index, true));
  CGR__TRY(make_stale(t, stale, &padding));
  cgr__test_batch_case(t, kind);
  cgr_step_result result = CGR_STEP_RESULT_INIT;
  cgr_status status = run_batch(t, &t->runs[index].calls, &result);
  if (status != CGR_OK) {
    (void)sync_stream(t); /* `padding` is read until then */
    return status;
  }
  keep_result(t, &t->runs[index], &result);
  CGR__TRY(digest_pages(t, true, t->runs[index].digests));
  CGR__TRY(read_items(t, &t->runs[index], false));
  return sync_stream(t);
}

/* Whether what has been sampled can be the input of the next step. What is missing in a graph may leave anything there, and then
 * the case differs. */
static bool has_good_tokens(const cgr__self_test *t, const cgr__test_run *run) {
  const cgr__test_case *c = &t->test_case;
  int32_t token;
  for (int32_t i = 0; i < c->num_items; i++)
    for (int32_t r = 0; r < c->items[i].rows; r++) {
      const cgr__test_item *item = &c->items[i];
      if (!item->is_sampled || item->of_next || item->lens[r] == 0)
        continue;
      memcpy(&token, run->content + item->offset + r * item->stride, sizeof token);
      if (token < 0 || token >= t->given.max_token)
        return false;
    }
  return true;
}

/* The first run says whether the engine samples tokens of the given vocabulary at all. */
static cgr_status run_next(cgr__self_test *t, cgr__test_run *run, cgr_graph_kind kind) {
  cgr__test_case *c = &t->test_case;
  bool good = has_good_tokens(t, run);
  if (run == &t->runs[0])
    c->next_has_sampled = good;
  run->has_next = c->num_next > 0 && (good || !c->next_has_sampled);
  if (!run->has_next)
    return CGR_OK;
  for (int32_t i = 0; i < c->of.count && c->set > 0; i++)
    CGR__TRY(cgr_request_set_other_length(t->rt, c->of.rows[i], c->set, cgr__test_after(t, &c->of, i, c->set) + c->next_lens[i]));
  CGR__TRY(cgr__test_batch_next(t, kind));
  CGR__TRY(run_batch(t, NULL, NULL));
  CGR__TRY(read_items(t, run, true));
  return sync_stream(t);
}

cgr_status cgr__test_run_case(cgr__self_test *t, int index, cgr_graph_kind kind, int stale, int32_t padding) {
  cgr__test_run *run = &t->runs[index];
  size_t bytes = (size_t)t->test_case.content_bytes;
  free(run->content);
  run->content = calloc(1, bytes + 1);
  if (!run->content)
    return cgr__fail(CGR_ERROR_OUT_OF_MEMORY, "cgr_runtime_self_test: no memory for %zu bytes", bytes);
  CGR__TRY(run_decoy(t, index));
  CGR__TRY(run_case(t, index, kind, stale, padding));
  return run_next(t, run, kind);
}
