// Names that are bounded at 31 characters: no more than 32 bytes of them are read, also for a message, whatever follows.
#include <sys/mman.h>
#include <unistd.h>

#include "tests/support/config_case.h"

namespace cgr_test {
namespace {

// Bytes that end where memory ends.
class Edge {
public:
  explicit Edge(const std::string &bytes) : page_(size_t(sysconf(_SC_PAGESIZE))) {
    memory_ = static_cast<char *>(mmap(nullptr, 2 * page_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    EXPECT_EQ(mprotect(memory_ + page_, page_, PROT_NONE), 0);
    at_ = memory_ + page_ - bytes.size();
    std::memcpy(at_, bytes.data(), bytes.size());
  }
  ~Edge() { munmap(memory_, 2 * page_); }
  Edge(const Edge &) = delete;
  Edge &operator=(const Edge &) = delete;
  const char *get() const { return at_; }

private:
  size_t page_;
  char *memory_, *at_;
};

class ConfigNames : public ConfigTest {};

TEST_P(ConfigNames, AreReadUpToTheirBound) {
  const Edge endless(std::string(32, 'x'));        // without a zero
  const Edge longest(std::string(31, 'x') + '\0'); // the longest that is one
  const std::string says = ".name is \"" + std::string(31, 'x') + "...\", expected 1 to 31 characters";
  for (int i = 0; i < 3; i++) {
    Refused([&](Good &c) { c.buffers[i].name = endless.get(); }, kArgument, "buffers[" + std::to_string(i) + "]" + says);
    Accepted([&](Good &c) { c.buffers[i].name = longest.get(); });
  }
  Refused([&](Good &c) { c.AddBackends(), c.backends[0].name = endless.get(); }, kArgument, "backends[0]" + says);
  Accepted([&](Good &c) { c.AddBackends(), c.backends[0].name = longest.get(); });
}

CGR_INSTANTIATE_CONFIG_TEST(ConfigNames);

} // namespace
} // namespace cgr_test
