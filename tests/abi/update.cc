#include "tests/abi/update.h"

#include <fstream>
#include <iterator>

#include "tests/abi/compare.h"
#include "tests/abi/list.h"

namespace cgr_test {

bool Update(const Interface &now, const std::string &path, std::ostream &out) {
  std::ifstream in(path);
  const std::string kept{ std::istreambuf_iterator<char>(in), {} };
  int broken = 0;
  for (const Change &change : Compare(ReadList(kept), now)) {
    out << (change.breaks ? "BREAKS  " : "        ") << change.text << "\n";
    broken += change.breaks;
  }
  if (broken > 0) {
    out << "The list stays as it is: programs that were compiled before break (" << broken
        << " times). tests/abi/compare.h has the rules, tests/abi/abi_test.cc what a new SONAME takes.\n";
    return false;
  }
  const std::string text = WriteList(now);
  if (text == kept) {
    out << "The list is up to date.\n";
    return true;
  }
  std::ofstream file(path);
  file << text;
  file.close();
  out << (file ? "Written: " : "Cannot write ") << path << "\n";
  return static_cast<bool>(file);
}

} // namespace cgr_test
