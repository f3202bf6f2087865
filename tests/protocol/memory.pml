/* The memory that host and device share, with its weak order.
 *
 * A store is on its way until the other side loads the word, and each load chooses whether it sees such a store. So words become
 * visible in any order. A release makes all stores before it visible together with its own; a load that acquires comes before the
 * loads after it. Only completed_seq is visible at once: to load an older number is the same as to load earlier. */

#define SLOT(n) ((n) % DEPTH)

/* A ring slot has three words: the number, the rest of the header, and all sections. `tag` names the prepare that wrote a word, so that
 * torn and stale ring slots are found. When a step completes, its header and sections become 0, which is no tag. */
#define HEADER(tag, batch_seq, generation, flags, bad) ((tag) | (batch_seq) << 6 | (generation) << 10 | (flags) << 13 | (bad) << 15)
#define TAG(word) ((word) & 63)
#define BATCH_SEQ(header) (((header) >> 6) & 15)
#define GENERATION(header) (((header) >> 10) & 7)
#define FLAGS(header) (((header) >> 13) & 3)
#define BAD(header) (((header) >> 15) & 3)
#define SECTIONS(tag, layout, a, b) ((tag) | (layout) << 6 | (a) << 10 | (b) << 14)
#define LAYOUT(sections) (((sections) >> 6) & 15)
#define CHANGE_A(sections) (((sections) >> 10) & 15) /* the new value and 1; 0: none */
#define CHANGE_B(sections) (((sections) >> 14) & 7)

/* FLAGS: the batch layout is that of batch_seq, or in the sections, or edited by them. */
#define SAME 0
#define BATCH 1
#define EDITS 2

/* BAD: what is wrong with a ring slot. */
#define COUNTS 1 /* more than a ring slot holds: refused, and not fetched */
#define STARTS 2 /* a batch layout that does not hold: refused */
#define CHANGE 3 /* a malformed change: dropped */

/* What is visible, and what is on its way (0: nothing is). */
byte number[DEPTH], number_stored[DEPTH];
int header[DEPTH], header_stored[DEPTH], sections[DEPTH], sections_stored[DEPTH];

inline show_header(i) {
  if
  :: header_stored[i] != 0 -> header[i] = header_stored[i]; header_stored[i] = 0
  :: else
  fi
}
inline show_sections(i) {
  if
  :: sections_stored[i] != 0 -> sections[i] = sections_stored[i]; sections_stored[i] = 0
  :: else
  fi
}

/* The number, and what its release orders before it. */
inline show_number(i) {
#ifndef NO_COMMIT_RELEASE
  show_header(i);
  show_sections(i);
#endif
  number[i] = number_stored[i];
  number_stored[i] = 0
}

/* Loads of the device. */
inline load_number(i, value) {
  atomic {
    if
    :: number_stored[i] != 0 -> show_number(i)
    :: true
    fi;
    value = number[i]
  }
}
inline load_content(i, header_word, sections_word) {
  atomic {
    if
    :: header_stored[i] != 0 -> show_header(i)
    :: true
    fi;
    if
    :: sections_stored[i] != 0 -> show_sections(i)
    :: true
    fi;
    header_word = header[i];
    sections_word = sections[i]
  }
}

/* Stores of the host. */
inline store_content(i, header_word, sections_word) {
  header_stored[i] = header_word;
  sections_stored[i] = sections_word
}
inline store_number(i, n) { number_stored[i] = n }
/* What the host has stored before a launch is visible to the step. */
inline order_launch(i) {
#ifndef NO_LAUNCH_ORDER
  show_header(i);
  show_sections(i);
  if
  :: number_stored[i] != 0 -> show_number(i)
  :: else
  fi
#else
  skip
#endif
}

/* The readback ring, two words a slot, each with the number of its step, and the completion record. */
byte record[DEPTH], tokens[DEPTH], generation_word, completed_seq;
byte record_stored[DEPTH], tokens_stored[DEPTH], generation_stored; /* on their way where they differ */

/* Stores of the epilogue. */
inline store_result(n) {
  record_stored[SLOT(n)] = n;
  tokens_stored[SLOT(n)] = n
}
inline store_completed(n) {
#ifndef NO_RESULT_RELEASE
  record[SLOT(n)] = record_stored[SLOT(n)];
  tokens[SLOT(n)] = tokens_stored[SLOT(n)];
  generation_word = generation_stored;
#endif
  completed_seq = n
}

/* Loads of the host. */
inline load_generation() {
  if
  :: generation_word != generation_stored -> generation_word = generation_stored
  :: true
  fi
}
inline load_result(i) {
  if
  :: record[i] != record_stored[i] -> record[i] = record_stored[i]
  :: true
  fi;
  if
  :: tokens[i] != tokens_stored[i] -> tokens[i] = tokens_stored[i]
  :: true
  fi;
  found_record = record[i];
  found_tokens = tokens[i]
}
