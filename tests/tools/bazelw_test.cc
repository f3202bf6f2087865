// bazelw on machines that lack some tools: what it says, what it installs, and that it installs nothing where it may not. All
// programs that it finds belong to the test.
#include "tests/support/commands.h"

namespace cgr_test {
namespace {

// apt-get records its arguments. It requires root as the real one does; once it has installed, Bazel and a compiler are there.
constexpr const char *kAptGet = R"sh(echo "$*" >> "$LOG"
root() { [[ $(id -u) == 0 || -n ${AS_ROOT:-} ]]; }
case "$*" in
  *update)
    root && [[ ! -f $BIN/offline ]] || exit 100
    touch "$BIN/lists" ;;
  *--assume-no*)
    root || [[ $* == *Debug::NoLocking=1* ]] || { echo "E: Could not open lock file"; exit 100; }
    [[ -f $BIN/lists ]] || { echo "E: Unable to locate package bazel-bootstrap"; exit 100; }
    [[ ! -f $BIN/g++ && -f $BIN/bazel ]] && count=1 || count=143
    echo "0 upgraded, $count newly installed, 0 to remove and 7 not upgraded."
    echo "Need to get 243 MB of archives."
    echo "After this operation, 745 MB of additional disk space will be used."
    exit 1 ;;
  *install*-y*)
    root && [[ -f $BIN/lists && ! -f $BIN/offline ]] || { echo "E: no network"; exit 100; }
    echo "Get:1 somewhere g++ [9 MB]"
    echo "dlstatus:1:20.5:Retrieving file 1"
    echo "pmstatus:g++:60.0:Unpacking g++"
    printf '#!/bin/bash\necho "bazel $*"\n' > "$BIN/bazel"
    cp "$BIN/bazel" "$BIN/gcc"; cp "$BIN/bazel" "$BIN/g++"
    chmod +x "$BIN/bazel" "$BIN/gcc" "$BIN/g++" ;;
esac
)sh";

// A Bazel that takes nothing from packages. It exits with the status in the file `status`, and writes `events` where its last
// --build_event_json_file says.
constexpr const char *kBazel7 = R"sh([[ $1 != --version ]] || { echo "bazel 7.4.1"; exit; }
echo "bazel $*"
for a in "$@"; do
  [[ $a != --build_event_json_file=* ]] || events=${a#*=}
done
[[ -z ${events:-} ]] || sed "s#BIN#$BIN#" "$BIN/events" > "$events"
exit "$(cat "$BIN/status")"
)sh";

class Bazelw : public testing::Test {
protected:
  void SetUp() override {
    for (const char *program : { "awk", "basename", "bash", "cat", "chmod", "cp", "dirname", "env", "grep", "mktemp", "paste",
                                 "readlink", "rm", "sed", "sort", "tail", "touch" })
      bin_.Link(program);
    bin_.WriteProgram("apt-get", kAptGet);
    bin_.WriteProgram("id", "echo 0\n");
    bin_.Write("lists", "");
  }
  // As a user who is not root; with a sudo that answers `asked`, which says whether it lets the user in.
  void BeUser() { bin_.WriteProgram("id", "echo 1000\n"); }
  void BeUserWithSudo(const std::string &asked) {
    BeUser();
    bin_.WriteProgram("sudo", "echo \"sudo $*\" >> \"$LOG\"\ncase $1 in " + asked + " *) AS_ROOT=1 \"$@\" ;; esac\n");
  }
  void HaveBazel7() {
    bin_.Write("status", "0");
    bin_.WriteProgram("bazel", kBazel7);
    bin_.WriteProgram("gcc", "");
    bin_.WriteProgram("g++", "");
  }
  void Remove(const char *name) { fs::remove(bin_.path() / name); }
  std::string Command(const std::string &arguments, const std::string &environment = "") const {
    const std::string bin = bin_.path().string();
    return "env -i PATH=" + bin + " BIN=" + bin + " LOG=" + bin + "/log CUDA_HOME=/nowhere " + environment + " bash ./bazelw " +
           arguments;
  }
  Outcome RunBazelw(const std::string &arguments) { return RunCommand(Command(arguments)); }
  std::string Log() const { return bin_.Read("log"); }
  void Says(const Outcome &outcome, const std::string &words) const {
    EXPECT_NE(outcome.text.find(words), std::string::npos) << outcome.text;
  }

  Folder bin_;
};

