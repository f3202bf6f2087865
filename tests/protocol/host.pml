/* The host: an engine that changes its row and its batch in any order, and what prepare, launch, cancel and wait do. */

#ifndef STEPS
#define STEPS 3 /* after so many, all complete, and one more runs with which nothing goes wrong */
#endif
#ifndef TROUBLES
#define TROUBLES 1 /* cancelled steps, failed launches, damaged ring slots, and internal steps between others */
#endif
#ifndef EDITINGS
#define EDITINGS 1 /* changes of the row, of the standing batch, and from it to batches that are given whole or back */
#endif
byte troubles_left = TROUBLES, editings_left = EDITINGS;
bool last_round;

/* As in cgr__lane. */
byte launched, seen_generation, device_batch, device_standing;
bool dead;

/* The engine's row and batches. */
byte value_a, value_b;      /* the row's length and page */
bool dirty_a, dirty_b;      /* to be sent */
byte standing, dirty_edits; /* edits of the standing batch: all, and those that no launch has carried */
bool gives_whole;           /* batches are given whole, always the same one */
bool repeats_given;         /* the last launched step had that one */

/* The prepared step and its launch. */
byte seq, step, flags, batch, promised_batch, previous, bad, next, result;
bool change_step, internal, carries_a, carries_b, ran;
byte attempt;         /* prepares of one number, of which there are at most three, differ in it */
#define MOST_STEPS 13 /* that a run may take: if a loss were never made good, there would be more */
#define TAG_OF(n) ((n) * 3 + attempt)

inline wait_until_completed(n) {
  completed_seq >= n
}
inline wait_until_idle() {
  empty(stream) && phase == IDLE
}

/* The prologue of a step that was never prepared may read a ring slot while the host commits it: its loads do not acquire. Here the host
 * lets such a step end first, but not with RACES. */
inline let_stray_end() {
#if defined(STRAY) && !defined(RACES)
  if
  :: strayed -> wait_until_idle()
  :: else
  fi
#else
  skip
#endif
}

/* cgr__resync_after_losses. */
inline resync() {
  if
#ifndef NO_DEATH
  :: completed_seq > launched -> dead = true
#endif
  :: else ->
    load_generation();
    assert(generation_word >= losses_at[completed_seq % PROMISES]); /* a loss is known once its step has completed */
    if
    :: generation_word != seen_generation ->
      printf("host: sees generation %d\n", generation_word);
      seen_generation = generation_word;
#ifndef NO_RESEND_BATCH
      device_batch = 0;
      device_standing = 0;
#endif
#ifndef NO_RESEND_CHANGES
      dirty_a = true;
      dirty_b = (value_b > 0) /* there is a page */
#endif
    :: else
    fi
  fi
}

/* After an internal step the device has no batch. */
inline forget_batch() {
#ifndef NO_HOST_BATCH_ZERO
  device_batch = 0;
  device_standing = 0
#else
  skip
#endif
}

/* What the engine does between two steps. */
inline change_rows() {
  if
  :: editings_left > 0 && !last_round ->
    editings_left--;
    if
    :: standing++; dirty_edits++
    :: gives_whole = !gives_whole
    :: value_b++; dirty_b = true
    :: value_b++; value_a = 0; dirty_a = true; dirty_b = true
    fi
  :: true
  fi
}

/* ------------------------------------------------------------------------------------------------------------------ prepare */

#ifdef NO_SLOT_FREE
#define IS_FREE(n) true
#else
#define IS_FREE(n) ((n) <= DEPTH || completed_seq + DEPTH >= (n))
#endif

/* A ring slot holds one change here. Two of them take a change step ahead, or a flush where that would leave no ring slot. */
#ifdef NO_DEPTH_RULE
#define MUST_FLUSH false
#else
#define MUST_FLUSH (dirty_a && dirty_b && DEPTH == 2)
#endif

#ifdef NO_STANDING_BASE
#define HAS_STANDING (device_batch != 0)
#else
#define HAS_STANDING (device_batch != 0 && device_batch == device_standing)
#endif
#ifdef NO_CHANGE_STEP_BATCH
#define AHEAD false
#else
#define AHEAD change_step
#endif

/* A step without requests, with at most one change. */
inline stage_internal(n) {
  carries_a = dirty_a;
  carries_b = dirty_b && !dirty_a;
  store_content(SLOT(n), HEADER(TAG_OF(n), device_batch, seen_generation, BATCH, 0),
                SECTIONS(TAG_OF(n), NO_REQUESTS, carries_a * (value_a + 1), carries_b * (value_b + 1)));
  dirty_a = dirty_a && !carries_a;
  dirty_b = dirty_b && !carries_b
}

