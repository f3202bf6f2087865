/* What `record` gets: the stream, the counts and the key of the step that it enqueues. It keeps the first failure of a call made
 * through it, so that a `record` that ignores one cannot make a good step out of it. */
#ifndef CGR_GRAPHS_RECORDER_H
#define CGR_GRAPHS_RECORDER_H

#include <stdbool.h>
#include <stdint.h>

#include "cgr/cgr.h"
#include "devices/device.h"
#include "graphs/graphs.h"
#include "tracing/nvtx.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Consumers of ranges. Bits of cgr_runtime.flags, too (CGR__RUNTIME_*), of which the recorder gets a copy. */
enum {
  CGR__WATCH_RANGES = 2, /* a profiler: tracing/nvtx.h */
  CGR__WATCH_LABELS = 4  /* the labels of the graph that is being captured: labels.h */
};

/* A backend's function that is running, for messages. */
typedef struct cgr__running {
  const char *backend; /* its name; NULL: none is */
  const char *function;
  int32_t layer; /* -1: it is called for all */
} cgr__running;

struct cgr_recorder {
  struct cgr__step_recorder *owner; /* what the runtime keeps with it; this folder does not look into that */
  cgr_device *dev;
  cudaStream_t stream;
  cgr_key key;
  bool capturing;
  bool open;                  /* `record` is running, or a call of a PIECEWISE step */
  bool in_call;               /* inside a function of cgr_record_call, or a backend's */
  bool in_plan;               /* inside a backend's plan */
  uint8_t watched;            /* CGR__WATCH_* */
  cgr__open_capture *capture; /* NULL: not capturing */
  cgr__open_capture *pieces;  /* of a PIECEWISE capture, which breaks at calls; NULL: calls are made at once */
  cgr_status (*before_break)(cgr_recorder *recorder); /* joins the runtime's own work to the piece */
  int32_t real_tokens, real_requests;                 /* -1 when capturing */
  int32_t max_seq_len, max_query_len;
  int32_t num_decodes, num_decode_tokens;      /* -1: when capturing, or not known */
  void (*find_bounds)(cgr_recorder *recorder); /* sets the four above, when asked; NULL: they are set */
  void (*find_plan)(cgr_recorder *recorder,
                    cgr_record_info *info); /* fills plan_key and plan_state inside a backend's function */
  cgr__running running;                     /* of backends */
  cgr__record_calls calls;                  /* so far */
  cgr_status failed;                        /* first failure, or CGR_OK */
  bool named;                               /* the message says whose it is: a backend's */
  int32_t ranges;                           /* of cgr_record_range_begin that have not ended */
  char message[400];
};

/* "backend fa3: plan", "backend fa3, layer 3: record". */
typedef struct cgr__title {
  char text[72];
} cgr__title;
cgr__title cgr__title_of(const cgr__running *running);

/* A range, if a tool watches. */
void cgr__recorder_watch_begin(const cgr_recorder *recorder, cgr__nvtx_range range);
void cgr__recorder_watch_end(const cgr_recorder *recorder);
static inline void cgr__recorder_range_begin(const cgr_recorder *recorder, cgr__nvtx_range range) {
  if (recorder->watched)
    cgr__recorder_watch_begin(recorder, range);
}
static inline void cgr__recorder_range_end(const cgr_recorder *recorder) {
  if (recorder->watched)
    cgr__recorder_watch_end(recorder);
}

/* Checks the handle, and that `record` is running. */
cgr_status cgr__recorder_check(const cgr_recorder *recorder, const char *function);

/* Keeps a failure whose message is the thread's last one; returns `status`. */
cgr_status cgr__recorder_latch(cgr_recorder *recorder, cgr_status status);

/* The same for a failure of a backend's function, whose message names the backend. */
cgr_status cgr__recorder_latch_named(cgr_recorder *recorder, cgr_status status);

/* A function of the engine's is called between these two, and may use the recorder. CGR_ERROR_CALLBACK when a call through it has
 * failed, even if the function has ignored that; `where` for the message, which names the backend instead if it was in one. */
void cgr__recorder_open(cgr_recorder *recorder);
cgr_status cgr__recorder_close(cgr_recorder *recorder, const char *where);

/* Calls the engine's `record`. CGR_ERROR_CALLBACK, with the cause in the message, when it fails or a call through the recorder
 * did. */
cgr_status cgr__recorder_run(cgr_recorder *recorder, cgr_record_function record, void *engine);

/* Breaks a PIECEWISE capture: the calls are made at every replay, one after the other. */
cgr_status cgr__recorder_break(cgr_recorder *recorder, const cgr__call *calls, int32_t count, const char *function);

/* Makes a call now. A failure's message is the function's, or says that it has none. */
cgr_status cgr__recorder_call(cgr_recorder *recorder, cgr_call_function function, const void *args);

/* Makes a call of a PIECEWISE step. CGR_ERROR_CALLBACK, with the cause in the message, when it fails or a call through the
 * recorder did. */
cgr_status cgr__recorder_replay_call(cgr_recorder *recorder, cgr_call_function function, const void *args);

#ifdef __cplusplus
}
#endif

#endif