TEST_F(Bazelw, SaysWhatItInstallsAndHowMuchThatIs) {
  const Outcome outcome = RunBazelw("build //x --flag");
  EXPECT_EQ(outcome.status, 0) << outcome.text;
  Says(outcome, "bazelw: the build needs packages that are not here: g++ bazel-bootstrap");
  Says(outcome, " (143 packages, 243 MB to download, 745 MB on disk)\n");
  Says(outcome, "bazel build //x --flag\n");
  EXPECT_LT(outcome.text.find("745 MB"), outcome.text.find("bazelw: installing them"));
  EXPECT_EQ(Log().find("update"), std::string::npos) << Log();
  EXPECT_NE(Log().find("-y --no-install-recommends g++ bazel-bootstrap"), std::string::npos) << Log();
}

TEST_F(Bazelw, FetchesPackageListsWhereThereAreNone) {
  Remove("lists");
  const Outcome outcome = RunBazelw("build //x");
  EXPECT_EQ(outcome.status, 0) << outcome.text;
  Says(outcome, "bazelw: installing them (143 packages, 243 MB to download, 745 MB on disk)\n");
  Says(outcome, "bazel build //x\n");
  EXPECT_NE(Log().find("update\n"), std::string::npos) << Log();
}

// Also without network.
TEST_F(Bazelw, InstallsNothingWhereAllIsThere) {
  HaveBazel7();
  bin_.Write("offline", "");
  const Outcome outcome = RunBazelw("query 'a b' c");
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(outcome.text, "bazel query a b c\n");
  EXPECT_EQ(Log(), "");
}

TEST_F(Bazelw, RunsInItsOwnFolderWhateverCdpathHas) {
  HaveBazel7();
  const std::string bin = bin_.path().string(), name = fs::current_path().filename().string();
  fs::create_directory(bin_.path() / name);
  const Outcome outcome =
      RunCommand("cd .. && env -i CDPATH=" + bin + " PATH=" + bin + " BIN=" + bin + " bash " + name + "/bazelw build //x");
  EXPECT_EQ(outcome.text, "bazel build //x\n");
}

TEST_F(Bazelw, InstallsWhatIsMissingAlone) {
  HaveBazel7();
  Remove("g++");
  const Outcome outcome = RunBazelw("build //x");
  EXPECT_EQ(outcome.status, 0) << outcome.text;
  Says(outcome, "not here: g++ (1 package, 243 MB to download, ");
  EXPECT_NE(Log().find("-y --no-install-recommends g++\n"), std::string::npos) << Log();
}

TEST_F(Bazelw, TellsALineToPasteWhereItMayNotInstall) {
  BeUser();
  bin_.WriteProgram("sudo", "echo \"sudo $*\" >> \"$LOG\"\nexit 1\n");
  const Outcome outcome = RunBazelw("build //x");
  EXPECT_EQ(outcome.status, 1);
  Says(outcome, "(143 packages, 243 MB to download, 745 MB on disk)\n");
  Says(outcome, "this is not root, so they are not installed. To install them:\n");
  Says(outcome, "\n    sudo apt-get install --no-install-recommends g++ bazel-bootstrap");
  Says(outcome, "bazelisk");
  EXPECT_EQ(Log().find("-y"), std::string::npos) << Log();
}

// The command to paste works on that machine: without sudo, and where apt knows of no packages yet.
TEST_F(Bazelw, TheLineToPasteIsTheMachines) {
  BeUser();
  Says(RunBazelw("build //x"), "To install them, as root:\n    apt-get install --no-install-recommends g++");
  Remove("lists");
  Says(RunBazelw("build //x"), ", as root:\n    apt-get update && apt-get install --no-install-recommends g++");
  BeUserWithSudo("-n) exit 1 ;;");
  Says(RunBazelw("build //x"), "them:\n    sudo apt-get update && sudo apt-get install --no-install-recommends g++");
  EXPECT_EQ(Log().find("-y"), std::string::npos) << Log();
}

// There is no one to type a password: sudo is asked once whether it needs one, and no more.
TEST_F(Bazelw, DoesNotWaitForAPassword) {
  BeUserWithSudo("-n) exit 1 ;;");
  const Outcome outcome = RunBazelw("build //x");
  EXPECT_EQ(outcome.status, 1);
  Says(outcome, "    sudo apt-get install");
  const size_t first = Log().find("sudo ");
  EXPECT_EQ(Log().substr(first, Log().find('\n', first) - first), "sudo -n true");
  EXPECT_EQ(Log().find("sudo ", first + 1), std::string::npos) << Log();
}

