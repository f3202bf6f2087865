// The house of the sources: what includes what, how long files and functions are, what the public headers say of each function.
// The floors are those of tools/bazel/floors.bzl. The build checks the direct dependencies of packages; this test checks every
// include.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace {

namespace fs = std::filesystem;

struct Source {
  std::string path; // from the project's root
  std::vector<std::string> lines;
};

std::vector<Source> ReadSources(const std::vector<std::string> &folders, const std::set<std::string> &extensions) {
  std::vector<Source> found;
  for (const std::string &folder : folders)
    for (const auto &entry : fs::recursive_directory_iterator(folder, fs::directory_options::follow_directory_symlink)) {
      if (!extensions.count(entry.path().extension()))
        continue;
      Source source{ entry.path().lexically_normal().string(), {} };
      std::ifstream in(entry.path());
      for (std::string line; std::getline(in, line);)
        source.lines.push_back(line);
      found.push_back(source);
    }
  std::sort(found.begin(), found.end(), [](const Source &a, const Source &b) { return a.path < b.path; });
  return found;
}

// The test's data files: every source of the library.
const std::vector<Source> &Sources() {
  static const std::vector<Source> sources = ReadSources({ "include", "base", "devices", "buffers", "requests", "planners",
                                                           "kernels", "interop", "graphs", "tracing", "runtime", "ranks" },
                                                         { ".c", ".h", ".cu", ".cuh" });
  return sources;
}

// The bindings are on no floor of the library: they use it as engines do.
const std::vector<Source> &Bindings() {
  static const std::vector<Source> sources = ReadSources({ "bindings" }, { ".c", ".h", ".py" });
  return sources;
}

std::vector<std::string> Includes(const Source &source) {
  static const std::regex pattern("^\\s*#include \"([^\"]+)\"");
  std::vector<std::string> includes;
  std::smatch match;
  for (const std::string &line : source.lines)
    if (std::regex_search(line, match, pattern))
      includes.push_back(match[1].str().rfind("cgr/", 0) == 0 ? "include/" + match[1].str() : match[1].str());
  return includes;
}

// Which folders a file may include from besides its own: the first entry that is a prefix of its path counts.
struct Floor {
  std::string folder;
  std::set<std::string> may;
};

// tools/bazel/floors.bzl, which both builds read: a line for each floor, "    \"base/: include/\",".
std::vector<Floor> ReadFloors() {
  static const std::regex line_of("    \"([a-z0-9_/]+/):((?: [a-z0-9_/]+/)*)\",");
  std::vector<Floor> floors;
  std::ifstream in("tools/bazel/floors.bzl");
  for (std::string line; std::getline(in, line);) {
    std::smatch match;
    if (!std::regex_match(line, match, line_of))
      continue;
    std::istringstream may(match[2].str());
    floors.push_back({ match[1].str(), { std::istream_iterator<std::string>(may), {} } });
  }
  return floors;
}

const std::vector<Floor> &Floors() {
  static const std::vector<Floor> floors = ReadFloors();
  return floors;
}

const Floor *FloorOf(const std::string &path) {
  for (const Floor &floor : Floors())
    if (path.rfind(floor.folder, 0) == 0)
      return &floor;
  return nullptr;
}

bool MayInclude(const Floor &floor, const std::string &target) {
  const Floor *other = FloorOf(target);
  if (other == &floor)
    return true;
  return std::any_of(floor.may.begin(), floor.may.end(), [&](const std::string &may) {
    return target.rfind(may, 0) == 0 &&
           (other->folder == may || !floor.may.count(other->folder) || target.rfind(other->folder, 0) == 0);
  });
}

TEST(House, FilesIncludeOnlyWhatIsBelowThem) {
  ASSERT_GT(Sources().size(), 100u) << "the test does not see the sources";
  for (const Source &source : Sources()) {
    const Floor *floor = FloorOf(source.path);
    ASSERT_NE(floor, nullptr) << source.path << " is on no floor";
    for (const std::string &target : Includes(source))
      EXPECT_TRUE(FloorOf(target) != nullptr && MayInclude(*floor, target)) << source.path << " includes " << target;
  }
}

