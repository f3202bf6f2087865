/* The kernels of a step: prologue, fetch and epilogue, each a process. The device runs the launched steps one after the other.
 *
 * What a kernel does is one step of the model where its loads and stores alone are what the host may see of it: which stores of the host
 * it sees is chosen load by load (memory.pml). */

/* How a step was launched. */
#define FULL 1       /* fetches ahead */
#define EAGER 2
#define EMPTY 3      /* only uses up its number */
#define ABANDONED 4  /* given up in its middle: its epilogue commits nothing */
#define BROKEN 5     /* given up in its middle without an epilogue */
chan stream = [DEPTH + 2] of { byte };

#define IDLE 0
#define RUNNING 1
byte phase, kind; /* of the step that runs */
bool fetching;

/* state->seq, batch_seq, generation, lost. */
byte state_seq, state_batch_seq, state_generation;
bool lost;

/* The persistent buffers: the batch layout, and two words of a row: its length (a), to which each step adds 1, and a page (b).
 * A layout is the number of edits of the standing batch, or one of these. */
byte layout, table_a, table_b;
#define GIVEN 14
#define NO_REQUESTS 15

/* The inbox. */
byte inbox_number;
int inbox_header, inbox_sections;

/* For the properties: what step n, at n % PROMISES, must find when it acts on its ring slot; tag 0: it must not act on one. */
#define PROMISES 5
#define ANY 15
byte promised_tag[PROMISES], promised_layout[PROMISES], promised_a[PROMISES], promised_b[PROMISES];
inline promise(n, tag, batch_layout, a, b) {
  promised_tag[(n) % PROMISES] = tag;
  promised_layout[(n) % PROMISES] = batch_layout;
  promised_a[(n) % PROMISES] = a;
  promised_b[(n) % PROMISES] = b
}
byte losses, losses_at[PROMISES]; /* steps that lost content, counted apart from `generation`: so far, and when step n completed */
bool strayed;                     /* a step was launched that was never prepared */
byte last_accepted;               /* the last step that acted on its ring slot */

/* A ring slot that bears the step's number is neither stale nor torn, and was neither cancelled nor given up. */
inline check_content(seq, head, body) {
  assert(promised_tag[(seq) % PROMISES] != 0 && TAG(head) == promised_tag[(seq) % PROMISES] && TAG(body) == TAG(head))
}
/* The step acts on no ring slot that is damaged, and on the batch layout and the row that the host had when it prepared the step: no
 * edit or change is lost, doubled or applied to another base. */
inline check_accepted(seq, head, body) {
  assert(BAD(head) != COUNTS && BAD(head) != STARTS);
  assert(layout == promised_layout[(seq) % PROMISES]);
  assert(BAD(head) == CHANGE || promised_a[(seq) % PROMISES] == ANY || table_a == promised_a[(seq) % PROMISES]);
  assert(BAD(head) == CHANGE || promised_b[(seq) % PROMISES] == ANY || table_b == promised_b[(seq) % PROMISES]);
  last_accepted = seq
}
/* A ring slot that the host has committed is refused only after a loss that the host did not know of. */
#ifdef ANY_REFUSAL /* not looked at: the host itself is wrong */
#define CAUSED true
#else
#define CAUSED strayed
#endif
inline check_refused_number() { assert(CAUSED) }
inline check_refused_generation(head) { assert(CAUSED || GENERATION(head) < losses) }
inline check_refused_standing() { assert(CAUSED) }

/* P11 to P14. */
inline apply(seq, head, body) {
  if
  :: FLAGS(head) == BATCH -> layout = LAYOUT(body)
  :: FLAGS(head) == EDITS -> layout = layout + LAYOUT(body)
  :: else
  fi;
  if
  :: FLAGS(head) != SAME -> state_batch_seq = seq
  :: else
  fi;
  if
  :: BAD(head) == CHANGE -> lost = true
  :: else ->
    if
    :: CHANGE_A(body) > 0 -> table_a = CHANGE_A(body) - 1
    :: else
    fi;
    if
    :: CHANGE_B(body) > 0 -> table_b = CHANGE_B(body) - 1
    :: else
    fi
  fi
}

