// The list is written for changes that only add, and for none that break.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <sstream>
#include <stdexcept>
#include <string>

#include "tests/abi/layout.h"
#include "tests/abi/list.h"
#include "tests/abi/update.h"

namespace {

using namespace cgr_test;

const char kKept[] = R"(soname libcgr.so.0
enum cgr_color unsigned 4
  0 CGR_COLOR_RED
struct cgr_options 16 8
  0 4 uint32_t size
  4 4 int32_t color
  8 8 const char *name
function CGR_0 cgr_status cgr_paint(const cgr_options *options, int32_t *count)
)";

class UpdateTest : public testing::Test {
protected:
  UpdateTest() : path(folder.path() + "/abi.txt"), now(ReadList(kKept)) { std::ofstream(path) << kKept; }
  std::string Kept() const {
    std::ifstream in(path);
    return { std::istreambuf_iterator<char>(in), {} };
  }
  bool Run() { return Update(now, path, out); }
  bool Told(const std::string &text) const { return out.str().find(text) != std::string::npos; }

  TemporaryFolder folder;
  std::string path;
  Interface now;
  std::ostringstream out;
};

TEST_F(UpdateTest, WritesWhatIsNew) {
  now.items["cgr_color"].members.push_back({ "CGR_COLOR_BLUE", "", 1, 0 });
  EXPECT_TRUE(Run());
  EXPECT_TRUE(Told("        enum cgr_color: CGR_COLOR_BLUE is new\n")) << out.str();
  EXPECT_EQ(Kept(), WriteList(now));
  EXPECT_NE(Kept().find("\n  1 CGR_COLOR_BLUE\n"), std::string::npos) << Kept();
  out.str("");
  EXPECT_TRUE(Run());
  EXPECT_EQ(out.str(), "The list is up to date.\n");
}

TEST_F(UpdateTest, LeavesTheListWhenSomethingBreaks) {
  now.items["cgr_color"].members.push_back({ "CGR_COLOR_BLUE", "", 1, 0 });
  now.items["cgr_color"].members[0].at = 2;
  EXPECT_FALSE(Run());
  EXPECT_TRUE(Told("BREAKS  enum cgr_color: CGR_COLOR_RED was 0 and is 2\n")) << out.str();
  EXPECT_EQ(Kept(), kKept);
}

TEST_F(UpdateTest, TakesAnythingUnderANewSoname) {
  now.soname = "libcgr.so.1";
  now.items.erase("cgr_paint");
  EXPECT_TRUE(Run());
  EXPECT_TRUE(Told("        function cgr_paint is gone\n")) << out.str();
  EXPECT_EQ(Kept(), WriteList(now));
}

TEST_F(UpdateTest, ALineThatIsNoneOfTheListIsRefused) {
  for (const char *line : { "union CGR_NEW 1\n", "struct cgr_new\n", "function CGR_0 cgr_new\n", "constant CGR_NEW one\n" })
    EXPECT_THROW(ReadList(std::string(kKept) + line), std::runtime_error) << line;
}

} // namespace
