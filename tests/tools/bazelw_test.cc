// bazelw on machines that lack this or that: what it says, what it installs, and that it installs nothing where it may not. All
// programs that it finds are the test's.
#include "tests/tools/commands.h"

namespace cgr_test {
namespace {

// apt-get keeps what it was asked; when it installs, Bazel and a compiler are there.
constexpr const char *kAptGet = R"(echo "$*" >> "$LOG"
case "$*" in
  update) touch "$BIN/lists" ;;
  *--assume-no*)
    [[ -f $BIN/lists ]] || { echo "E: Unable to locate package bazel-bootstrap"; exit 100; }
    echo "0 upgraded, 143 newly installed, 0 to remove and 7 not upgraded."
    echo "Need to get 243 MB of archives."
    echo "After this operation, 745 MB of additional disk space will be used."
    exit 1 ;;
  *install*-y*)
    [[ -f $BIN/lists && ! -f $BIN/broken ]] || exit 100
    printf '#!/bin/bash\necho "bazel $*"\n' > "$BIN/bazel"
    cp "$BIN/bazel" "$BIN/gcc"; cp "$BIN/bazel" "$BIN/g++"
    chmod +x "$BIN/bazel" "$BIN/gcc" "$BIN/g++" ;;
esac
)";

class Bazelw : public testing::Test {
protected:
  void SetUp() override {
    for (const char *program :
         { "basename", "bash", "cat", "chmod", "cp", "dirname", "env", "grep", "mktemp", "paste", "rm", "sed", "touch", "tr" })
      bin_.Link(program);
    bin_.WriteProgram("apt-get", kAptGet);
    bin_.WriteProgram("id", "echo 0\n");
    bin_.Write("lists", "");
  }
  // As somebody who is not root.
  void BeNobody() { bin_.WriteProgram("id", "echo 1000\n"); }
  void Remove(const char *name) { fs::remove(bin_.path() / name); }
  Outcome RunBazelw(const std::string &arguments) {
    const std::string bin = bin_.path().string();
    return RunCommand("env -i PATH=" + bin + " BIN=" + bin + " LOG=" + bin + "/log bash ./bazelw " + arguments);
  }
  std::string Log() const { return bin_.Read("log"); }
  void Says(const Outcome &outcome, const std::string &words) const {
    EXPECT_NE(outcome.text.find(words), std::string::npos) << outcome.text;
  }

  Folder bin_;
};

TEST_F(Bazelw, SaysWhatItInstallsAndHowMuchThatIs) {
  const Outcome outcome = RunBazelw("build //x --flag");
  EXPECT_EQ(outcome.status, 0) << outcome.text;
  Says(outcome, "bazelw: installing g++ bazel-bootstrap");
  Says(outcome, "(143 packages, 243 MB to download, 745 MB on disk)");
  Says(outcome, "bazel build //x --flag\n");
  EXPECT_EQ(Log().find("update"), std::string::npos) << Log();
  EXPECT_NE(Log().find("--no-install-recommends g++ bazel-bootstrap"), std::string::npos) << Log();
}

TEST_F(Bazelw, FetchesPackageListsWhereThereAreNone) {
  Remove("lists");
  const Outcome outcome = RunBazelw("build //x");
  EXPECT_EQ(outcome.status, 0) << outcome.text;
  Says(outcome, "243 MB to download");
  Says(outcome, "bazel build //x\n");
  EXPECT_NE(Log().find("update\n"), std::string::npos) << Log();
}

TEST_F(Bazelw, InstallsNothingWhereAllIsThere) {
  for (const char *program : { "bazel", "gcc", "g++" })
    bin_.WriteProgram(program, "echo \"$(basename \"$0\") $*\"\n");
  const Outcome outcome = RunBazelw("query 'a b' c");
  EXPECT_EQ(outcome.status, 0);
  if (Log().empty()) { // but what else the build takes from packages
    EXPECT_EQ(outcome.text, "bazel query a b c\n");
  }
}

TEST_F(Bazelw, TellsALineToPasteWhereItMayNotInstall) {
  BeNobody();
  const Outcome outcome = RunBazelw("build //x");
  EXPECT_EQ(outcome.status, 1);
  Says(outcome, "this is not root. To install it (143 packages, 243 MB to download, 745 MB on disk):");
  Says(outcome, "\n    sudo apt-get install --no-install-recommends g++ bazel-bootstrap");
  Says(outcome, "bazelisk");
  EXPECT_EQ(Log().find("-y"), std::string::npos) << Log();
}

// Nobody is there to type a password: sudo is asked once whether it needs one, and no more.
TEST_F(Bazelw, DoesNotWaitForAPassword) {
  BeNobody();
  bin_.WriteProgram("sudo", "echo \"sudo $*\" >> \"$LOG\"\nexit 1\n");
  const Outcome outcome = RunBazelw("build //x");
  EXPECT_EQ(outcome.status, 1);
  Says(outcome, "    sudo apt-get install");
  EXPECT_NE(Log().find("sudo -n true\n"), std::string::npos) << Log();
  EXPECT_EQ(Log().find("sudo env"), std::string::npos) << Log();
}

TEST_F(Bazelw, UsesSudoThatNeedsNoPassword) {
  BeNobody();
  bin_.WriteProgram("sudo", "echo \"sudo $*\" >> \"$LOG\"\n[[ $1 == -n ]] || \"$@\"\n");
  const Outcome outcome = RunBazelw("build //x");
  EXPECT_EQ(outcome.status, 0) << outcome.text;
  Says(outcome, "bazel build //x\n");
}

TEST_F(Bazelw, SaysWhatIsNeededWhereThereIsNoApt) {
  Remove("apt-get");
  const Outcome outcome = RunBazelw("build //x");
  EXPECT_EQ(outcome.status, 1);
  Says(outcome, "bazelw: the build needs Bazel and a C and C++ compiler.");
  Says(outcome, "bazel-bootstrap");
  Says(outcome, "Bazel 7 or later");
}

TEST_F(Bazelw, SaysThatAnInstallationFailed) {
  bin_.Write("broken", "");
  const Outcome outcome = RunBazelw("build //x");
  EXPECT_EQ(outcome.status, 1);
  Says(outcome, "bazelw: could not install: g++ bazel-bootstrap");
}

} // namespace
} // namespace cgr_test