/* P4 to P10. */
inline accept_or_refuse(seq, found, head, body) {
  if
#ifndef NO_NUMBER
  :: found != seq -> check_refused_number(); lost = true
#else
  :: false
#endif
  :: else ->
    check_content(seq, head, body);
    if
#ifndef NO_GENERATION
    :: GENERATION(head) != state_generation ->
      check_refused_generation(head);
#ifdef NO_QUIET_REFUSAL
      state_generation = state_generation + 1
#endif
#else
    :: false
#endif
    :: else ->
      if
#ifndef NO_COUNTS
      :: BAD(head) == COUNTS || BAD(head) == STARTS -> lost = true
#else
      :: false
#endif
#ifndef NO_STANDING
      :: FLAGS(head) != BATCH && BAD(head) != COUNTS && BAD(head) != STARTS &&
         (state_batch_seq == 0 || BATCH_SEQ(head) != state_batch_seq) ->
        check_refused_standing();
        lost = true;
#endif
      :: else ->
        apply(seq, head, body);
        check_accepted(seq, head, body);
        accepted = true;
        printf("prologue: step %d acts on its ring slot\n", seq)
      fi
    fi
  fi;
  if
  :: !accepted ->
    printf("prologue: step %d refuses its ring slot: number %d, generation %d\n", seq, found, GENERATION(head));
    layout = NO_REQUESTS;
#ifndef NO_REFUSED_BATCH_ZERO
    state_batch_seq = 0
#endif
  :: else
  fi
}

active proctype prologue() {
  byte found;
  int head, body;
  bool accepted;
end:
  do
  :: atomic {
      phase == IDLE && nempty(stream) -> stream ? kind;
      lost = false;
      if
#ifndef NO_EMPTY
      :: kind == EMPTY ->
        layout = NO_REQUESTS;
#ifndef NO_EMPTY_BATCH_ZERO
        state_batch_seq = 0
#endif
#endif
      :: else ->
        if
#ifndef NO_INBOX_NUMBER
        :: inbox_number == state_seq + 1 ->
#else
        :: state_seq > 0 ->
#endif
          found = inbox_number;
          head = inbox_header;
          body = inbox_sections
        :: else -> /* relaxed loads, in any order */
          if
          :: load_number(SLOT(state_seq + 1), found); load_content(SLOT(state_seq + 1), head, body)
          :: load_content(SLOT(state_seq + 1), head, body); load_number(SLOT(state_seq + 1), found)
          fi
        fi;
        accept_or_refuse(state_seq + 1, found, head, body);
        found = 0;
        head = 0;
        body = 0;
        accepted = false
      fi;
      if
      :: kind != BROKEN -> phase = RUNNING; fetching = (kind == FULL)
      :: else
      fi
    }
  od
}

#ifndef NO_FETCH_NUMBER
#define IS_NEXT (found == next)
#else
#define IS_NEXT true
#endif

active proctype fetch() {
  byte next, found;
  int head, body;
end:
  do
  :: atomic {
      phase == RUNNING && fetching -> next = state_seq + 2;
#ifdef NO_FETCH_ACQUIRE
      load_content(SLOT(next), head, body);
      load_number(SLOT(next), found);
#else
      load_number(SLOT(next), found);
      load_content(SLOT(next), head, body);
#endif
      if
      :: !(IS_NEXT) -> head = 0
      :: else ->
#ifdef NO_INBOX_NUMBER_LAST
        inbox_number = next;
#endif
        if
        :: BAD(head) == COUNTS -> head = 0
        :: else
        fi
      fi;
#ifdef NO_FETCH_JOIN /* and so nothing orders these stores before the loads of the next prologue */
      if
      :: head != 0 -> inbox_number = next
      :: else
      fi
    }
    atomic {
#endif
      if
      :: head != 0 ->
        printf("fetch: the ring slot of step %d is in the inbox\n", next);
        inbox_sections = body;
        inbox_header = head;
        inbox_number = next
      :: else
      fi;
      next = 0;
      found = 0;
      head = 0;
      body = 0;
      fetching = false
    }
  od
}

#ifndef NO_FETCH_JOIN
#define JOINED !fetching
#else
#define JOINED true
#endif

active proctype epilogue() {
  byte seq;
end:
  do
  :: atomic {
      phase == RUNNING && JOINED -> seq = state_seq + 1;
      losses = losses + lost;
      losses_at[seq % PROMISES] = losses;
      header[SLOT(seq)] = 0;
      sections[SLOT(seq)] = 0;
      if
      :: inbox_number == seq -> inbox_number = 0; inbox_header = 0; inbox_sections = 0
      :: else
      fi;
#ifndef NO_LOSS_COUNT
      state_generation = state_generation + lost;
#endif
      if
#ifdef NO_ABANDON
      :: layout != NO_REQUESTS -> table_a++
#else
      :: layout != NO_REQUESTS && kind != ABANDONED -> table_a++
#endif
      :: else
      fi;
      printf("epilogue: step %d completes, generation %d\n", seq, state_generation);
#ifdef NO_COMPLETED_LAST
      store_completed(seq);
    }
    atomic {
#endif
      store_result(seq);
#ifdef NO_GENERATION_FIRST
      store_completed(seq);
    }
    atomic {
#endif
      generation_stored = state_generation;
#if !defined(NO_COMPLETED_LAST) && !defined(NO_GENERATION_FIRST)
      store_completed(seq);
#endif
      promise(seq, 0, 0, 0, 0);
      state_seq = seq;
      seq = 0;
      lost = false;
      kind = 0;
      phase = IDLE
    }
  od
}
