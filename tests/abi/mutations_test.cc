// The comparison finds changes made one at a time to a copy of the headers or to the symbols.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

#include "cgr/names.h"
#include "cgr/planners.h"
#include "cgr/tracing.h"
#include "tests/abi/compare.h"
#include "tests/abi/layout.h"
#include "tests/abi/list.h"
#include "tests/abi/symbols.h"

namespace {

using namespace cgr_test;

// In the header `file`, the first `from` after `after` becomes `to`.
struct Edit {
  std::string file, after, from, to;
};

void Apply(const std::string &folder, const Edit &edit) {
  const std::string path = folder + "/cgr/" + edit.file;
  std::ifstream in(path);
  std::string text{ std::istreambuf_iterator<char>(in), {} };
  in.close();
  size_t after = text.find(edit.after), at = text.find(edit.from, after);
  if (after == std::string::npos || at == std::string::npos)
    throw std::runtime_error(edit.file + " has no \"" + edit.from + "\" after \"" + edit.after + "\": the test must follow it");
  std::ofstream(path) << text.replace(at, edit.from.size(), edit.to);
}

Interface Edited(const std::vector<Edit> &edits, const Symbols &symbols) {
  TemporaryFolder folder;
  // Copies the files, not the links that a build puts in their place.
  std::filesystem::create_directories(folder.path() + "/cgr/interop");
  for (const auto &entry : std::filesystem::recursive_directory_iterator("include"))
    if (entry.path().extension() == ".h")
      std::filesystem::copy_file(entry.path(), folder.path() + "/" + entry.path().lexically_relative("include").string());
  for (const Edit &edit : edits)
    Apply(folder.path(), edit);
  return Describe(folder.path(), symbols);
}

class Mutations : public testing::Test {
protected:
  static void SetUpTestSuite() {
    if (!HasCompiler())
      return;
    symbols = ReadSymbols("libcgr.so");
    kept = Describe("include", symbols);
  }
  void SetUp() override {
    if (!HasCompiler())
      GTEST_SKIP() << "no C compiler: neither $CC nor gcc";
  }
  // What the edits change: "BREAKS text" or "grows text", a line each.
  std::string Changes(const std::vector<Edit> &edits) const { return Changes(Edited(edits, symbols)); }
  std::string Changes(const Interface &now) const {
    std::string text;
    for (const Change &change : Compare(kept, now))
      text += (change.breaks ? "BREAKS " : "grows ") + change.text + "\n";
    return text;
  }
  static inline Symbols symbols;
  static inline Interface kept;
};

TEST_F(Mutations, NoneChangesNothing) {
  EXPECT_EQ(Changes(std::vector<Edit>()), "");
  EXPECT_EQ(Changes(ReadList(WriteList(kept))), "");
}

TEST_F(Mutations, OfSymbols) {
  Symbols other = symbols;
  const std::string node = other.nodes["cgr_reason_name"];
  other.nodes.erase("cgr_reason_name");
  EXPECT_EQ(Changes(Edited({}, other)), "BREAKS function cgr_reason_name: the library does not export it any more\n");
  other.nodes["cgr_reason_name"] = "CGR_99";
  EXPECT_EQ(Changes(Edited({}, other)), "BREAKS function cgr_reason_name: its version node was " + node + " and is CGR_99\n");
  other = symbols;
  other.nodes["cgr_new"] = node;
  EXPECT_EQ(Edited({}, other).undeclared, std::vector<std::string>{ "cgr_new" });
}

TEST_F(Mutations, OfPrototypes) {
  const std::string drop = "CGR_API cgr_status cgr_request_drop_pages(";
  Interface without = Edited(
      { { "requests.h", "", drop + "cgr_runtime *runtime, int32_t row, int32_t group, int32_t first, int32_t count);", "" } },
      symbols);
  EXPECT_EQ(Changes(without), "BREAKS function cgr_request_drop_pages is gone\n");
  EXPECT_EQ(without.undeclared, std::vector<std::string>{ "cgr_request_drop_pages" });

  const std::string prototype =
      " the prototype was cgr_status(cgr_runtime *runtime, int32_t row, int32_t group, int32_t first, int32_t count) and is ";
  const std::string of_it = " function cgr_request_drop_pages:";
  EXPECT_EQ(Changes({ { "requests.h", drop, "int32_t count", "int64_t count" } }),
            "BREAKS" + of_it + prototype +
                "cgr_status(cgr_runtime *runtime, int32_t row, int32_t group, int32_t first, int64_t count)\n");
  EXPECT_EQ(Changes({ { "requests.h", "", drop, "CGR_API int cgr_request_drop_pages(" } }),
            "BREAKS" + of_it + prototype +
                "int(cgr_runtime *runtime, int32_t row, int32_t group, int32_t first, int32_t count)\n");
  EXPECT_EQ(Changes({ { "requests.h", drop, "int32_t row, int32_t group", "int32_t group, int32_t row" } }),
            "BREAKS" + of_it + " parameters have changed places," + prototype +
                "cgr_status(cgr_runtime *runtime, int32_t group, int32_t row, int32_t first, int32_t count)\n");
  EXPECT_EQ(Changes({ { "requests.h", drop, "int32_t count", "int32_t which" } }),
            "grows" + of_it + " names of parameters have changed," + prototype +
                "cgr_status(cgr_runtime *runtime, int32_t row, int32_t group, int32_t first, int32_t which)\n");
  EXPECT_EQ(Changes({ { "device.h", "(*cgr_host_function)", "const void *args", "const void *args, size_t args_size" } }),
            "BREAKS callback cgr_host_function: the prototype was void(const void *args) and is "
            "void(const void *args, size_t args_size)\n");
}

TEST_F(Mutations, OfEnumerators) {
  EXPECT_EQ(Changes({ { "base.h", "", "CGR_DTYPE_BF16 = 3", "CGR_DTYPE_BF16 = 30" } }),
            "BREAKS enum cgr_dtype: CGR_DTYPE_BF16 was 3 and is 30\n");
  EXPECT_EQ(Changes({ { "base.h", "", "CGR_DTYPE_BF16 = 3,", "" } }), "BREAKS enum cgr_dtype: CGR_DTYPE_BF16 is gone\n");
  EXPECT_EQ(Changes({ { "base.h", "", "CGR_DTYPE_U8 = 9", "CGR_DTYPE_U8 = 9, CGR_DTYPE_NEW = 10" } }),
            "grows enum cgr_dtype: CGR_DTYPE_NEW is new\n");
  EXPECT_EQ(Changes({ { "base.h", "", "CGR_DTYPE_U8 = 9", "CGR_DTYPE_U8 = 9, CGR_DTYPE_NEW = -1" } }),
            "BREAKS enum cgr_dtype: has become signed\ngrows enum cgr_dtype: CGR_DTYPE_NEW is new\n");
  EXPECT_EQ(Changes({ { "base.h", "", "CGR_DTYPE_U8 = 9", "CGR_DTYPE_U8 = 9, CGR_DTYPE_NEW = 0x100000000" } }),
            "BREAKS enum cgr_dtype: the size was 4 and is 8\ngrows enum cgr_dtype: CGR_DTYPE_NEW is new\n");
}

TEST_F(Mutations, OfConstants) {
  EXPECT_EQ(Changes({ { "step.h", "", "CGR_TOKEN_LAST = -1", "CGR_TOKEN_LAST = -2" } }),
            "BREAKS constant CGR_TOKEN_LAST: the value was -1 and is -2\n");
  EXPECT_EQ(Changes({ { "step.h", "", "enum { CGR_TOKEN_LAST = -1 };", "" } }), "BREAKS constant CGR_TOKEN_LAST is gone\n");
  EXPECT_EQ(Changes({ { "step.h", "", "CGR_TOKEN_LAST = -1", "CGR_TOKEN_LAST = -1, CGR_TOKEN_NEW = -2" } }),
            "grows constant CGR_TOKEN_NEW is new\n");
  const std::string buckets = Changes({ { "tracing.h", "", "CGR_HISTOGRAM_BUCKETS = 48", "CGR_HISTOGRAM_BUCKETS = 50" } });
  EXPECT_NE(buckets.find("BREAKS struct cgr_histogram: bucket was uint64_t [48] and is uint64_t [50]\n"), std::string::npos)
      << buckets;
}

TEST_F(Mutations, OfMacros) {
  const std::string tail = R"(#define CGR_TRACE_TAIL "\n]}\n")";
  EXPECT_EQ(Changes({ { "tracing.h", "", tail, R"(#define CGR_TRACE_TAIL "\n]\n")" } }),
            R"(BREAKS macro CGR_TRACE_TAIL: was CGR_TRACE_TAIL "\n]}\n" and is CGR_TRACE_TAIL "\n]\n")"
            "\n");
  EXPECT_EQ(Changes({ { "tracing.h", "", tail, "" } }), "BREAKS macro CGR_TRACE_TAIL is gone\n");
  EXPECT_EQ(Changes({ { "tracing.h", "", tail, tail + "\n#define CGR_NEW 1" } }), "grows macro CGR_NEW is new\n");
  EXPECT_EQ(
      Changes({ { "record.h", "#define CGR_ON_DEMAND(buffer)", "(uint64_t)1", "(uint32_t)1" } }),
      "BREAKS macro CGR_ON_DEMAND: was CGR_ON_DEMAND(buffer) ((uint64_t)1 << ((int)(buffer) - (int)CGR_BUFFER_KV_INDICES)) and "
      "is CGR_ON_DEMAND(buffer) "
      "((uint32_t)1 << ((int)(buffer) - (int)CGR_BUFFER_KV_INDICES))\n");
  EXPECT_EQ(Changes({ { "step.h", "#define CGR_BATCH_INIT", "NULL, 0, 0 }", "NULL, 0, 0, 0 }" } }), "");
  EXPECT_EQ(Changes({ { "step.h", "", "#define CGR_BATCH_INIT", "#define CGR_BATCH_BEGIN" } }),
            "BREAKS macro CGR_BATCH_INIT is gone\ngrows macro CGR_BATCH_BEGIN is new\n");
  const std::string last = "X(CGR_STRUCT_RANK_WATCH, 58, cgr_rank_watch, CGR_RANK_WATCH_INIT)";
  const std::string longer = Changes({ { "bindings.h", "", last, last + " X(CGR_STRUCT_NEW, 59, cgr_key, CGR_KEY_INIT)" } });
  EXPECT_NE(longer.find("grows macro CGR_STRUCT_LIST: has new entries at its end\n"), std::string::npos) << longer;
  const std::string other = Changes({ { "bindings.h", "", last, "X(CGR_STRUCT_NEW, 58, cgr_rank_watch, CGR_RANK_WATCH_INIT)" } });
  EXPECT_NE(other.find("BREAKS macro CGR_STRUCT_LIST: was "), std::string::npos) << other;
  EXPECT_EQ(Changes({ { "base.h", "", "#define CGR_VERSION_MINOR ", "#define CGR_VERSION_MINOR 9" } }), "");
}