TEST_F(Bazelw, UsesSudoThatNeedsNoPassword) {
  BeUserWithSudo("-n) exit 0 ;;");
  const Outcome outcome = RunBazelw("build //x");
  EXPECT_EQ(outcome.status, 0) << outcome.text;
  Says(outcome, "bazel build //x\n");
  EXPECT_EQ(Log().find("sudo -v"), std::string::npos) << Log();
}

TEST_F(Bazelw, LetsSudoAskAtATerminal) {
  BeUserWithSudo("-n) exit 1 ;; -v) echo password; exit 0 ;;");
  const Outcome outcome = RunAtTerminal(Command("build //x"), "y\n");
  if (outcome.status == -1)
    GTEST_SKIP() << "no pseudo terminals";
  EXPECT_EQ(outcome.status, 0) << outcome.text;
  Says(outcome, "bazel build //x");
  EXPECT_LT(outcome.text.find("745 MB"), outcome.text.find("password")) << "asks before it has said what for";
}

TEST_F(Bazelw, AsksOnceForAPassword) {
  BeUserWithSudo("-n) exit 1 ;; -v) echo password; exit 1 ;;");
  const Outcome outcome = RunAtTerminal(Command("build //x"), "y\n");
  if (outcome.status == -1)
    GTEST_SKIP() << "no pseudo terminals";
  EXPECT_EQ(outcome.status, 1) << outcome.text;
  Says(outcome, "    sudo apt-get install");
  EXPECT_EQ(outcome.text.find("password"), outcome.text.rfind("password"));
  EXPECT_EQ(Log().find("-y"), std::string::npos) << Log();
}

TEST_F(Bazelw, SaysWhatIsNeededWhereThereIsNoApt) {
  Remove("apt-get");
  const Outcome outcome = RunBazelw("build //x");
  EXPECT_EQ(outcome.status, 1);
  EXPECT_EQ(outcome.text.rfind("bazelw: the build needs Bazel and a C and C++ compiler.", 0), 0u) << outcome.text;
  Says(outcome, "bazel-bootstrap");
  Says(outcome, "Bazel 7 or later");
  Says(outcome, "cmake --preset try");
}

// At a terminal the user decides, unless BAZELW_INSTALL has decided; elsewhere the packages are installed.
TEST_F(Bazelw, AsksAtATerminal) {
  struct {
    const char *decided, *typed;
    bool asks, installs;
  } const cases[] = { { "", "y\n", true, true },   { "", "Yes\n", true, true }, { "", "n\n", true, false },
                      { "", "\n", true, false },   { "", "\x04", true, false }, { "1", "", false, true },
                      { "0", "y\n", false, false } };
  for (const auto &c : cases) {
    SCOPED_TRACE(std::string(c.decided) + "/" + c.typed);
    fs::remove(bin_.path() / "log"), Remove("bazel"), Remove("gcc"), Remove("g++");
    const Outcome outcome = RunAtTerminal(Command("build //x", "BAZELW_INSTALL=" + std::string(c.decided)), c.typed);
    if (outcome.status == -1)
      GTEST_SKIP() << "no pseudo terminals";
    EXPECT_EQ(outcome.status, c.installs ? 0 : 1) << outcome.text;
    EXPECT_EQ(outcome.text.find("bazelw: install them? [y/N] ") != std::string::npos, c.asks) << outcome.text;
    EXPECT_EQ(Log().find(" -y ") != std::string::npos, c.installs) << Log();
    Says(outcome, c.installs ? "\rbazelw: installing 60% g++" : "    apt-get install --no-install-recommends g++");
  }
}

TEST_F(Bazelw, RefusesOtherAnswers) {
  const Outcome outcome = RunCommand(Command("build //x", "BAZELW_INSTALL=no"));
  EXPECT_EQ(outcome.status, 2);
  Says(outcome, "BAZELW_INSTALL is no, expected 0 (never install), 1 (install without asking) or nothing");
  EXPECT_EQ(Log().find(" -y "), std::string::npos) << Log();
}

TEST_F(Bazelw, StopsWhenAptIsInterrupted) {
  bin_.WriteProgram("apt-get", "echo \"$*\" >> \"$LOG\"\n[[ $* != *-y* ]] || exit 130\n");
  EXPECT_EQ(RunBazelw("build //x").status, 130);
  EXPECT_EQ(Log().find(" -y "), Log().rfind(" -y ")) << Log();
}

