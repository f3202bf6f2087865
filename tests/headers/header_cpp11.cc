// The public headers in C++11 with -pedantic, without GoogleTest, which needs more; header_cpp_test.cc calls what is here.
#include "cgr/cgr.h"

#include <stdbool.h>

#include <vector>

#include "tests/headers/body.h"

#if __cplusplus != 201103L
#error "this is to be compiled as C++11"
#endif

extern "C" {
int base_first_in_cpp11();
int device_first_in_cpp11();
int attention_first_in_cpp11();
int planners_first_in_cpp11();
int graphs_first_in_cpp11();
int tracing_first_in_cpp11();
int cgr_first_in_cpp11();
}

#define PART(name, what) \
  int name##_in_cpp11(); \
  int name##_in_cpp11() { return test_##name(); }
CGR_TEST_PARTS(PART)
#undef PART

int first_in_cpp11();
int first_in_cpp11() {
  return base_first_in_cpp11() && device_first_in_cpp11() && attention_first_in_cpp11() && planners_first_in_cpp11() &&
                 graphs_first_in_cpp11() && tracing_first_in_cpp11() && cgr_first_in_cpp11()
             ? 0
             : 1;
}

// ---- initialisers where C has none: members, direct initialisation, elements of containers, temporaries, assignment

#define MEMBER(type, init) type type##_member = init;
struct Members {
  SIZED_STRUCTS(MEMBER)
  cgr_key key = CGR_KEY_INIT;
};

#define DIRECT(type, init)                                                                  \
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
  SIZED_STRUCTS(DIRECT)
  CHECK(members.key.kind == CGR_KIND_NONE && cgr_key CGR_KEY_INIT.num_tokens == 0);
  return check_failures - before;
}
