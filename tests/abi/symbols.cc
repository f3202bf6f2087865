#include "tests/abi/symbols.h"

#include <elf.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <vector>

namespace cgr_test {
namespace {

class Elf {
public:
  explicit Elf(const std::string &path) : path_(path) {
    std::ifstream in(path, std::ios::binary);
    bytes_.assign(std::istreambuf_iterator<char>(in), {});
    header_ = At<Elf64_Ehdr>(0);
    if (std::memcmp(header_.e_ident, ELFMAG, SELFMAG) != 0 || header_.e_ident[EI_CLASS] != ELFCLASS64 || header_.e_type != ET_DYN)
      Fail("is no shared library of 64 bits");
    for (size_t i = 0; i < header_.e_shnum; i++)
      sections_.push_back(At<Elf64_Shdr>(header_.e_shoff + i * header_.e_shentsize));
  }

  Symbols Read() const {
    const Elf64_Shdr *table = Section(SHT_DYNSYM), *versions = Section(SHT_GNU_versym);
    if (table == nullptr || table->sh_link >= sections_.size())
      Fail("has no dynamic symbols");
    const std::map<size_t, std::string> names = Nodes();
    Symbols symbols;
    symbols.soname = Soname();
    for (size_t i = 1; i < table->sh_size / sizeof(Elf64_Sym); i++) {
      Elf64_Sym symbol = At<Elf64_Sym>(table->sh_offset + i * sizeof(Elf64_Sym));
      // A version node is itself an absolute symbol.
      if (symbol.st_shndx == SHN_UNDEF || symbol.st_shndx == SHN_ABS || ELF64_ST_BIND(symbol.st_info) == STB_LOCAL)
        continue;
      size_t number = versions != nullptr ? At<Elf64_Half>(versions->sh_offset + i * sizeof(Elf64_Half)) & 0x7fff : 1;
      auto node = names.find(number);
      symbols.nodes[Text(*table, symbol.st_name)] = node == names.end() ? "" : node->second;
    }
    return symbols;
  }

private:
  [[noreturn]] void Fail(const std::string &what) const { throw std::runtime_error(path_ + " " + what); }

  template <typename T> T At(size_t offset) const {
    T value;
    if (offset > bytes_.size() || bytes_.size() - offset < sizeof value)
      Fail("is cut off");
    std::memcpy(&value, bytes_.data() + offset, sizeof value);
    return value;
  }
  const Elf64_Shdr *Section(Elf64_Word type) const {
    for (const Elf64_Shdr &section : sections_)
      if (section.sh_type == type)
        return &section;
    return nullptr;
  }
  // A string from the table that `section` names.
  std::string Text(const Elf64_Shdr &section, size_t offset) const {
    if (section.sh_link >= sections_.size())
      Fail("names a section that it does not have");
    size_t begin = sections_[section.sh_link].sh_offset + offset, end = bytes_.find('\0', begin);
    return end == std::string::npos ? Fail("is cut off"), "" : bytes_.substr(begin, end - begin);
  }
  std::string Soname() const {
    const Elf64_Shdr *dynamic = Section(SHT_DYNAMIC);
    for (size_t i = 0; dynamic != nullptr && i < dynamic->sh_size / sizeof(Elf64_Dyn); i++) {
      Elf64_Dyn entry = At<Elf64_Dyn>(dynamic->sh_offset + i * sizeof(Elf64_Dyn));
      if (entry.d_tag == DT_SONAME)
        return Text(*dynamic, entry.d_un.d_val);
    }
    return "";
  }
  std::map<size_t, std::string> Nodes() const {
    std::map<size_t, std::string> nodes;
    const Elf64_Shdr *section = Section(SHT_GNU_verdef);
    size_t at = section != nullptr ? section->sh_offset : 0;
    for (size_t left = section != nullptr ? section->sh_info : 0; left > 0; left--) {
      Elf64_Verdef definition = At<Elf64_Verdef>(at);
      Elf64_Verdaux name = At<Elf64_Verdaux>(at + definition.vd_aux);
      // The first one names the library itself.
      if ((definition.vd_flags & VER_FLG_BASE) == 0)
        nodes[definition.vd_ndx] = Text(*section, name.vda_name);
      at += definition.vd_next;
    }
    return nodes;
  }

  std::string path_, bytes_;
  Elf64_Ehdr header_;
  std::vector<Elf64_Shdr> sections_;
};

} // namespace

Symbols ReadSymbols(const std::string &path) { return Elf(path).Read(); }

} // namespace cgr_test
