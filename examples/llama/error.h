/* How the engine reports errors: a function returns 0, or leaves a message and returns -1. */
#ifndef LLAMA_ERROR_H
#define LLAMA_ERROR_H

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define LLAMA_PRINTF __attribute__((format(printf, 1, 2)))
#else
#define LLAMA_PRINTF
#endif

/* Keeps the message and returns -1, so that a guard is one line: return llama_fail("..."). */
int llama_fail(const char *format, ...) LLAMA_PRINTF;

/* The ending of a counted noun: "1 token", "2 tokens". */
static inline const char *llama_plural(long long count) { return count == 1 ? "" : "s"; }

/* Puts "what: " before the message that a callee left, and returns -1. */
int llama_fail_in(const char *what);

/* The message of the last failure on this thread; "" if none. */
const char *llama_message(void);

#define TRY(call)    \
  do {               \
    if ((call) != 0) \
      return -1;     \
  } while (0)

#ifdef __cplusplus
}
#endif
#endif
