// The library's append, except that on a GPU it lets the next kernel begin at once and then waits for a millisecond: a kernel
// that begins alongside it and does not wait for its end reads the old contents.
#pragma once

#include "kernels/append.h"

namespace cgr_test {

extern const cgr__kernel kSlowAppend; // cgr__append_args, of 2-byte elements

} // namespace cgr_test

// The launcher of slow_append.cu: a cudaError_t.
extern "C" int test_append_slowly(const void *args, cudaStream_t stream);