TEST_F(Mutations, OfConst) {
  const std::string free = "CGR_API cgr_status cgr_memory_free(", capture = "CGR_API cgr_status cgr_runtime_capture(";
  EXPECT_EQ(Changes({ { "device.h", free, "void *memory", "const void *memory" } }),
            "grows function cgr_memory_free: a parameter points to const, the prototype was cgr_status(cgr_device *device, void "
            "*memory) and is cgr_status(cgr_device *device, const void *memory)\n");
  // A program's argument may be const already; a pointer to a pointer takes another type.
  const std::string gone = Changes({ { "graphs.h", capture, "const cgr_capture *capture", "cgr_capture *capture" } });
  EXPECT_EQ(gone.rfind("BREAKS function cgr_runtime_capture: the prototype was ", 0), 0u) << gone;
  const std::string alloc = "CGR_API cgr_status cgr_memory_alloc(";
  const std::string deeper = Changes({ { "device.h", alloc, "void **memory", "const void **memory" } });
  EXPECT_EQ(deeper.rfind("BREAKS function cgr_memory_alloc: the prototype was ", 0), 0u) << deeper;
  // A callback is the program's own.
  const std::string callback = Changes({ { "base.h", "(*cgr_log_function)", "void *context", "const void *context" } });
  EXPECT_EQ(callback.rfind("BREAKS callback cgr_log_function: the prototype was ", 0), 0u) << callback;
}

