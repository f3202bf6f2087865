/* Whether labels are right: the representative step (support/step32.h) is replayed while CUPTI records what the GPU does, and
 * each record of a graph's node is looked up in the labels of the graph. Prints what each phase takes, and how much of it all
 * labels cover.
 *
 *   bazel-bin/profiles/label_coverage [cuda:0] [--kind full|piecewise] [--requests N] [--length N] [--layers N] [--replays N]
 *                                     [--warm-up N] [--labels graph_labels.json]
 *
 * Ends with 0 when labels cover more than 95% of the GPU time of the graphs, every node has the name that its label says, and
 * every labelled node has run; with 77 where there is no CUPTI, or no GPU; else with 1. libcupti is looked for where the loader
 * looks, and in the toolkit in /usr/local/cuda. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "cgr/names.h"
#include "graphs/labels.h"
#include "profiles/support/step32.h"
#include "runtime/runtime.h"

#define SKIPPED 77
#define WANTED 95.0 /* percent */

#if defined(__has_include)
#if __has_include(<cupti.h>)
#define HAS_CUPTI 1
#endif
#endif

#ifdef HAS_CUPTI
#include <cupti.h>

/* ----------------------------------------------------------------------------------------------------------------- CUPTI */

#define BUFFER_BYTES ((size_t)8 << 20)

static struct {
  CUptiResult (*ActivityEnable)(CUpti_ActivityKind kind);
  CUptiResult (*ActivityDisable)(CUpti_ActivityKind kind);
  CUptiResult (*ActivityRegisterCallbacks)(CUpti_BuffersCallbackRequestFunc request, CUpti_BuffersCallbackCompleteFunc complete);
  CUptiResult (*ActivityFlushAll)(uint32_t flags);
  CUptiResult (*ActivityGetNextRecord)(uint8_t *buffer, size_t bytes, CUpti_Activity **record);
  CUptiResult (*ActivityGetNumDroppedRecords)(CUcontext context, uint32_t stream, size_t *dropped);
} cupti;

/* What the GPU has done. */
typedef struct activity {
  uint64_t node;  /* graphNodeId; 0: of no graph */
  uint32_t graph; /* its high half: the executable graph's */
  uint64_t ns;
  char *name; /* of a kernel; else "copy", "fill" */
} activity;

static struct {
  activity *all; /* [count] */
  size_t count, capacity, dropped;
  size_t other_graph; /* whose graphId is not the high half of graphNodeId */
} seen;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* CUPTI has threads of its own */

static void see(uint64_t node, uint32_t graph, uint64_t begin, uint64_t end, const char *name) {
  if (seen.count == seen.capacity) {
    seen.capacity = 2 * seen.capacity + 4096;
    seen.all = realloc(seen.all, seen.capacity * sizeof *seen.all);
    if (!seen.all)
      bench_fail("no memory for %zu records", seen.capacity);
  }
  seen.all[seen.count++] = (activity){ node, (uint32_t)(node >> 32), end - begin, strdup(name ? name : "") };
  seen.other_graph += node != 0 && graph != (uint32_t)(node >> 32);
}

static void forget_all(void) {
  pthread_mutex_lock(&lock);
  for (size_t i = 0; i < seen.count; i++)
    free(seen.all[i].name);
  seen.count = seen.other_graph = 0;
  pthread_mutex_unlock(&lock);
}

static void CUPTIAPI give_buffer(uint8_t **buffer, size_t *bytes, size_t *records) {
  *buffer = aligned_alloc(64, BUFFER_BYTES);
  *bytes = *buffer ? BUFFER_BYTES : 0;
  *records = 0;
}

/* Records of newer toolkits are longer, with these at their beginning. CUDA 12.4 has no newer ones. */
static void take_record(const CUpti_Activity *record) {
  if (record->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) {
    const CUpti_ActivityKernel9 *k = (const void *)record;
    see(k->graphNodeId, k->graphId, k->start, k->end, k->name);
  } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMCPY) {
    const CUpti_ActivityMemcpy5 *m = (const void *)record;
    see(m->graphNodeId, m->graphId, m->start, m->end, "copy");
  } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMSET) {
    const CUpti_ActivityMemset4 *m = (const void *)record;
    see(m->graphNodeId, m->graphId, m->start, m->end, "fill");
  }
}

static void CUPTIAPI take_buffer(CUcontext context, uint32_t stream, uint8_t *buffer, size_t bytes, size_t valid) {
  CUpti_Activity *record = NULL;
  size_t dropped = 0;
  (void)bytes;
  pthread_mutex_lock(&lock);
  while (valid > 0 && cupti.ActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS)
    take_record(record);
  if (cupti.ActivityGetNumDroppedRecords(context, stream, &dropped) == CUPTI_SUCCESS)
    seen.dropped += dropped;
  pthread_mutex_unlock(&lock);
  free(buffer);
}