// Apt's own log is not shown, but for its end when it fails.
TEST_F(Bazelw, ShowsOneLineInPlaceOfAptsLog) {
  const Outcome good = RunBazelw("build //x");
  EXPECT_EQ(good.text.find("Get:1"), std::string::npos) << good.text;
  EXPECT_EQ(good.text.find("status:"), std::string::npos) << good.text;
  Remove("bazel"), Remove("g++");
  bin_.Write("offline", "");
  Says(RunBazelw("build //x"), "bazelw: apt-get install ended with status 100:\n    E: no network\n");
}

class BazelwCuda : public Bazelw {
protected:
  void SetUp() override {
    Bazelw::SetUp();
    HaveBazel7();
    fs::create_directories(bin_.path() / "cuda/bin");
    fs::create_directory(bin_.path() / "dev");
    bin_.WriteProgram("cuda/bin/nvcc", "");
  }
  Outcome RunWith(const std::string &arguments, const std::string &environment = "") {
    return RunCommand("B=" + bin_.path().string() + "; " + Command(arguments, "CGR_DEV=$B/dev CUDA_HOME=$B/cuda " + environment));
  }
};

constexpr const char *kHostAlone =
    "bazelw: no GPU is visible, so the host device alone is built (--config=cuda adds CUDA: about ";

TEST_F(BazelwCuda, LeavesItOutWhereNoGpuIsVisible) {
  bin_.Write("events", "");
  for (const char *command : { "test //...", "test //tests/base:all", "run //examples/llama", "run -c opt //examples:minimal",
                               "run examples/llama", "run @cgr//examples/llama", "test --config=dbg //...",
                               "--output_base=x test //...", "run examples:minimal -- --config=cuda" }) {
    const Outcome outcome = RunWith(command);
    Says(outcome, kHostAlone);
    Says(outcome, " --config=nocuda ");
  }
  const std::string command = RunWith("--output_base=x test -k //y").text;
  EXPECT_NE(command.find("bazel --output_base=x test --build_event_json_file="), std::string::npos) << command;
  EXPECT_NE(command.find(" --config=nocuda -k //y"), std::string::npos) << command;
  bin_.Write("dev/nvidia0", "");
  Says(RunWith("run //examples/llama", "CUDA_VISIBLE_DEVICES="), kHostAlone);
  for (const char *none : { "-1", "-1,0", "NoDevFiles" })
    Says(RunWith("run //examples/llama", std::string("CUDA_VISIBLE_DEVICES=") + none), kHostAlone);
}

// What is built for others, what names a configuration, and where a GPU is, is built as before.
TEST_F(BazelwCuda, IsOtherwiseBuilt) {
  for (const char *command :
       { "build //:dist", "build //examples/llama", "run //tests/abi:update", "run --config=cuda //examples/llama",
         "test --config=asan //...", "test --config cuda //...", "run --repo_env=CGR_CUDA=1 //examples/llama",
         "test --repo_env CGR_CUDA=1 //...", "run //tests/abi:update -- //examples/llama" })
    EXPECT_EQ(RunWith(command).text.find("--config=nocuda"), std::string::npos) << command;
  for (const char *environment : { "CGR_REQUIRE_GPU=1", "CGR_CUDA=1" })
    EXPECT_EQ(RunWith("run //examples/llama", environment).text, "bazel run //examples/llama\n") << environment;
  for (const char *device : { "dev/nvidia3", "dev/dxg" }) {
    bin_.Write(device, "");
    const Outcome outcome = RunWith("run //examples/llama", "CUDA_VISIBLE_DEVICES=0");
    Says(outcome, "bazel run //examples/llama\n");
    if (!fs::exists("bazel-out/k8-opt/bin/kernels/cuda")) // compiled before
      Says(outcome, "bazelw: CUDA kernels are compiled, too: about ");
    Remove(device);
  }
  EXPECT_EQ(RunWith("run //examples/llama", "CUDA_HOME=/nowhere").text, "bazel run //examples/llama\n");
}

// With package lists and without.
TEST_F(Bazelw, SaysThatAnInstallationFailed) {
  bin_.Write("offline", "");
  for (const char *size : { "(143 packages, 243 MB to download, 745 MB on disk)", "(apt does not say how much that is)" }) {
    const Outcome outcome = RunBazelw("build //x");
    EXPECT_EQ(outcome.status, 1);
    Says(outcome, std::string("bazelw: installing them ") + size);
    Says(outcome, "bazelw: could not install: g++ bazel-bootstrap");
    Remove("lists");
  }
}