// In an enum whose values follow from the order.
TEST_F(Mutations, OfCountedEnumerators) {
  EXPECT_EQ(Changes({ { "graphs.h", "typedef enum cgr_reason", "CGR_REASON_COUNT_", "CGR_REASON_NEW, CGR_REASON_COUNT_" } }),
            "grows enum cgr_reason: CGR_REASON_COUNT_ was 15 and is 16\ngrows enum cgr_reason: CGR_REASON_NEW is new\n");
  const std::string amid =
      Changes({ { "graphs.h", "typedef enum cgr_reason", "CGR_REASON_BUDGET", "CGR_REASON_NEW, CGR_REASON_BUDGET" } });
  EXPECT_NE(amid.find("BREAKS enum cgr_reason: CGR_REASON_BUDGET was 13 and is 14\n"), std::string::npos) << amid;
  const std::string fewer = Changes({ { "graphs.h", "typedef enum cgr_reason", "CGR_REASON_BUDGET,", "" } });
  EXPECT_NE(fewer.find("BREAKS enum cgr_reason: CGR_REASON_COUNT_ was 15 and is 14\n"), std::string::npos) << fewer;
}

TEST_F(Mutations, OfSizedStructs) {
  const std::string batch = "typedef struct cgr_batch {";
  EXPECT_EQ(Changes({ { "step.h", batch, " lane;", " other;" },
                      { "step.h", batch, " program;", " lane;" },
                      { "step.h", batch, " other;", " program;" } }),
            "BREAKS struct cgr_batch: lane was at 4 and is at 8\nBREAKS struct cgr_batch: program was at 8 and is at 4\n");
  EXPECT_EQ(Changes({ { "step.h", batch, "int32_t max_steps;", "uint32_t max_steps;" } }),
            "BREAKS struct cgr_batch: max_steps was int32_t and is uint32_t\n");
  EXPECT_EQ(Changes({ { "step.h", batch, "} cgr_batch;", "int64_t next; } cgr_batch;" } }),
            "grows struct cgr_batch: the size was 88 and is 96\ngrows struct cgr_batch: next is new\n");
  EXPECT_EQ(Changes({ { "step.h", batch, "} cgr_batch;", "char next[5000]; } cgr_batch;" } }),
            "BREAKS struct cgr_batch: the size was 88 and is 5088, more than readers accept\n"
            "grows struct cgr_batch: next is new\n");
  const std::string amid = Changes({ { "step.h", batch, "const int32_t *rows;", "int64_t next; const int32_t *rows;" } });
  EXPECT_NE(amid.find("BREAKS struct cgr_batch: rows was at 16 and is at 24\n"), std::string::npos) << amid;
  EXPECT_NE(amid.find("BREAKS struct cgr_batch: next is new at 16, inside of the 88 bytes of older programs"), std::string::npos)
      << amid;
  EXPECT_EQ(Changes({ { "step.h", batch, "const cgr_key *forced_key;", "" } }),
            "BREAKS struct cgr_batch: the size was 88 and is 80\nBREAKS struct cgr_batch: forced_key is gone\n"
            "BREAKS struct cgr_batch: plan_flags was at 80 and is at 72\n");
  EXPECT_EQ(Changes({ { "attention.h", "(*support)", "const cgr_group *group", "cgr_group *group" } }),
            "BREAKS struct cgr_backend: support was cgr_graph_support (*)(void *context, const cgr_device_info *device, const "
            "cgr_group *group) and is cgr_graph_support (*)(void *context, const cgr_device_info *device, cgr_group *group)\n");
}