/* A ring slot may be damaged. */
inline choose_damage() {
  if
  :: troubles_left > 0 && !last_round ->
    troubles_left--;
    if
    :: bad = COUNTS
    :: bad = STARTS
    :: bad = CHANGE
    fi;
    printf("host: damages the ring slot of step %d\n", seq)
  :: true
  fi
}

/* cgr__stage_step. */
inline stage_step() {
  if
  :: change_step -> stage_internal(seq - 1)
  :: else
  fi;
  carries_a = dirty_a;
  carries_b = dirty_b;
  dirty_a = false;
  dirty_b = false;
  if
  :: !gives_whole ->
    if
    :: !HAS_STANDING || AHEAD -> flags = BATCH; batch = standing
    :: else -> flags = EDITS * (dirty_edits > 0); batch = dirty_edits
    fi;
    promised_batch = standing;
#ifdef NO_EDITS_KEPT
    dirty_edits = 0
#endif
  :: gives_whole ->
    flags = BATCH * (!repeats_given || device_batch == 0 || AHEAD);
    batch = GIVEN;
    promised_batch = GIVEN
  fi;
  choose_damage();
  store_content(SLOT(seq), HEADER(TAG_OF(seq), device_batch, seen_generation, flags, bad),
                SECTIONS(TAG_OF(seq), batch, carries_a * (value_a + 1), carries_b * (value_b + 1)));
#ifdef NO_LATE_COMMIT
  store_number(SLOT(seq), seq);
#endif
  printf("host: prepares step %d, generation %d, batch_seq %d, flags %d\n", seq, seen_generation, device_batch, flags);
  bad = 0;
  batch = 0
}

/* Where no ring slot is free the engine waits and prepares again. */
#define WAIT 0
#define FLUSH 1 /* an internal step, with a change if one is dirty */
#define STAGE 2
inline prepare() {
  do
  :: let_stray_end();
    atomic {
      if
      :: next == WAIT
      :: else -> next = WAIT; change_rows()
      fi;
      resync();
#ifdef ANY_REFUSAL
      dead = dead || launched + 2 >= MOST_STEPS; /* a loss need not be made good */
#endif
      if
      :: dead -> break
      :: else
      fi;
      change_step = dirty_a && dirty_b && !MUST_FLUSH;
      seq = launched + 1 + change_step;
      if
      :: !(IS_FREE(seq))
      :: IS_FREE(seq) && troubles_left > 0 && !change_step && !last_round -> troubles_left--; next = FLUSH
      :: IS_FREE(seq) -> next = STAGE - MUST_FLUSH
      fi;
      if
      :: next == WAIT
      :: next == FLUSH -> stage_internal(seq); break
      :: next == STAGE -> stage_step(); break
      fi
    }
    wait_until_completed(seq - DEPTH)
  od
}

/* ------------------------------------------------------------------------------------------------------------------- launch */

#define LAUNCHED 0
#define DID_NOTHING 1 /* an error that says so */
#define FAILED 2      /* any other: the step may run or not */
#define GAVE_UP 3     /* with an epilogue that commits nothing */

/* The prepared step is on its stream: the host follows. */
inline commit_step() {
  launched = seq;
  value_a++;
  if
  :: flags != SAME -> device_batch = seq; device_standing = 0
  :: else
  fi;
  if
  :: !gives_whole -> device_standing = device_batch; dirty_edits = 0; repeats_given = false
  :: else -> repeats_given = true
  fi
}

/* The number is committed and the step enqueued, with the `result`. */
inline enqueue(n) {
  let_stray_end();
  atomic {
    printf("host: commits step %d\n", n);
    assert(n <= MOST_STEPS);
    internal = n < seq || next == FLUSH;
    if
    :: internal -> promise(n, TAG_OF(n), NO_REQUESTS, ANY, ANY)
    :: else -> promise(n, TAG_OF(n), promised_batch, value_a, value_b)
    fi;
    store_number(SLOT(n), n)
  }
  atomic {
    order_launch(SLOT(n));
    if
    :: !internal -> stream ! FULL; result = LAUNCHED
    :: stream ! EAGER; result = LAUNCHED
    :: troubles_left > 0 && !last_round ->
      printf("host: the launch of step %d fails\n", n);
      troubles_left--;
      attempt = (attempt + 1) % 3;
      if
      :: result = DID_NOTHING
      :: stream ! FULL; result = FAILED
      :: stream ! BROKEN; result = FAILED
      :: stream ! ABANDONED; result = GAVE_UP
      fi
    fi;
    if
    :: result != LAUNCHED
    :: result == LAUNCHED && internal -> launched = n; forget_batch()
    :: result == LAUNCHED && !internal -> commit_step()
    fi
  }
}

