#include "examples/llama/summary.h"

#include "examples/llama/error.h"
#include "examples/llama/units.h"

static void print_rate(FILE *out, const char *what, uint64_t tokens, double seconds) {
  fprintf(out, "%-10s %7s token%-1s  %9s/s", what, llama_count(tokens).text, llama_plural((long long)tokens),
          llama_count(seconds > 0 ? (uint64_t)((double)tokens / seconds) : 0).text);
}

static double quantile_ms(llama_series *series, double share) { return 1e-3 * (double)llama_quantile(series, share); }

static void print_host_time(FILE *out, const llama_host_time *t) {
  fputs("host time per step: ", out);
  if (t->replayed > 0)
    fprintf(out, "replayed %.1f us, ", (double)t->replayed);
  fprintf(out, "eager %.1f us", (double)t->eager);
  if (t->replayed > 0)
    fprintf(out, " (%.1f times)", (double)(t->eager / t->replayed));
  else
    fputs("; this graph mode replays no decode step", out);
  if (t->bare > 0)
    fprintf(out, ", bare launch %.1f us", (double)t->bare);
  fputc('\n', out);
}

void llama_summary_print(FILE *out, llama_meter *meter, const llama_host_time *time, bool on_host) {
  print_rate(out, "prompt", meter->prompt, meter->prompt_seconds);
  fprintf(out, "   first token after %.2f ms\n", quantile_ms(&meter->first_token, 0.5));
  print_rate(out, "generated", meter->generated, meter->generation_seconds);
  if (meter->between_tokens.count)
    fprintf(out, "   between tokens %.2f ms (p99 %.2f ms)", quantile_ms(&meter->between_tokens, 0.5),
            quantile_ms(&meter->between_tokens, 0.99));
  fputc('\n', out);
  if (time->requests)
    print_host_time(out, time);
  if (on_host)
    fputs("The host device computes on this processor: its times say nothing about a GPU.\n", out);
}

static double share(uint64_t part, uint64_t whole) { return whole ? (double)part / (double)whole : 0.0; }

void llama_summary_drafts(FILE *out, const llama_draft_counts *d) {
  if (d->guesses)
    fprintf(out, "guesses    %7s, %s accepted (%.1f%%): %.2f tokens of a request in a step, %.2f in those with guesses\n",
            llama_count(d->guesses).text, llama_count(d->accepted).text, 100.0 * share(d->accepted, d->guesses),
            share(d->tokens, d->samples), 1.0 + share(d->accepted, d->verified));
  else if (d->samples)
    fprintf(out, "guesses          0\n");
  if (d->preempted || d->short_of_pages)
    fprintf(out, "pages      %llu time%s too few for a request or its guesses; %llu request%s began again\n",
            (unsigned long long)d->short_of_pages, llama_plural((long long)d->short_of_pages), (unsigned long long)d->preempted,
            llama_plural((long long)d->preempted));
}

void llama_summary_drafts_json(FILE *out, const llama_draft_counts *d) {
  fprintf(out,
          ",\n\"drafts\": {\"samples\": %llu, \"tokens\": %llu, \"verified\": %llu, \"guesses\": %llu, \"accepted\": %llu, "
          "\"preempted\": %llu, \"short_of_pages\": %llu}",
          (unsigned long long)d->samples, (unsigned long long)d->tokens, (unsigned long long)d->verified,
          (unsigned long long)d->guesses, (unsigned long long)d->accepted, (unsigned long long)d->preempted,
          (unsigned long long)d->short_of_pages);
}
