/* The check of flags that tell of guesses, for batches of the target and of drafts. */
#include "base/status.h"
#include "requests/guesses.h"

cgr_status cgr__guesses_check(const char *function, const char *what, uint32_t flags, int32_t query_len, int32_t most) {
  const int32_t guesses = cgr__flags_guesses(flags);
  if (guesses > most)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "%s: %s tells of %d draft%s, expected at most %d (num_draft_tokens)", function,
                     what, guesses, cgr__plural(guesses), most < 0 ? 0 : most);
  if (guesses >= query_len)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT,
                     "%s: %s tells of %d draft%s among %d token%s, expected fewer: the first token is no draft", function, what,
                     guesses, cgr__plural(guesses), query_len, cgr__plural(query_len));
  if (flags & CGR_REQUEST_PARTIAL)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT,
                     "%s: %s tells of %d draft%s and of a partial chunk, expected no drafts: such a chunk samples nothing",
                     function, what, guesses, cgr__plural(guesses));
  return CGR_OK;
}