static bool find_functions(void *library) {
  static const struct {
    const char *name;
    void *at;
  } functions[] = {
    { "cuptiActivityEnable", &cupti.ActivityEnable },
    { "cuptiActivityDisable", &cupti.ActivityDisable },
    { "cuptiActivityRegisterCallbacks", &cupti.ActivityRegisterCallbacks },
    { "cuptiActivityFlushAll", &cupti.ActivityFlushAll },
    { "cuptiActivityGetNextRecord", &cupti.ActivityGetNextRecord },
    { "cuptiActivityGetNumDroppedRecords", &cupti.ActivityGetNumDroppedRecords },
  };
  for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++) {
    void *function = dlsym(library, functions[i].name);
    if (!function)
      return false;
    memcpy(functions[i].at, &function, sizeof function);
  }
  return true;
}

static bool load_cupti(void) {
  static const char *const folders[] = { "", "/usr/local/cuda/lib64/", "/usr/local/cuda/extras/CUPTI/lib64/" };
  for (size_t i = 0; i < 2 * sizeof folders / sizeof folders[0]; i++) {
    char path[128];
    snprintf(path, sizeof path, i % 2 ? "%slibcupti.so" : "%slibcupti.so.%d", folders[i / 2], CUDA_VERSION / 1000);
    void *library = dlopen(path, RTLD_NOW);
    if (library && find_functions(library))
      return true;
  }
  return false;
}

/* Before there is a context, so that no graph is made without it. */
static bool begin_activity(void) {
  static const CUpti_ActivityKind kinds[] = { CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY,
                                              CUPTI_ACTIVITY_KIND_MEMSET };
  bool works = cupti.ActivityRegisterCallbacks(give_buffer, take_buffer) == CUPTI_SUCCESS;
  for (size_t i = 0; i < sizeof kinds / sizeof kinds[0] && works; i++)
    works = cupti.ActivityEnable(kinds[i]) == CUPTI_SUCCESS;
  return works;
}

/* ---------------------------------------------------------------------------------------------------------------- lookup */

/* An activity's node, or a label's: those of one graph are together, in the order of their ids. */
static int by_node(const void *a, const void *b) {
  const activity *x = a, *y = b;
  if (x->graph != y->graph)
    return (x->graph > y->graph) - (x->graph < y->graph);
  return (x->node > y->node) - (x->node < y->node);
}

/* The GPU is not busy with nodes of these names; a host function's has its address after it. graph_time.py has the same rule. */
static bool is_active(const char *name) {
  static const char host_function[] = "host function";
  return strcmp(name, "event") != 0 && strcmp(name, "child graph") != 0 && strcmp(name, "node") != 0 &&
         strncmp(name, host_function, sizeof host_function - 1) != 0;
}

/* Both have a kernel's mangled name; a name that is not mangled must be in the other. */
static bool agree(const char *label, const char *name) {
  return strcmp(label, name) == 0 || (label[0] != '_' && *name && strstr(name, label)) || (name[0] != '_' && strstr(label, name));
}

#define PHASES (CGR__RANGE_COUNT + 1) /* the last: of no label */

typedef struct coverage {
  const cgr__labels *labels;
  uint64_t ns[PHASES], count[PHASES];
  uint64_t outside_ns, outside, covered_ns, all_ns;
  int64_t graphs, mismatches, nodes_missed, uneven;
  int32_t replays;
} coverage;

static void take(coverage *c, const activity *first, size_t replays, const cgr__labelled_node *node) {
  int phase = node && node->label.range >= 0 ? node->label.range : CGR__RANGE_COUNT;
  const char *name = node ? c->labels->names + node->name : NULL;
  bool fits = name && agree(name, first->name) && (!node->tools_id || node->tools_id == first->node);
  for (size_t i = 0; i < replays; i++) {
    c->ns[phase] += first[i].ns;
    c->count[phase]++;
    c->all_ns += first[i].ns;
    c->covered_ns += fits && phase < CGR__RANGE_COUNT ? first[i].ns : 0;
  }
  c->uneven += replays != (size_t)c->replays;
  c->mismatches += node && !fits;
  if (node && !fits && c->mismatches <= 10)
    printf("# mismatch: node %llu of graph %u is %s, the label says %s\n", (unsigned long long)(first->node & 0xffffffffu),
           first->graph, first->name, name);
}

/* The next labelled node that the GPU is busy with, of the piece; `count` when there is none. */
static int64_t next_node(const coverage *c, int64_t i, int32_t piece) {
  while (i < c->labels->num_nodes && c->labels->node[i].piece == piece && !is_active(c->labels->names + c->labels->node[i].name))
    i++;
  return i;
}