TEST(House, ContributingListsTheFloorsFromTheGroundUp) {
  std::ifstream in("CONTRIBUTING.md");
  const std::string page{ std::istreambuf_iterator<char>(in), {} };
  ASSERT_GT(Floors().size(), 10u) << "the test does not see the floors";
  size_t above = 0;
  for (const Floor &floor : Floors()) {
    const std::string top = floor.folder.substr(0, floor.folder.find('/'));
    const size_t row = page.find("\n| `" + (top == "include" ? "include/cgr" : top) + "/`");
    ASSERT_NE(row, std::string::npos) << "CONTRIBUTING.md has no row of " << top << "/";
    EXPECT_GE(row, above) << "CONTRIBUTING.md lists " << top << "/ too high";
    above = row;
  }
}

// Only the public device functions, the tables of kernels and the registry of their kinds know which devices there are.
TEST(House, OnlyTheTablesKnowTheDevices) {
  const std::set<std::string> tables = { "devices/api.c", "kernels/table.c", "kernels/registry.c", "interop/table.c" };
  for (const Source &source : Sources())
    for (const std::string &target : Includes(source))
      for (const std::string place : { "devices/cuda/", "devices/host/", "kernels/cuda/", "kernels/host/" }) {
        bool is_kernel = source.path.rfind("kernels/cuda/", 0) == 0 || fs::path(source.path).extension() == ".cu";
        bool inside = source.path.rfind(place, 0) == 0 || (place == "devices/cuda/" && is_kernel);
        EXPECT_TRUE(target.rfind(place, 0) != 0 || inside || tables.count(source.path)) << source.path << " includes " << target;
      }
}

// What is for one architecture is in its folder, where later ones may take it from. Only the registry needs it outside, for the
// numbers of kinds.
TEST(House, OnlyTheRegistryIncludesFromTheFolderOfAnArchitecture) {
  const std::regex folder("kernels/cuda/[a-z]+/sm[0-9]+[a-z]*/.*");
  for (const Source &source : Sources())
    for (const std::string &target : Includes(source)) {
      const bool outside = std::regex_match(target, folder) && !std::regex_match(source.path, folder);
      EXPECT_TRUE(!outside || source.path == "kernels/registry.c") << source.path << " includes " << target;
    }
}

// The rooms of the runtime, from the ground up. All see what the runtime owns.
TEST(House, RoomsOfTheRuntimeIncludeOnlyThoseBeforeThem) {
  const std::vector<std::string> rooms = { "config", "report", "record", "step", "capture" };
  const std::set<std::string> owned = { "runtime/runtime.h", "runtime/record/recorder.h", "runtime/step/lane.h" };
  auto room_of = [&](const std::string &path) { // one past the last: what is in no room
    for (size_t i = 0; i < rooms.size(); i++)
      if (path.rfind("runtime/" + rooms[i] + "/", 0) == 0)
        return i;
    return rooms.size();
  };
  std::set<size_t> seen;
  for (const Source &source : Sources())
    for (const std::string &target : Includes(source)) {
      if (source.path.rfind("runtime/", 0) != 0 || target.rfind("runtime/", 0) != 0 || owned.count(target))
        continue;
      seen.insert(room_of(source.path));
      EXPECT_LE(room_of(target), room_of(source.path)) << source.path << " includes " << target;
    }
  EXPECT_EQ(seen.size(), rooms.size() + 1) << "the test does not see the rooms";
}

TEST(House, OneFileAloneSeesTheHeadersOfNvtx) {
  for (const Source &source : Sources())
    for (const std::string &line : source.lines)
      EXPECT_TRUE(source.path == "tracing/nvtx.c" || line.find("nvtx3/") == std::string::npos) << source.path << ": " << line;
}

TEST(House, NoFilesIncludeEachOtherInACircle) {
  std::map<std::string, std::vector<std::string>> graph;
  for (const Source &source : Sources())
    graph[source.path] = Includes(source);
  std::map<std::string, int> state; // 1: on the way, 2: done
  std::vector<std::string> way;
  std::function<void(const std::string &)> visit = [&](const std::string &path) {
    state[path] = 1;
    way.push_back(path);
    for (const std::string &target : graph[path]) {
      if (state[target] == 1) {
        std::string circle;
        for (auto at = std::find(way.begin(), way.end(), target); at != way.end(); ++at)
          circle += *at + " -> ";
        ADD_FAILURE() << circle << target;
      } else if (state[target] == 0) {
        visit(target);
      }
    }
    way.pop_back();
    state[path] = 2;
  };
  for (const Source &source : Sources())
    if (state[source.path] == 0)
      visit(source.path);
}

TEST(House, FilesAreShort) {
  for (const Source &source : Sources())
    EXPECT_LE(source.lines.size(), source.path.rfind("include/", 0) == 0 ? 500u : 600u) << source.path;
}

