// Words and phrases that the project does not use, with what it says instead (CONTRIBUTING, "Words"). Every file of the project
// is read, as text; messages of the library keep their wording, so phrases are looked for outside of string literals only.
#include <gtest/gtest.h>

#include <cctype>
#include <filesystem>
#include <fstream>
#include <regex>
#include <string>
#include <vector>

namespace {

namespace fs = std::filesystem;

struct Banned {
  const char *pattern; // of a whole word; underscores separate words
  const char *instead;
  const char *where = ""; // a pattern of paths; "": all
};

// Identifiers, and words that are their parts.
const Banned kWords[] = {
  { "baked", "captured inputs" },
  { "lattices?", "strided set" },
  { "compositions?", "batch layout" },
  { "cgr_+(\\w+_)?derived", "on_demand" },
  { "(all|prefill|page|source)_derived", "on_demand" },
  { "derived_(args|kernel|test)", "on_demand" },
  { "cgr__extent", "view_shape, view_check" },
  { "(num|count|launch)_applies", "change_steps" },
  { "see_losses", "resync_after_losses" },
  { "fate", "launch_error" },
  { "cgr__outcome", "enqueue_result" },
  { "cgr__words?", "node_args" },
  { "cgr__range", "field_range, nvtx_range", "(base|interop)/.*" },
  { "needy", "lacks_token" },
  { "adopted", "shared_prefix" },
  { "(cgr_|first|last|list|unlist)_special", "irregular" },
  { "calendars?", "schedule" },
  { "steady_day", "steady_deadline" },
  { "unfile", "cgr__schedule_remove" },
  { "settled?", "sync" },
  { "look_again", "revalidate" },
  { "(members|steady)_gain", "add_pages" },
  { "journal", "edit log" },
  { "cgr__reaches", "window_spans" },
  { "seen_words?", "filter_words" },
  { "num_told", "num_reported" },
  { "told_capacity", "reported_capacity" },
  { "hand_phase", "cursor_angle" },
  { "landings?", "snap", "interop/.*" },
  { "famil(y|ies)", "format", "(interop|docs|include|tests/(interop|support|headers|docs))/.*" },
  { "(check|enqueue)_family", "format" },
  { "variants?", "instance; mistake", "(interop|kernels|devices|planners|tests/emulation)/.*" },
  { "group = [^;]*num_q_heads", "q_per_kv" }, // a group is layers that share a page table
  { "(k|key)(->|\\.)group", "q_per_kv", "interop/.*" },
  { "groups? of lanes", "team" },
  { "CGR__LINE", "CGR__CACHE_LINE" }, // a line is a (token, head) of a q tile
  { "rounded_to_line", "rounded_to_cache_line" },
  { "CGR__LANES", "CGR__VECTOR_ELEMENTS" }, // a lane is a set of step buffers, or CUDA's own
  { "(is|are) (one|two|four|whole) lines?", "cache line", "(base|buffers|devices|graphs|requests|runtime|tracing|kernels)/.*" },
  { "warp.s (first )?rows?", "line", "kernels/cuda/attention/.*" }, // a row is that of a request in the persistent tables
  { "end of the line", "the decode section, or the requests laid end to end", "(interop|kernels|planners)/.*" },
  { "cgr__slot_\\w+", "cgr__ring_slot_" }, // a slot alone is a place in the cache; that of a partial is its index
  { "CGR__SLOT_(BATCH|TOKENS|EDITS|APPEND_FIRST)", "CGR__RING_SLOT_" },
  { "(cgr__)?step_slot", "ring_slot_index" },
  { "(free|staging) slots?", "ring slot" },
  { "slots? of the (staging )?ring", "ring slot" },
  { "cgr__part", "cgr__layer_tensor" }, // a part is what one CTA does of the decode section
  { "(cgr__)?layer_part", "layer_strided_set" },
  { "beside", "alongside, next to", "(examples|profiles|tests)/.*\\.(c|h|cc|cu|cuh|py)" }, // in messages as well
  { "append_pieces", "append_vectors" }, // a piece is a stretch of a step that is one graph
  { "pieces? of (16 bytes|memory|work)", "vector, block, item" },
  { "16-byte pieces?", "vector" },
};

// Phrases at which a native reader stops.
const Banned kPhrases[] = {
  { "nobody", "the thing that does not act, or the passive" },
  { "somebody", "the thing that acts, or the passive" },
  { "likewise", "the same" },
  { "what there is", "the thing itself" },
  { "(is|are) told so", "fails with a message" },
  { "beside", "alongside (at the same time), next to (at a place)" },
  { "lies?", "is, are" },
  { "(that|what|who) it was", "a noun" },
};

// The same within names of tests and functions, whose words begin with capitals.
const Banned kInNames[] = {
  { "Nobodys?", "the thing that does not act, or the passive" },
  { "Somebodys?", "the thing that acts, or the passive" },
  { "Beside", "Alongside, NextTo" },
  { "Lies?", "Is, Overlaps" },
};

// Records of earlier versions, data, and the two files that have to name the words.
const std::regex kLeftOut("CHANGELOG\\.md|LICENSE|CONTRIBUTING\\.md|profiles/results/.*|tests/data/.*|tests/abi/abi\\.txt|"
                          "examples/llama/model/.*|tests/house/words_test\\.cc|tools/\\.venv/.*|.*port(ing)?_0_11.*|"
                          ".*\\.(safetensors|pyc|prom)");

// `inner`: letters, and what else belongs to a word.
std::regex Whole(const std::string &pattern, const std::string &inner = "A-Za-z0-9") {
  return std::regex("(^|[^" + inner + "])(" + pattern + ")($|[^" + inner + "])", std::regex::icase);
}

std::regex InNames(const std::string &pattern) { return std::regex("(^|[^A-Za-z]|[a-z])(" + pattern + ")($|[^a-z])"); }

std::string Lower(std::string text) {
  for (char &c : text)
    c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

// The longest text that every match of the pattern has: lines are searched for it first, which is much faster.
std::string Key(const std::string &pattern) {
  const std::string plain = std::regex_replace(pattern, std::regex("\\([^()]*\\)\\??|.\\?"), "|");
  std::string longest, run;
  for (char c : plain + "|") {
    run = std::isalpha(static_cast<unsigned char>(c)) || c == ' ' ? run + c : "";
    longest = run.size() > longest.size() ? run : longest;
  }
  return longest;
}

// The project's root, found through the files that Bazel links into a test's folder.
fs::path Root() { return fs::canonical("include/cgr/base.h").parent_path().parent_path().parent_path(); }

struct File {
  std::string path;
  std::vector<std::string> lines, lower;
};

void Read(const fs::path &root, const fs::path &path, std::vector<File> *files) {
  File file{ fs::relative(path, root).string(), {}, {} };
  if (std::regex_match(file.path, kLeftOut))
    return;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    file.lines.push_back(line);
    file.lower.push_back(Lower(line));
  }
  files->push_back(file);
}

const std::vector<File> &Files() {
  static const std::vector<File> *files = [] {
    auto *found = new std::vector<File>;
    const fs::path root = Root();
    for (const auto &entry : fs::directory_iterator(root))
      if (entry.is_regular_file() && entry.path().filename().string()[0] != '.')
        Read(root, entry.path(), found);
    for (const char *folder : { "base", "bindings", "buffers", "devices", "docs", "examples", "graphs", "include", "interop",
                                "kernels", "planners", "profiles", "requests", "runtime", "tests", "tools", "tracing" })
      if (fs::exists(root / folder))
        for (const auto &entry : fs::recursive_directory_iterator(root / folder))
          if (entry.is_regular_file() && !entry.is_symlink())
            Read(root, entry.path(), found);
    return found;
  }();
  return *files;
}

// The line without the contents of string literals, which a phrase may be in.
std::string WithoutStrings(const File &file, const std::string &line) {
  static const std::regex literal("\"([^\"\\\\]|\\\\.)*\"");
  const std::string extension = fs::path(file.path).extension();
  const bool code = extension == ".c" || extension == ".h" || extension == ".cc" || extension == ".cu" || extension == ".cuh";
  return code ? std::regex_replace(line, literal, "\"\"") : line;
}

// Words may be in string literals as well; phrases may be there alone.
void ExpectNone(const Banned &banned, bool is_phrase) {
  const std::string key = Key(banned.pattern);
  ASSERT_GE(key.size(), 3u) << banned.pattern;
  const std::regex pattern = Whole(banned.pattern, is_phrase ? "A-Za-z0-9_" : "A-Za-z0-9");
  const std::regex where(*banned.where ? banned.where : ".*");
  for (const File &file : Files()) {
    if (*banned.where && !std::regex_match(file.path, where))
      continue;
    for (size_t i = 0; i < file.lines.size(); i++) {
      if (file.lower[i].find(key) == std::string::npos)
        continue;
      const std::string line = is_phrase ? WithoutStrings(file, file.lines[i]) : file.lines[i];
      EXPECT_FALSE(std::regex_search(line, pattern))
          << file.path << ":" << i + 1 << ": " << line << "\ninstead: " << banned.instead;
    }
  }
}

TEST(Words, TheFilesAreSeen) {
  EXPECT_GT(Files().size(), 900u);
  EXPECT_TRUE(std::regex_search("the cgr__baked_hash of", Whole("baked"))) << "the test does not see the words";
  EXPECT_FALSE(std::regex_search("halfbaked", Whole("baked")));
  EXPECT_TRUE(std::regex_search("ForAnOutputThatLiesOverIt(", InNames("Lies?"))) << "the test does not see names";
  EXPECT_FALSE(std::regex_search("Families", InNames("Lies?")));
  EXPECT_EQ(Key("(num|count)_applies"), "applies");
  EXPECT_EQ(Key("compositions?"), "composition");
}

TEST(Words, ThatAreNotUsed) {
  for (const Banned &banned : kWords)
    ExpectNone(banned, false);
}

TEST(Words, PhrasesThatAreNotUsed) {
  for (const Banned &banned : kPhrases)
    ExpectNone(banned, true);
}

TEST(Words, WordsOfNamesThatAreNotUsed) {
  for (const Banned &banned : kInNames) {
    const std::regex pattern = InNames(banned.pattern);
    const std::string key = Key(banned.pattern);
    for (const File &file : Files())
      for (size_t i = 0; i < file.lines.size(); i++)
        if (file.lower[i].find(Lower(key)) != std::string::npos) {
          EXPECT_FALSE(std::regex_search(file.lines[i], pattern))
              << file.path << ":" << i + 1 << ": " << file.lines[i] << "\ninstead: " << banned.instead;
        }
  }
}

} // namespace
