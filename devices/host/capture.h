/* Capture, with the rules of cudaStreamCaptureModeThreadLocal. A stream that captures turns work into nodes; an event
 * recorded on it stands for nodes, and a stream that waits for such an event joins the capture.
 *
 * Refused, with CUDA's code; "invalidates" means that capture_end will answer 901 and give no graph:
 *   capture_begin on a capturing stream                                      401 CAPTURE_ILLEGAL
 *   stream_sync, stream_query, stream_destroy of a capturing stream           900 CAPTURE_ILLEGAL  invalidates
 *   exec_launch on a capturing stream                                        900 CAPTURE_ILLEGAL  invalidates
 *   event_query, event_sync of a captured event                              907 CAPTURE_ILLEGAL  invalidates
 *   an event_wait outside for an event of a capture that is over              907 CAPTURE_ILLEGAL
 *   mem_alloc, mem_free, instantiate and any sync or query by a thread        900 CAPTURE_ILLEGAL  invalidates
 *     that captures (CUDA's list of unsafe calls; sync of unrelated streams is refused here to be on the safe side)
 *   an event_wait that would merge two captures                              902 CAPTURE_INVALID  invalidates both
 *   an event_wait in a capture for an event recorded outside of it           905 CAPTURE_INVALID  invalidates
 *   capture_end on a stream that does not capture                            401 CAPTURE_INVALID
 *   capture_end on a forked stream                                           903 CAPTURE_INVALID  invalidates
 *   capture_end by another thread                                            908 CAPTURE_INVALID  ends
 *   capture_end with a forked stream not joined                              904 CAPTURE_INVALID  ends
 *   anything on a stream of an invalid capture                               901 CAPTURE_INVALID
 * Work by other threads, creation and destruction of streams and events, and destruction of graphs and execs are fine, as with
 * CUDA. */
#ifndef CGR_DEVICES_HOST_CAPTURE_H
#define CGR_DEVICES_HOST_CAPTURE_H

#include "devices/host/types.h"

/* Operations of the table. */
int cgr__host_capture_begin(cgr_device *dev, cudaStream_t stream);
int cgr__host_capture_end(cgr_device *dev, cudaStream_t stream, cgr__graph **graph);
int cgr__host_capture_status(cgr_device *dev, cudaStream_t stream, int *capturing);
int cgr__host_capture_nodes(cgr_device *dev, cudaStream_t stream, const void **nodes, size_t capacity, size_t *count);

/* With the lock held. 0, or CAPTURE_ILLEGAL and the captures of the calling thread, or of the stream, are invalid. */
int cgr__host_refuse_capturing_thread(struct host_device *host);
int cgr__host_refuse_capturing_stream(struct host_device *host, struct host_stream *stream);
/* A host-side use of an event that a capture recorded: CAPTURE_ILLEGAL, and that capture, if it is still open, is invalid. */
int cgr__host_refuse_captured_event(struct host_device *host, const cgr__event *event);

/* With the lock held: work, an event's record and a wait on a stream that captures, or for an event of a capture. */
int cgr__host_capture_add(struct host_device *host, struct host_stream *stream, const struct host_work *work, size_t args_size);
int cgr__host_capture_record(struct host_device *host, struct host_stream *stream, cgr__event *event);
int cgr__host_capture_wait(struct host_device *host, struct host_stream *stream, cgr__event *event);
void cgr__host_capture_drop(struct host_device *host, struct host_capture *capture);

#endif
