/* The last lines: how fast the requests were served, and what a step cost the host. */
#ifndef LLAMA_SUMMARY_H
#define LLAMA_SUMMARY_H

#include <stdio.h>

#include "examples/llama/host_time.h"
#include "examples/llama/meter.h"

void llama_summary_print(FILE *out, llama_meter *meter, const llama_host_time *time, bool on_host);

#endif
