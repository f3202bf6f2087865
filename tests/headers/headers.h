/* The public headers, each of which first.c and first.cc include alone. */
#ifndef CGR_TESTS_HEADERS_HEADERS_H
#define CGR_TESTS_HEADERS_HEADERS_H

/* X(header), with _ for a folder. tests/bindings/headers_test.cc sees that none is left out. */
#define PUBLIC_HEADERS(X) \
  X(base)                 \
  X(device)               \
  X(attention)            \
  X(config)               \
  X(requests)             \
  X(record)               \
  X(step)                 \
  X(graphs)               \
  X(cgr)                  \
  X(inspect)              \
  X(tracing)              \
  X(names)                \
  X(needs)                \
  X(ask)                  \
  X(planners)             \
  X(stops)                \
  X(gather)               \
  X(programs)             \
  X(ranks)                \
  X(collectives)          \
  X(bindings)             \
  X(interop_block_table)  \
  X(interop_fa3)          \
  X(interop_flashinfer)   \
  X(interop_flashmla)     \
  X(interop_nccl)

#endif
