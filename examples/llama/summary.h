/* The last lines: how fast the requests were served, and what a step cost the host. */
#ifndef LLAMA_SUMMARY_H
#define LLAMA_SUMMARY_H

#include <stdio.h>

#include "examples/llama/host_time.h"
#include "examples/llama/meter.h"

/* What became of guesses, and of requests that shared too few pages. */
void llama_summary_drafts(FILE *out, const llama_draft_counts *drafts);
void llama_summary_drafts_json(FILE *out, const llama_draft_counts *drafts); /* a member of an object, after others */
void llama_summary_print(FILE *out, llama_meter *meter, const llama_host_time *time, bool on_host);

#endif