class BazelwTest : public Bazelw {
protected:
  static constexpr const char *kEvent = "{\"name\":\"test.xml\",\"uri\":\"file://BIN/test.xml\"}\n";
  static constexpr const char *kRemote = "{\"name\":\"test.xml\",\"uri\":\"bytestream://cache/blobs/1/2\"}\n";
  void SetUp() override {
    Bazelw::SetUp();
    HaveBazel7();
    bin_.Write("events", kEvent);
    bin_.Write("test.xml", "<testcase name=\"a\"/>\n<testcase name=\"b\">\n<skipped message=\"no GPU\"/></testcase>\n");
  }
  void Ends(const char *bazel, int status, const std::string &words) {
    bin_.Write("status", bazel);
    const Outcome outcome = RunBazelw("test //x");
    EXPECT_EQ(outcome.status, status) << outcome.text;
    ASSERT_GE(outcome.text.size(), words.size());
    EXPECT_EQ(outcome.text.substr(outcome.text.size() - words.size()), words) << outcome.text;
  }
};

TEST_F(BazelwTest, SumsUpInItsLastLine) { Ends("0", 0, " //x\nskipped 1: no GPU\n1 passed, 0 failed, 1 skipped\n"); }

TEST_F(BazelwTest, FailsWhenBazelOrACaseDoes) {
  Ends("3", 3, "1 passed, 0 failed, 1 skipped\n"); // a program that crashed after its cases
  bin_.Write("test.xml", "<testcase name=\"a\">\n<failure message=\"\"/></testcase>\n");
  Ends("0", 3, "0 passed, 1 failed, 0 skipped\n");
}

TEST_F(BazelwTest, ReadsEventsWhereTheCallerWantsThem) {
  const Outcome outcome = RunBazelw(
      "test --build_event_json_file=\"$PWD/none\" --build_event_json_file=" + (bin_.path() / "mine.json").string() + " //x");
  EXPECT_EQ(outcome.status, 0) << outcome.text;
  Says(outcome, "\n1 passed, 0 failed, 1 skipped\n");
  EXPECT_NE(bin_.Read("mine.json").find("test.xml"), std::string::npos);
}

TEST_F(BazelwTest, DecodesTheNamesOfResults) {
  bin_.Write("a b%.xml", "<testcase name=\"a\"/>\n");
  bin_.Write("events", "{\"name\":\"test.xml\",\"uri\":\"file://BIN/a%20b%25.xml\"}\n");
  Ends("0", 0, " //x\n1 passed, 0 failed, 0 skipped\n");
}

// The cases of results in a remote cache are unknown. bazelw says so, and that is not a failure.
TEST_F(BazelwTest, SaysWhatItCannotCount) {
  bin_.Write("events", std::string(kRemote) + kEvent);
  Ends("0", 0,
       "bazelw: the results of 1 of 2 tests are not on this machine, so their cases are not counted\n"
       "skipped 1: no GPU\n1 passed, 0 failed, 1 skipped\n");
  bin_.Write("events", kRemote);
  Ends("0", 0, " //x\nbazelw: the results of 1 of 1 tests are not on this machine, so their cases are not counted\n");
  bin_.Write("events", "");
  const Outcome nowhere = RunBazelw("test --build_event_json_file=" + (bin_.path() / "mine.json").string() + " //x");
  EXPECT_EQ(nowhere.status, 0) << nowhere.text;
  Says(nowhere, "mine.json names no results of tests, so cases are not counted\n");
  Ends("0", 3,
       "names no results of tests, so cases are not counted\n"); // Bazel's own word that it tested, and nothing to show for it
}

// If Bazel did not get as far as testing, earlier results are not summed up.
TEST_F(BazelwTest, HasNoResultsOfABuildThatFailed) {
  Ends("1", 1, "bazel test ended with status 1: no results\n0 passed, 0 failed, 0 skipped\n");
}

TEST_F(BazelwTest, CountsWhatWasTestedBeforeAnInterruption) {
  const std::string programs =
      "{\"targetKind\":\"cc_test rule\"}\n{\"targetKind\":\"cc_library rule\"}\n{\"targetKind\":\"cc_test rule\"}\n";
  bin_.Write("events", programs + kEvent);
  Ends("8", 8, "bazelw: interrupted after 1 of 2 test programs\nskipped 1: no GPU\n1 passed, 0 failed, 1 skipped\n");
  bin_.Write("events", programs);
  Ends("8", 8, "bazelw: interrupted after 0 of 2 test programs\n0 passed, 0 failed, 0 skipped\n");
}

} // namespace
} // namespace cgr_test