// Lines from a function's opening to its closing brace, which are in the first column in this project's formatting.
std::vector<std::pair<std::string, int>> FunctionLengths(const Source &source) {
  static const std::regex opening("^[A-Za-z].*\\)( const)? \\{$|^ .*\\) \\{$");
  std::vector<std::pair<std::string, int>> functions;
  for (size_t i = 0; i < source.lines.size(); i++) {
    const std::string &line = source.lines[i];
    bool one_line = std::regex_match(line, std::regex("^[A-Za-z].*\\) \\{ .*\\}$"));
    if (one_line)
      functions.push_back({ source.path + ": " + line, 1 });
    if (one_line || !std::regex_match(line, opening) || (line[0] == ' ' && (i == 0 || source.lines[i - 1].empty())))
      continue;
    size_t first = i;
    while (first > 0 && source.lines[first][0] == ' ')
      first--;
    if (!std::isalpha(static_cast<unsigned char>(source.lines[first][0])) || source.lines[first].back() == ';')
      continue;
    size_t end = i + 1;
    while (end < source.lines.size() && source.lines[end] != "}")
      end++;
    functions.push_back({ source.path + ": " + source.lines[first], static_cast<int>(end - first + 1) });
    i = end;
  }
  return functions;
}

TEST(House, HostFunctionsAreShort) {
  std::vector<int> lengths;
  for (const Source &source : Sources()) {
    if (fs::path(source.path).extension() != ".c")
      continue;
    for (const auto &[name, length] : FunctionLengths(source)) {
      EXPECT_LE(length, 45) << name;
      lengths.push_back(length);
    }
  }
  ASSERT_GT(lengths.size(), 500u) << "the test does not see the functions";
  std::nth_element(lengths.begin(), lengths.begin() + static_cast<long>(lengths.size() / 2), lengths.end());
  int median = lengths[lengths.size() / 2];
  RecordProperty("median", median);
  EXPECT_LE(median, 10);
}

// Each prototype, or the group without empty lines that it begins, has a comment that ends with the contract line.
TEST(House, EveryPublicFunctionHasItsContract) {
  static const std::regex contract("Threads .+ · Capture .+ · Sync .+ · Alloc .+");
  int functions = 0;
  for (const Source &source : Sources()) {
    if (source.path.rfind("include/", 0) != 0)
      continue;
    std::string block; // the lines since the last empty line
    for (const std::string &line : source.lines) {
      if (line.empty())
        block.clear();
      block += line + " ";
      if (line.rfind("CGR_API ", 0) != 0)
        continue;
      functions++;
      EXPECT_TRUE(std::regex_search(block, contract)) << source.path << ": " << line;
    }
  }
  EXPECT_GT(functions, 60) << "the test does not see the functions";
}

// Users of the library have its headers, and none of the other files.
TEST(House, PublicHeadersNameNoFileThatIsNotInstalled) {
  static const std::regex file(
      "(^|[^A-Za-z0-9_/])(base|devices|buffers|requests|planners|kernels|interop|graphs|tracing|runtime|ranks|examples|profiles|"
      "docs|tests|tools)/[A-Za-z0-9_/]+\\.(h|c|cc|cu|cuh|md|py)");
  EXPECT_TRUE(std::regex_search(" * PLAN is in buffers/table.h.", file)) << "the test does not see the names";
  int headers = 0;
  for (const Source &source : Sources()) {
    if (source.path.rfind("include/", 0) != 0)
      continue;
    headers++;
    for (const std::string &line : source.lines)
      EXPECT_FALSE(std::regex_search(line, file)) << source.path << ": " << line;
  }
  EXPECT_GE(headers, 7) << "the test does not see the headers";
}

