// Commands that a test runs, and private folders for what they read and write.
#pragma once

#include <gtest/gtest.h>
#include <pty.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace cgr_test {

namespace fs = std::filesystem;

struct Outcome {
  int status = -1; // exit status
  std::string text;
};

inline Outcome RunCommand(const std::string &command) {
  Outcome outcome;
  char buffer[4096];
  FILE *pipe = popen(("(" + command + ") 2>&1 </dev/null").c_str(), "r");
  if (pipe == nullptr)
    return outcome;
  for (size_t n; (n = fread(buffer, 1, sizeof buffer, pipe)) > 0;)
    outcome.text.append(buffer, n);
  const int status = pclose(pipe);
  outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return outcome;
}

// The same at a terminal, where `typed` has been typed. Status -1: no terminal is available.
inline Outcome RunAtTerminal(const std::string &command, const std::string &typed = "") {
  Outcome outcome;
  int terminal = -1;
  const pid_t child = forkpty(&terminal, nullptr, nullptr, nullptr);
  if (child == 0) {
    execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
    _exit(127);
  }
  if (child < 0)
    return outcome;
  char buffer[4096];
  const ssize_t written = write(terminal, typed.data(), typed.size());
  EXPECT_EQ(written, static_cast<ssize_t>(typed.size()));
  for (ssize_t n; (n = read(terminal, buffer, sizeof buffer)) > 0;)
    outcome.text.append(buffer, static_cast<size_t>(n));
  int status = 0;
  waitpid(child, &status, 0);
  close(terminal);
  outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : -2;
  return outcome;
}

// A folder that is removed at the end. Its name contains `name` and the process: without Bazel, tests that run side by side share
// one parent folder.
class Folder {
public:
  explicit Folder(const std::string &name = "cgr_test_") {
    static int made = 0;
    const char *base = getenv("TEST_TMPDIR");
    path_ = fs::path(base != nullptr ? base : "/tmp") / (name + std::to_string(getpid()) + "_" + std::to_string(made++));
    fs::remove_all(path_);
    fs::create_directories(path_);
  }
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  const fs::path &path() const { return path_; }
  void Write(const std::string &name, const std::string &text) const { std::ofstream(path_ / name) << text; }
  std::string Read(const std::string &name) const {
    std::ifstream in(path_ / name);
    std::stringstream text;
    text << in.rdbuf();
    return text.str();
  }
  // A shell script.
  void WriteProgram(const std::string &name, const std::string &body) const {
    Write(name, "#!/bin/bash\n" + body);
    fs::permissions(path_ / name, fs::perms::owner_all);
  }
  void Link(const std::string &program) const {
    for (const char *place : { "/usr/bin/", "/bin/" })
      if (fs::exists(place + program) && !fs::exists(path_ / program))
        fs::create_symlink(place + program, path_ / program);
  }

private:
  fs::path path_;
};

} // namespace cgr_test