TEST_F(Mutations, OfHolesAndReservedFields) {
  EXPECT_EQ(Changes({ { "attention.h", "typedef struct cgr_layer {", " reserved;", " next;" } }),
            "grows struct cgr_layer: next takes the place of a reserved field\n");
  EXPECT_EQ(
      Changes({ { "config.h", "typedef struct cgr_key {", "uint32_t reserved[4]", "uint32_t next; uint32_t reserved[3]" } }),
      "grows struct cgr_key: next takes the place of a reserved field\n");
  const std::string hole = Changes({ { "planners.h", "", "} cgr_plan_input;", "int32_t next; } cgr_plan_input;" } });
  EXPECT_NE(hole.find("BREAKS struct cgr_plan_input: next is new at 76, inside of the 80 bytes of older programs"),
            std::string::npos)
      << hole;
}

TEST_F(Mutations, OfStructsThatCannotGrow) {
  const std::string view = Changes({ { "attention.h", "", "} cgr_view;", "int64_t next; } cgr_view;" } });
  EXPECT_NE(view.find("BREAKS struct cgr_view: the size was 32 and is 40, of a struct that cannot grow"), std::string::npos)
      << view;
  // Those that hold it by value break as well.
  EXPECT_NE(view.find("BREAKS struct cgr_attention: out was at "), std::string::npos) << view;
  const std::string sized = Changes({ { "tracing.h", "typedef struct cgr_stats {", "uint32_t size;", "uint32_t length;" } });
  EXPECT_NE(sized.find("BREAKS struct cgr_stats: the first field was size and is length\n"), std::string::npos) << sized;
}