// What prepare and launch call, for a replay as for an eager step, and what engines call between steps. A folder stands for all
// of its files. Four files that they reach are not here: graphs/labels.c is called in captures alone, runtime/report/dump.c and
// devices/error.c only after a failure; of devices/api.c a step calls the two functions that count in a variable of the thread.
TEST(House, TheHotPathDoesNotAllocatePrintOrExit) {
  static const std::regex banned(
      "\\b(malloc|calloc|realloc|aligned_alloc|free|cgr__reserve|mem_alloc|mem_free|printf|fprintf|puts|abort|exit|getenv|"
      "pthread_mutex_lock|cgr__holders_lock)\\s*\\(");
  const std::vector<std::string> hot = { "runtime/step/",           "runtime/record/",
                                         "runtime/alive.c",         "runtime/owner.c",
                                         "runtime/report/flight.c", "runtime/report/ranges.c",
                                         "runtime/report/timing.c", "requests/",
                                         "graphs/dispatch.c",       "graphs/recorder.c",
                                         "graphs/replay.c",         "buffers/ring.c",
                                         "tracing/statistics.c",    "tracing/ticks.c",
                                         "base/status.c",           "base/sized.c",
                                         "base/choices.c",          "base/names.c" };
  for (const std::string &place : hot) {
    size_t seen = 0;
    for (const Source &source : Sources()) {
      if (source.path.rfind(place, 0) != 0)
        continue;
      seen++;
      for (const std::string &line : source.lines)
        EXPECT_FALSE(std::regex_search(line, banned)) << source.path << ": " << line;
    }
    EXPECT_GT(seen, 0u) << "the test does not see " << place;
  }
}

TEST(House, TheLibraryNeitherPrintsNorExits) {
  static const std::regex banned("\\b(printf|fprintf|puts|abort|exit|_exit|assert)\\s*\\(");
  for (const Source &source : Sources())
    for (const std::string &line : source.lines)
      EXPECT_FALSE(std::regex_search(line, banned)) << source.path << ": " << line;
}

TEST(House, BindingsSeeOnlyPublicHeadersAndTheirOwn) {
  std::set<std::string> own = { "generated.h" };
  for (const Source &source : Bindings())
    own.insert(fs::path(source.path).filename());
  size_t seen = 0;
  for (const Source &source : Bindings())
    for (const std::string &target : Includes(source)) {
      seen++;
      EXPECT_TRUE(target.rfind("include/cgr/", 0) == 0 ? fs::exists(target) : own.count(target) > 0)
          << source.path << " includes " << target;
    }
  EXPECT_GT(seen, 20u) << "the test does not see the bindings";
}

TEST(House, BindingsAreShort) {
  size_t functions = 0;
  for (const Source &source : Bindings()) {
    EXPECT_LE(source.lines.size(), 600u) << source.path;
    for (const std::string &line : source.lines)
      EXPECT_LE(line.size(), 140u) << source.path << ": " << line;
    if (fs::path(source.path).extension() != ".c" || source.path.find("/src/") == std::string::npos)
      continue;
    for (const auto &[name, length] : FunctionLengths(source)) {
      EXPECT_LE(length, 45) << name;
      functions++;
    }
  }
  EXPECT_GT(functions, 300u) << "the test does not see the functions";
}

// ------------------------------------------------------------------------------------------------------------ the archive

// What `nm` says of one member of libcgr.a.
struct Member {
  std::string name;
  std::set<std::string> defines, uses;
  std::set<std::string> shared; // those of `defines` that other parts of a program may define too
};

std::vector<Member> Members() {
  std::vector<Member> members;
  FILE *pipe = popen("nm libcgr.a", "r");
  if (pipe == nullptr)
    return members;
  char buffer[4096];
  while (std::fgets(buffer, sizeof buffer, pipe) != nullptr) {
    std::string line(buffer);
    line.erase(line.find_last_not_of("\n") + 1);
    std::istringstream words(line);
    std::vector<std::string> parts{ std::istream_iterator<std::string>(words), {} };
    if (!line.empty() && line.back() == ':')
      members.push_back({ line.substr(0, line.size() - 1), {}, {}, {} });
    else if (parts.size() == 2 && parts[0] == "U")
      members.back().uses.insert(parts[1]);
    else if (parts.size() == 3 && std::isupper(static_cast<unsigned char>(parts[1][0]))) {
      members.back().defines.insert(parts[2]);
      if (parts[1] == "V" || parts[1] == "W")
        members.back().shared.insert(parts[2]);
    }
  }
  pclose(pipe);
  return members;
}

TEST(Archive, HoldsNoShim) {
  std::vector<Member> members = Members();
  ASSERT_GT(members.size(), 40u) << "nm does not list libcgr.a";
  for (const Member &member : members)
    for (const std::string &symbol : member.defines)
      for (const char *shim : { "cgr__shim", "cgr__trace", "cgr__fault", "cgr__object", "cgr_validation" })
        EXPECT_EQ(symbol.find(shim), std::string::npos) << member.name << " defines " << symbol;
}

// All users of the NVTX headers in a program share what those headers define.
bool IsOfNvtx(const Member &member, const std::string &symbol) {
  return member.shared.count(symbol) && (symbol.rfind("nvtx", 0) == 0 || symbol.rfind("InitializeInjectionNvtx", 0) == 0);
}

