// Templates that most tests use: instantiated.cc compiles them once, where otherwise each test compiles all of them again. The
// precompiled headers of //tests/support include this first.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <vector>

// `Extern` is `extern` or nothing.
#define CGR_COMMON_TEMPLATES(Extern)                                                      \
  Extern template class std::vector<int32_t>;                                             \
  Extern template class std::vector<int64_t>;                                             \
  Extern template class std::vector<uint64_t>;                                            \
  Extern template class std::vector<uint8_t>;                                             \
  Extern template class std::vector<uint16_t>;                                            \
  Extern template class std::vector<float>;                                               \
  Extern template class std::vector<double>;                                              \
  Extern template class std::vector<std::string>;                                         \
  Extern template class std::vector<testing::internal::ParameterizedTestSuiteInfoBase *>; \
  Extern template class std::set<int32_t>;                                                \
  Extern template class std::set<std::string>;                                            \
  Extern template class std::unique_ptr<std::string>;                                     \
  Extern template class std::unique_ptr<std::stringstream>;
CGR_COMMON_TEMPLATES(extern)

// What a failed comparison of these prints.
#define CGR_COMPARISONS(Extern, A, B)                                                                                   \
  Extern template testing::AssertionResult testing::internal::CmpHelperEQFailure(const char *, const char *, A const &, \
                                                                                 B const &);                            \
  Extern template testing::AssertionResult testing::internal::CmpHelperOpFailure(const char *, const char *, A const &, \
                                                                                 B const &, const char *);
#define CGR_COMMON_COMPARISONS(Extern)               \
  CGR_COMPARISONS(Extern, int32_t, int32_t)          \
  CGR_COMPARISONS(Extern, int64_t, int64_t)          \
  CGR_COMPARISONS(Extern, uint64_t, uint64_t)        \
  CGR_COMPARISONS(Extern, uint64_t, uint32_t)        \
  CGR_COMPARISONS(Extern, uint32_t, uint32_t)        \
  CGR_COMPARISONS(Extern, const char *, std::string) \
  CGR_COMPARISONS(Extern, std::string, std::string)
CGR_COMMON_COMPARISONS(extern)

#if defined(__GLIBCXX__) // what sets are made of there
#define CGR_TREES(Extern)                                                                             \
  Extern template class std::_Rb_tree<int32_t, int32_t, std::_Identity<int32_t>, std::less<int32_t>>; \
  Extern template class std::_Rb_tree<std::string, std::string, std::_Identity<std::string>, std::less<std::string>>;
CGR_TREES(extern)
#endif