TEST_F(Mutations, ANewSonameTakesThemAll) {
  Symbols other = symbols;
  other.soname = "libcgr.so.99";
  EXPECT_EQ(Changes(Edited({ { "base.h", "", "CGR_DTYPE_BF16 = 3", "CGR_DTYPE_BF16 = 30" } }, other)),
            "grows the SONAME was " + symbols.soname +
                " and is libcgr.so.99\n"
                "grows enum cgr_dtype: CGR_DTYPE_BF16 was 3 and is 30\n");
}

// A generator of bindings would guess, or leave them out.
TEST_F(Mutations, MoreThanPlainDeclarationsIsRefused) {
  const std::pair<const char *, const char *> refused[] = {
    { "typedef struct cgr_new { uint32_t low : 4; } cgr_new;", "a bit field" },
    { "typedef struct cgr_new { union { int a; float b; } u; } cgr_new;", "more than a plain declaration" },
    { "typedef struct cgr_new { struct { int32_t a; } inner; } cgr_new;", "more than a plain declaration" },
    { "typedef union cgr_new { int32_t a; } cgr_new;", "more than a plain declaration" },
    { "static inline int cgr_new(void) { return 1; }", "more than a plain declaration" },
    { "CGR_API cgr_status cgr_new(const char *format, ...);", "a variable number of arguments" },
    { "CGR_API cgr_status cgr_new(long count);", "more than a plain declaration" },
    { "CGR_API cgr_status cgr_new(int32_t);", "a declaration without a type" },
    { "CGR_API cgr_status cgr_new();", "a function without a prototype" },
    { "extern int32_t cgr_new;", "more than a plain declaration" },
    { "int32_t cgr_new;", "neither a type nor a function" },
  };
  for (const auto &[declaration, why] : refused)
    try {
      Edited({ { "base.h", "", "typedef enum cgr_dtype", std::string(declaration) + "\ntypedef enum cgr_dtype" } }, symbols);
      ADD_FAILURE() << "accepted: " << declaration;
    } catch (const std::runtime_error &error) {
      EXPECT_NE(std::string(error.what()).find(why), std::string::npos) << declaration << ": " << error.what();
      EXPECT_NE(std::string(error.what()).find("base.h:"), std::string::npos) << error.what();
    }
}

} // namespace
