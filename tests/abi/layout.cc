#include "tests/abi/layout.h"

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>

#include "tests/abi/declarations.h"

namespace cgr_test {
namespace {

// What a command prints, errors included.
std::string Output(const std::string &command, int *status) {
  FILE *pipe = popen((command + " 2>&1").c_str(), "r");
  if (pipe == nullptr)
    throw std::runtime_error("cannot run " + command);
  std::string text;
  char buffer[4096];
  for (size_t got; (got = fread(buffer, 1, sizeof buffer, pipe)) > 0;)
    text.append(buffer, got);
  *status = pclose(pipe);
  return text;
}

std::string MustRun(const std::string &command) {
  int status = 0;
  std::string text = Output(command, &status);
  return status == 0 ? text : throw std::runtime_error(command + ":\n" + text);
}

std::string Quoted(const std::string &path) { return "'" + path + "'"; }

std::string Compiler() {
  const char *named = std::getenv("CC");
  return named != nullptr && *named != '\0' ? named : "gcc";
}

// The program that prints every number that Fill asks for, in the same order. They are data: thousands of calls would take most
// of the time of compilation.
std::string Program(const std::map<std::string, Item> &items) {
  std::ostringstream text;
  text << "#include <cgr/bindings.h>\n#include <stddef.h>\n#include <stdio.h>\n#define NUMBER(number) (long long)(number),\n"
          "static const long long numbers[] = {\n";
  for (const auto &[name, item] : items) {
    if (item.kind == Kind::kConstant)
      text << "  NUMBER(" << name << ")\n";
    if (item.kind == Kind::kEnum)
      text << "  NUMBER(sizeof(" << name << "))\n  NUMBER((" << name << ")-1 < 0)\n";
    if (item.kind == Kind::kStruct)
      text << "  NUMBER(sizeof(" << name << "))\n  NUMBER(_Alignof(" << name << "))\n";
    for (const Member &member : item.members)
      if (item.kind == Kind::kEnum)
        text << "  NUMBER(" << member.name << ")\n";
      else if (item.kind == Kind::kStruct)
        text << "  NUMBER(offsetof(" << name << ", " << member.name << "))\n  NUMBER(sizeof(((" << name << " *)0)->"
             << member.name << "))\n";
  }
  text << "};\nint main(void) {\n  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)\n"
          "    printf(\"%lld\\n\", numbers[i]);\n  return 0;\n}\n";
  return text.str();
}

void Fill(const std::string &numbers, std::map<std::string, Item> *items) {
  std::istringstream in(numbers);
  auto next = [&in] {
    int64_t number;
    return in >> number ? number : throw std::runtime_error("the program that measures prints too little");
  };
  for (auto &[name, item] : *items) {
    if (item.kind == Kind::kConstant)
      item.value = next();
    if (item.kind == Kind::kEnum) {
      item.size = next();
      item.is_signed = next() != 0;
    }
    if (item.kind == Kind::kStruct) {
      item.size = next();
      item.align = next();
    }
    for (Member &member : item.members) {
      if (item.kind == Kind::kEnum)
        member.at = next();
      if (item.kind == Kind::kStruct) {
        member.at = next();
        member.size = next();
      }
    }
  }
}

// An array's length may be a named constant: int32_t rows[CGR_MAX].
void PutValues(std::map<std::string, Item> *items) {
  for (auto &[name, item] : *items)
    for (Member &member : item.members) {
      size_t open = member.type.rfind('['), close = member.type.rfind(']');
      auto constant = open == std::string::npos ? items->end() : items->find(member.type.substr(open + 1, close - open - 1));
      if (constant != items->end())
        member.type.replace(open + 1, close - open - 1, std::to_string(constant->second.value));
    }
}

} // namespace

bool HasCompiler() {
  int status = 0;
  Output(Compiler() + " --version", &status);
  return status == 0;
}

TemporaryFolder::TemporaryFolder() {
  const char *base = std::getenv("TEST_TMPDIR");
  path_ = std::string(base != nullptr ? base : "/tmp") + "/abi_XXXXXX";
  if (mkdtemp(path_.data()) == nullptr)
    throw std::runtime_error("cannot make a folder " + path_);
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string Preprocessed(const std::string &include, const std::string &options) {
  return MustRun(Compiler() + " -E " + options + " -std=c11 -I " + Quoted(include) + " -x c " +
                 Quoted(include + "/cgr/bindings.h"));
}

Interface Describe(const std::string &include, const Symbols &symbols) {
  Interface found;
  found.soname = symbols.soname;
  found.items = ReadDeclarations(Preprocessed(include), include + "/");
  TemporaryFolder folder;
  const std::string source = folder.path() + "/measure.c", program = folder.path() + "/measure";
  std::ofstream(source) << Program(found.items);
  MustRun(Compiler() + " -std=c11 -I " + Quoted(include) + " -o " + Quoted(program) + " " + Quoted(source));
  Fill(MustRun(Quoted(program)), &found.items);
  PutValues(&found.items);
  for (const auto &[name, macro] : ReadMacros(Preprocessed(include, "-dM")))
    if (!found.items.emplace(name, macro).second)
      throw std::runtime_error(name + " is a macro and something else");
  // It differs in each version.
  found.items.erase("CGR_HEADER_VERSION");
  for (auto &[name, item] : found.items)
    if (item.kind == Kind::kFunction)
      item.node = symbols.nodes.count(name) ? symbols.nodes.at(name) : "-";
  for (const auto &[name, node] : symbols.nodes)
    if (found.items.count(name) == 0)
      found.undeclared.push_back(name);
  return found;
}

} // namespace cgr_test