/* The activities of one graph, against one piece: the k-th id is the k-th node. */
static int64_t match_graph(coverage *c, const activity *a, size_t count, int64_t at) {
  int64_t i = at;
  int32_t piece = at < c->labels->num_nodes ? c->labels->node[at].piece : -1;
  for (size_t first = 0, next; first < count; first = next) {
    for (next = first + 1; next < count && a[next].node == a[first].node;)
      next++;
    i = next_node(c, i, piece);
    bool has = i < c->labels->num_nodes && c->labels->node[i].piece == piece;
    take(c, &a[first], next - first, has ? &c->labels->node[i] : NULL);
    i += has;
  }
  for (; i < c->labels->num_nodes && c->labels->node[i].piece == piece; i++)
    c->nodes_missed += is_active(c->labels->names + c->labels->node[i].name);
  c->graphs++;
  return i;
}

/* Graphs have their ids in the order in which they were made, as pieces have. */
static void match_all(coverage *c) {
  int64_t at = 0;
  qsort(seen.all, seen.count, sizeof *seen.all, by_node);
  for (size_t first = 0, next; first < seen.count; first = next) {
    for (next = first + 1; next < seen.count && seen.all[next].graph == seen.all[first].graph;)
      next++;
    if (seen.all[first].graph != 0) {
      at = match_graph(c, &seen.all[first], next - first, at);
      continue;
    }
    for (size_t i = first; i < next; i++)
      c->outside_ns += seen.all[i].ns;
    c->outside += next - first;
  }
  for (; at < c->labels->num_nodes; at++)
    c->nodes_missed += is_active(c->labels->names + c->labels->node[at].name);
}

/* ---------------------------------------------------------------------------------------------------------------- report */

static const char *phase_name(int phase) {
  static const char *const names[] = {
#define NAME(name, text, category) text,
    CGR__RANGE_LIST(NAME)
#undef NAME
  };
  return phase < CGR__RANGE_COUNT ? names[phase] : "no label";
}

/* Returns whether labels are good enough. */
static bool report(const coverage *c) {
  double covered = c->all_ns > 0 ? 100.0 * (double)c->covered_ns / (double)c->all_ns : 0.0;
  printf("\n## GPU time of a replay, by phase\n| phase | nodes | us | share |\n|---|---:|---:|---:|\n");
  for (int p = 0; p < PHASES; p++)
    if (c->count[p] > 0)
      printf("| %s | %.1f | %.2f | %.1f%% |\n", phase_name(p), (double)c->count[p] / c->replays,
             (double)c->ns[p] * 1e-3 / c->replays, 100.0 * (double)c->ns[p] / (double)c->all_ns);
  printf("\n# outside of graphs: %.1f kernels, %.2f us for each replay\n", (double)c->outside / c->replays,
         (double)c->outside_ns * 1e-3 / c->replays);
  printf("# graphs: %lld, records: %zu (%zu dropped, %zu whose graphId is not the high half of graphNodeId)\n",
         (long long)c->graphs, seen.count, seen.dropped, seen.other_graph);
  printf("# coverage: %.2f%% of %.2f us in graphs, wanted: more than %.0f%%\n", covered, (double)c->all_ns * 1e-3 / c->replays,
         WANTED);
  printf(
      "# nodes of another name: %lld; labelled nodes that the GPU did not run: %lld; nodes not run once in each replay: %lld\n",
      (long long)c->mismatches, (long long)c->nodes_missed, (long long)c->uneven);
  return covered > WANTED && c->mismatches == 0 && c->nodes_missed == 0;
}

static int measure(const step32_options *options) {
  step32 s;
  step32_open(&s, options);
  if (s.engine.is_host) {
    step32_close(&s);
    printf("# skipped: the host device has no CUPTI\n");
    return SKIPPED;
  }
  bench_print_head(stdout, s.engine.dev, "profiles/label_coverage");
  step32_run(&s, options->warmup);
  (void)cupti.ActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
  forget_all();
  step32_run(&s, options->replays);
  (void)cupti.ActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
  const cgr__graph_entry *entry = cgr__graphs_find(&s.engine.rt->graphs, &s.key);
  coverage c = { .labels = entry ? entry->labels : NULL, .replays = options->replays };
  if (!c.labels || c.labels->error)
    bench_fail("the steps replay no graph with labels");
  printf("# step: %s, %d layers, %d requests, %d tokens in each cache, %d replays\n",
         cgr_graph_kind_name((cgr_graph_kind)s.key.kind), options->layers, options->requests, options->length, options->replays);
  match_all(&c);
  bool good = report(&c);
  step32_write_labels(&s);
  step32_close(&s);
  return good ? 0 : 1;
}

int main(int argc, char **argv) {
  step32_options options = step32_read(argc, argv);
  if (!load_cupti() || !begin_activity()) {
    printf("# skipped: libcupti does not load, or records nothing here\n");
    return SKIPPED;
  }
  return measure(&options);
}

#else

int main(int argc, char **argv) {
  (void)step32_read(argc, argv);
  printf("# skipped: this build has no headers of CUPTI\n");
  return SKIPPED;
}
#endif