/* What a step carried that was cancelled or whose launch failed is dirty again. */
inline restore_changes() {
#ifndef NO_RESTORE
  dirty_a = dirty_a || carries_a;
  dirty_b = dirty_b || carries_b
#else
  skip
#endif
}

/* The launch failed: some step completes under its number all the same. */
inline recover(n) {
#ifndef NO_RECOVERY_WAIT
  if
  :: result == FAILED -> wait_until_idle()
  :: else
  fi;
#endif
  atomic {
    if
    :: result == GAVE_UP -> launched = n
    :: result != GAVE_UP && completed_seq >= n -> launched = n; ran = true
    :: else ->
      promised_tag[(n) % PROMISES] = 0;
#ifndef NO_USED_UP
      printf("host: launches an empty step %d\n", n);
      stream ! EMPTY;
      launched = n;
#endif
      skip
    fi;
    forget_batch();
    carries_a = carries_a || n < seq; /* the change step's */
    restore_changes();
#ifndef NO_LENGTH_RESENT
    dirty_a = dirty_a || (ran && !internal)
#endif
  }
}

/* cgr_step_launch, whose change step goes first, and cgr_runtime_flush. */
inline launch() {
  previous = launched;
  do
  :: result == LAUNCHED && launched < seq ->
    step = launched + 1;
    enqueue(step);
    if
    :: result != LAUNCHED -> recover(step)
    :: else
    fi
  :: else -> break
  od;
  assert(launched - previous < DEPTH) /* the step before keeps its result */
}

/* cgr_step_cancel. */
inline cancel() {
  atomic {
    printf("host: cancels step %d\n", seq);
#ifndef NO_END
    troubles_left--;
#endif
    attempt = (attempt + 1) % 3;
    carries_a = carries_a || change_step;
    restore_changes()
  }
}

/* ------------------------------------------------------------------------------------------------------------------- results */

/* cgr_step_wait, of a step that has been launched. */
#ifdef NO_EXPIRY
#define HAS_RESULT(n) true
#else
#define HAS_RESULT(n) (launched - (n) < DEPTH)
#endif
inline wait_for_result(n) {
  if
  :: (n) > 0 && HAS_RESULT(n) ->
#ifdef NO_RESULT_ACQUIRE
    atomic { load_result(SLOT(n)) }
#endif
    atomic {
      completed_seq >= (n);
#ifndef NO_RESULT_ACQUIRE
      load_result(SLOT(n));
#endif
      printf("host: reads the result of step %d\n", n);
      assert(strayed || (found_record == (n) && found_tokens == (n)));
      found_record = 0;
      found_tokens = 0
    }
  :: else
  fi
}

/* ------------------------------------------------------------------------------------------------------------------- engine */

inline launch_stray() {
#ifdef STRAY
  if
  :: !strayed && !last_round -> atomic { strayed = true; stream ! FULL; printf("a step is launched that was never prepared\n") }
  :: true
  fi
#else
  skip
#endif
}

active proctype host() {
  byte found_record, found_tokens;
  next = STAGE;
  if
  :: true
  :: gives_whole = true
  fi;
  do
  :: atomic {
      if
      :: launched >= STEPS && !last_round ->
        completed_seq >= launched;
        last_round = true
      :: else
      fi
    }
    launch_stray();
    prepare();
    if
    :: dead -> break
    :: !dead && next == STAGE && troubles_left > 0 && !last_round -> cancel()
    :: !dead ->
      launch_stray();
      launch();
      if
      :: true
      :: !last_round -> wait_for_result(previous)
      :: !last_round -> wait_for_result(launched)
      :: !last_round && launched > DEPTH -> wait_for_result(launched - DEPTH)
      fi;
      atomic {
        seq = 0;
        step = 0;
        flags = 0;
        promised_batch = 0;
        previous = 0;
        ran = false;
        internal = false;
        change_step = false;
        carries_a = false;
        carries_b = false;
        if
        :: result == LAUNCHED -> attempt = 0
        :: else -> result = LAUNCHED
        fi;
        if
        :: last_round && next == STAGE -> break
        :: else
        fi
      }
    fi
  od;
  if
  :: !dead ->
    wait_for_result(launched);
#if !defined(ANY_REFUSAL) && !defined(RACES)
    assert(!strayed && last_accepted == launched) /* every loss has been made good; a stray step was noticed */
#endif
  :: else
  fi
}