TEST(Archive, DefinesNothingOutsideItsPrefixes) {
  for (const Member &member : Members())
    for (const std::string &symbol : member.defines)
      EXPECT_TRUE(symbol.rfind("cgr_", 0) == 0 || symbol.rfind("_Z", 0) == 0 || symbol.rfind("__", 0) == 0 ||
                  IsOfNvtx(member, symbol))
          << member.name << " defines " << symbol;
}

// Files that call each other in a circle could only be read together.
TEST(Archive, NoFilesCallEachOtherInACircle) {
  std::vector<Member> members = Members();
  std::map<std::string, size_t> owner;
  for (size_t i = 0; i < members.size(); i++)
    for (const std::string &symbol : members[i].defines)
      owner[symbol] = i;
  std::vector<int> state(members.size(), 0);
  std::vector<size_t> way;
  std::function<void(size_t)> visit = [&](size_t i) {
    state[i] = 1;
    way.push_back(i);
    for (const std::string &symbol : members[i].uses) {
      auto found = owner.find(symbol);
      if (found == owner.end() || found->second == i)
        continue;
      if (state[found->second] == 1)
        ADD_FAILURE() << members[i].name << " calls " << symbol << " of " << members[found->second].name
                      << ", which leads back to it";
      else if (state[found->second] == 0)
        visit(found->second);
    }
    way.pop_back();
    state[i] = 2;
  };
  for (size_t i = 0; i < members.size(); i++)
    if (state[i] == 0)
      visit(i);
}

// -------------------------------------------------------------------------------------------------------------- messages

struct Message {
  std::string place, status, text; // the literals of the call, one after the other
};

// The call whose arguments begin at `at`.
Message ReadMessage(const std::string &source, size_t at) {
  Message message;
  for (int depth = 1; depth > 0 && at < source.size(); at++) {
    depth += (source[at] == '(') - (source[at] == ')');
    if (source[at] == '"')
      for (at++; at < source.size() && source[at] != '"'; at++) {
        message.text += source[at];
        if (source[at] == '\\')
          message.text += source[++at];
      }
    else if (message.status.empty() && source.compare(at, 10, "CGR_ERROR_") == 0)
      message.status = source.substr(at, source.find_first_of(",) \n", at) - at);
  }
  return message;
}

std::vector<Message> Messages(const char *call) {
  std::vector<Message> found;
  for (const Source &source : Sources()) {
    if (source.path.find(".c") == std::string::npos)
      continue;
    std::string text;
    for (const std::string &line : source.lines)
      text += line + "\n";
    for (size_t at = text.find(call); at != std::string::npos; at = text.find(call, at + 1)) {
      found.push_back(ReadMessage(text, at + strlen(call)));
      found.back().place = source.path + ":" + std::to_string(std::count(text.begin(), text.begin() + long(at), '\n') + 1);
    }
  }
  return found;
}

// A refusal says what was expected. Memory that is not there, what a device, a test or another rank has found, and a wait that
// ends are no refusals; the others pass on a message that says it.
TEST(House, EveryRefusalSaysWhatWasExpected) {
  const std::set<std::string> others = { "CGR_ERROR_OUT_OF_MEMORY", "CGR_ERROR_SELF_TEST", "CGR_ERROR_AUDIT", "CGR_ERROR_STEP",
                                         "CGR_ERROR_RANK" };
  const std::set<std::string> passes_on = {
    "cgr_device_open: name is cuda:%d: %s",
    "timing%s",
    "%s: refused by the device's layer: %s (code %d)",
    "%s: the device answered \\\"%s\\\" (code %d)%s",
    "%s: a call failed with %s: %s",
    "devicecannot be opened: %s",
    "layers%.140s%sis refused without a reason",
    "layersbackendhas %d more reasons against it%s",
    "was not tried: %d page%s not hold one request of it doess do",
  };
  static const std::regex no_words("(%[-.0-9l]*[a-z]|[^A-Za-z])*");
  size_t seen = 0;
  for (const char *call : { "cgr__fail(", "cgr__findings_add(" })
    for (const Message &message : Messages(call)) {
      seen++;
      EXPECT_TRUE(message.text.find("expected") != std::string::npos || others.count(message.status) ||
                  passes_on.count(message.text) || std::regex_match(message.text, no_words))
          << message.place << ": " << message.text;
    }
  EXPECT_GT(seen, 300u);
}

} // namespace
