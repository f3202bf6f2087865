/* cgr_step, which prepare fills and launch and cancel read, and cgr_step_result, in other sizes. */
#ifndef CGR_TESTS_HEADERS_STEPS_H
#define CGR_TESTS_HEADERS_STEPS_H

#include "tests/headers/sized.h"
#include "tests/headers/world.h"

/* A newer caller's step goes through its whole life, and its extra fields stay as they were. */
static void check_longer_step(world *w, size_t size) {
  const cgr_step initial = CGR_STEP_INIT;
  const cgr_batch batch = world_batch(w);
  unsigned char *given = (unsigned char *)sized_copy(&initial, sizeof initial, size, 0xa5);
  cgr_step *step = (cgr_step *)(void *)given;
  for (int life = 0; life < 2; life++) {
    size_t wrong = 0;
    CHECK_OK(cgr_step_prepare(w->runtime, &batch, step));
    CHECK(step->state == CGR_STEP_PREPARED && step->ticket != 0 && step->num_requests == 1);
    if (life == 0)
      CHECK_OK(cgr_step_cancel(w->runtime, step));
    else
      CHECK_OK(cgr_step_launch(w->runtime, step, w->stream));
    CHECK(step->state == (life == 0 ? CGR_STEP_CANCELLED : CGR_STEP_LAUNCHED));
    CHECK(step->size == size);
    for (size_t i = sizeof initial; i < size; i++)
      wrong += given[i] != 0xa5;
    CHECK(wrong == 0);
  }
  CHECK_OK(cgr_step_wait(w->runtime, step->mark, -1, NULL));
  free(given);
}

/* A step without room for the ticket cannot be launched: it is refused and not written. */
static void check_shorter_step(world *w, size_t size) {
  const cgr_step initial = CGR_STEP_INIT;
  const cgr_batch batch = world_batch(w);
  unsigned char *given = (unsigned char *)sized_copy(&initial, sizeof initial, size, 0);
  unsigned char *before = (unsigned char *)sized_copy(&initial, sizeof initial, size, 0);
  CHECK_CALL(CGR_ERROR_INVALID_STRUCT, "step", cgr_step_prepare(w->runtime, &batch, (cgr_step *)(void *)given));
  CHECK(memcmp(given, before, size) == 0);
  free(given);
  free(before);
}

/* Neither launch nor cancel takes such a step for the prepared one, which is not lost. */
static void check_shorter_launch(world *w, size_t size) {
  const cgr_batch batch = world_batch(w);
  cgr_step step = CGR_STEP_INIT;
  CHECK_OK(cgr_step_prepare(w->runtime, &batch, &step));
  unsigned char *given = (unsigned char *)sized_copy(&step, sizeof step, size, 0);
  CHECK_CALL(CGR_ERROR_STATE, "step", cgr_step_launch(w->runtime, (cgr_step *)(void *)given, w->stream));
  CHECK_CALL(CGR_ERROR_STATE, "step", cgr_step_cancel(w->runtime, (cgr_step *)(void *)given));
  CHECK_OK(cgr_step_cancel(w->runtime, &step));
  free(given);
}

/* ---- results */

static cgr_mark waited_for;

static cgr_status wait_for_step(void *context, void *given) {
  return cgr_step_wait(((world *)context)->runtime, waited_for, -1, (cgr_step_result *)given);
}

static int test_steps(void) {
  const int before = check_failures;
  const sized_output result = { "cgr_step_wait: result", sizeof(cgr_step_result), 0, 0, wait_for_step };
  world w;
  cgr_step step = CGR_STEP_INIT;
  world_run(&w);
  const cgr_batch batch = world_batch(&w);
  for (size_t more = 0; more <= 40; more += 8)
    check_longer_step(&w, sizeof step + more);
  for (size_t size = sizeof(uint32_t); size < sizeof step; size += 4) {
    check_shorter_step(&w, size);
    check_shorter_launch(&w, size);
  }
  for (int i = 0; i < SIZED_NONE; i++) {
    unsigned char *none = sized_rubbish(sized_none(i));
    CHECK_CALL(CGR_ERROR_INVALID_STRUCT, "step", cgr_step_prepare(w.runtime, &batch, (cgr_step *)(void *)none));
    free(none);
  }
  CHECK_OK(cgr_step_prepare_wait(w.runtime, &batch, &step, -1, w.stream));
  CHECK_OK(cgr_step_launch(w.runtime, &step, w.stream));
  waited_for = step.mark;
  check_output(&result, &w);
  world_close(&w);
  return check_failures - before;
}

#endif
