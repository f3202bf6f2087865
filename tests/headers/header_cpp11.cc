// The public headers in C++11 with -pedantic, without GoogleTest, which needs more; header_cpp_test.cc calls what is here.
#include "cgr/cgr.h"

#include <stdbool.h>

#include <vector>

#include "tests/headers/body.h"
#include "tests/headers/headers.h"

#if __cplusplus != 201103L
#error "this is to be compiled as C++11"
#endif

extern "C" {
#define DECLARE(header) int header##_first_in_cpp11();
PUBLIC_HEADERS(DECLARE)
#undef DECLARE
}

#define PART(name, what) \
  int name##_in_cpp11(); \
  int name##_in_cpp11() { return test_##name(); }
CGR_TEST_PARTS(PART)
#undef PART

int first_in_cpp11();
int first_in_cpp11() {
  int failed = 0;
#define COUNT_FAILED(header) failed += !header##_first_in_cpp11();
  PUBLIC_HEADERS(COUNT_FAILED)
#undef COUNT_FAILED
  return failed;
}

// ---- initialisers where C has none: members, direct initialisation, elements of containers, temporaries, assignment

#define MEMBER(kind, number, type, init) type type##_member = init;
struct Members {
  CGR_STRUCT_LIST(MEMBER)
  cgr_key key = CGR_KEY_INIT;
};

#define DIRECT(kind, number, type, init)                                                    \
  {                                                                                         \
    type direct init;                                                                       \
    std::vector<type> several(2, type init);                                                \
    type assigned = type();                                                                 \
    assigned = init;                                                                        \
    CHECK(direct.size == sizeof direct && assigned.size == sizeof direct);                  \
    CHECK(several[1].size == sizeof direct && members.type##_member.size == sizeof direct); \
  }

int braced_in_cpp11();
int braced_in_cpp11() {
  const int before = check_failures;
  Members members;
  CGR_STRUCT_LIST(DIRECT)
  CHECK(members.key.kind == CGR_KIND_NONE && cgr_key CGR_KEY_INIT.num_tokens == 0);
  return check_failures - before;
}
