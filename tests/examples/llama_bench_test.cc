// --bench: the form of its table, which cases run, what the numbers say of each other, and what is refused.
#include <cstdlib>
#include <memory>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include "cgr/cgr.h"
#include "examples/llama/bench_plan.h"
#include "examples/llama/error.h"
#include "examples/llama/shapes.h"
#include "tests/examples/model_folder.h"
#include "tests/tracing/json_reader.h"

namespace {

cgr_test::Outcome RunBench(const std::string &arguments, const std::string &environment = "") {
  return RunOnHost(arguments, "unset CGR_DRIVER CGR_COMMIT; " + environment);
}

// ------------------------------------------------------------------------------------------------------------------ table

struct Row {
  std::string model, params, dtype, mode, test;
  double requests, ms, p99, rate;
};

// The lines before the table; the rows in `rows`.
std::vector<std::string> ReadTable(const std::string &text, std::vector<Row> *rows) {
  static const std::regex kRow("\\| ([^|]+) \\| (\\d+\\.\\d\\d [BMK]) \\| (fp32|bf16) \\| ([^|]+) \\| ([^|]+) \\| (\\d+) "
                               "\\| (\\d+\\.\\d\\d\\d?) \\| (\\d+\\.\\d\\d\\d?) \\| (\\d+\\.\\d|\\d{4,}) \\|");
  std::vector<std::string> head;
  std::istringstream lines(text);
  std::string line;
  while (std::getline(lines, line) && line[0] == '#')
    head.push_back(line);
  EXPECT_EQ(line, "| model | params | dtype | mode | test | requests | ms per step | p99 | tokens/s |") << text;
  std::getline(lines, line);
  EXPECT_EQ(line, "|---|---:|---|---|---|---:|---:|---:|---:|");
  while (std::getline(lines, line)) {
    std::smatch m;
    EXPECT_TRUE(std::regex_match(line, m, kRow)) << line;
    if (!m.empty())
      rows->push_back({ m[1], m[2], m[3], m[4], m[5], std::atof(m.str(6).c_str()), std::atof(m.str(7).c_str()),
                        std::atof(m.str(8).c_str()), std::atof(m.str(9).c_str()) });
  }
  return head;
}

// The tokens per second are those of the steps, as far as the digits go.
void ExpectConsistent(const Row &row) {
  const bool prompt = row.test == "pp512";
  const double tokens = prompt ? 512.0 : row.requests, digit = row.ms < 1.0 ? 0.0005 : 0.005;
  EXPECT_NEAR(row.rate * row.ms / 1e3 / tokens, 1.0, digit / row.ms + 0.5 / row.rate) << row.test;
  EXPECT_GE(row.p99, prompt ? row.ms : 0.0); // of a prompt, the slowest of few
}

using Cases = std::vector<std::pair<std::string, double>>;

Cases CasesOf(const std::vector<Row> &rows) {
  Cases cases;
  for (const Row &row : rows)
    cases.emplace_back(row.test, row.requests);
  return cases;
}

TEST(LlamaBench, PrintsOneTable) {
  const cgr_test::Outcome outcome =
      RunBench("--bench --random-weights tiny --bench-repetitions 2", "CGR_DRIVER=580.1 CGR_COMMIT=abc1234 ");
  ASSERT_EQ(outcome.status, 0) << outcome.text;
  std::vector<Row> rows;
  const std::string why = ": 4224 tokens are more than the model's max_position_embeddings 2048";
  const std::string version =
      std::to_string(CGR_VERSION_MAJOR) + "." + std::to_string(CGR_VERSION_MINOR) + "." + std::to_string(CGR_VERSION_PATCH);
  EXPECT_EQ(
      ReadTable(outcome.text, &rows),
      (std::vector<std::string>{ "# llama --bench, cgr " + version, "# device: host", "# driver: 580.1", "# commit: abc1234",
                                 "# left out: tg128 @ 4096, 1 request" + why, "# left out: tg128 @ 4096, 8 requests" + why,
                                 "# left out: tg128 @ 4096, 64 requests" + why }));
  EXPECT_EQ(CasesOf(rows), (Cases{ { "pp512", 1 }, { "tg128 @ 128", 1 }, { "tg128 @ 128", 8 }, { "tg128 @ 128", 64 } }));
  for (const Row &row : rows) {
    EXPECT_EQ(row.model + row.params + row.dtype + row.mode, "tiny (random)164.16 Kfp32full");
    ExpectConsistent(row);
  }
}

TEST(LlamaBench, MeasuresTheCasesThatAreAskedFor) {
  const Folder folder;
  const cgr_test::Outcome outcome =
      RunBench("--bench --bench-requests 3,1 --bench-contexts 5,9 --bench-repetitions 1 --mode none --dtype bf16 --chunk 100 "
               "--random-weights tiny --pages 34 --json " +
               folder.File("out.json"));
  ASSERT_EQ(outcome.status, 0) << outcome.text;
  std::vector<Row> rows;
  const std::vector<std::string> head = ReadTable(outcome.text, &rows);
  EXPECT_EQ(head[2], "# driver: none");
  EXPECT_EQ(head[3], "# commit: unknown");
  EXPECT_EQ(CasesOf(rows),
            (Cases{ { "pp512", 1 }, { "tg128 @ 5", 3 }, { "tg128 @ 5", 1 }, { "tg128 @ 9", 3 }, { "tg128 @ 9", 1 } }));
  const cgr_test::Json json = cgr_test::JsonReader::Read(folder.Read("out.json"));
  cgr_test::ExpectMembers(json, { { "model", "tiny (random)" },
                                  { "parameters", 164160 },
                                  { "dtype", "bf16" },
                                  { "mode", "none" },
                                  { "device", "host" },
                                  { "driver", 0 },
                                  { "commit", "unknown" } });
  ASSERT_EQ(json["cases"].items.size(), rows.size());
  for (size_t i = 0; i < rows.size(); i++) {
    const cgr_test::Json &item = json["cases"].items[i];
    EXPECT_EQ(rows[i].mode + rows[i].dtype, "nonebf16");
    ExpectConsistent(rows[i]);
    EXPECT_EQ(item["test"].text, rows[i].test);
    EXPECT_NEAR(std::atof(item["ms_per_step"].text.c_str()), rows[i].ms, 0.0051);
    EXPECT_NEAR(std::atof(item["p99_ms"].text.c_str()), rows[i].p99, 0.0051);
    EXPECT_NEAR(std::atof(item["tokens_per_second"].text.c_str()), rows[i].rate, 0.51);
  }
}

TEST(LlamaBench, NamesAModelByItsFolder) {
  const std::string options =
      "--bench --bench-requests 2 --bench-contexts 3,9999 --bench-repetitions 1 --mode none --json /dev/stdout ";
  for (const auto &[model, name] :
       { std::pair<const char *, const char *>{ "", "bundled" }, { "--model examples/llama/model/", "model" } }) {
    const cgr_test::Outcome outcome = RunBench(options + model);
    EXPECT_EQ(outcome.status, 0) << outcome.text;
    EXPECT_SAYS(outcome.text, "\n| " + std::string(name) + " | 1.82 M | fp32 | none | tg128 @ 3 | 2 | ");
    EXPECT_SAYS(outcome.text, "10127 tokens are more than the model's max_position_embeddings 2048\"");
  }
}

TEST(LlamaBench, SaysWhichCaseFailed) {
  std::vector<Tensor> tensors = TinyTensors();
  tensors.back().bytes.assign(tensors.back().bytes.size(), '\xff'); // NaN, in the last norm
  const Folder folder(tensors, ", \"max_position_embeddings\": 1024");
  const cgr_test::Outcome outcome = RunBench("--bench --bench-requests 1 --model " + std::string(folder.path()));
  EXPECT_EQ(outcome.status, 1);
  EXPECT_SAYS(outcome.text, "llama: pp512: request 0: a logit at position 511 is NaN or Inf");
}

// --------------------------------------------------------------------------------------------------------------- refusals

TEST(LlamaBench, RefusesWhatItCannotDo) {
  const std::string list = " whole numbers from 1 to 4096 with commas between them";
  const std::vector<std::pair<std::string, std::string>> cases = {
    { "--bench --bench-requests 1,,2", "--bench-requests is 1,,2, expected up to 16" + list },
    { "--bench --bench-requests 0", "--bench-requests is 0, expected up to 16" + list },
    { "--bench --bench-requests 1,4097", "--bench-requests is 1,4097, expected up to 16" + list },
    { "--bench --bench-requests=", "--bench-requests is empty, expected up to 16" + list },
    { "--bench --bench-requests 1x", "--bench-requests is 1x, expected up to 16" + list },
    { "--bench --bench-requests 1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1",
      "--bench-requests is 1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1, expected up to 16" + list },
    { "--bench --bench-contexts 1,", "--bench-contexts is 1,, expected up to 16 whole numbers from 1 to 16777216 with commas "
                                     "between them" },
    { "--bench --bench-repetitions 0", "--bench-repetitions is 0, expected a whole number from 1 to 1000" },
    { "--bench-requests 1", "--bench-requests: expected with --bench" },
    { "--bench-contexts 1", "--bench-contexts: expected with --bench" },
    { "--bench-repetitions 1", "--bench-repetitions: expected with --bench" },
    { "--bench --random-weights tiny --pages 3", "--bench: no case fits; pp512: it needs 34 pages, and --pages is 3" },
  };
  for (const auto &[arguments, message] : cases)
    EXPECT_EQ(RunBench(arguments).text, "llama: " + message + "\n");
  for (const char *option :
       { "--check", "--prompt a", "--prompts a", "--prompt-ids 1", "--force-ids 1", "--tokens 1", "--requests 1",
         "--concurrent 1", "--max-seq-len 9", "--logits a", "--metrics a", "--trace a", "--stats" }) {
    const std::string name = std::string(option).substr(0, std::string(option).find(' '));
    const cgr_test::Outcome outcome = RunBench("--bench " + std::string(option));
    EXPECT_EQ(outcome.status, 1);
    EXPECT_EQ(outcome.text,
              "llama: " + name + ": expected without --bench, which runs its own cases and writes its table alone\n");
  }
}

// ----------------------------------------------------------------------------------------------------------------- memory

using Plan = std::unique_ptr<llama_bench_plan>;

// The default cases of the 8B shape in bf16, with room for this much cache.
int Fit(uint64_t room, llama_bench_plan *plan, llama_bench_needs *needs, int32_t draft_tokens = 0) {
  llama_options options = {};
  options.bench = 1;
  llama_model *model = nullptr;
  EXPECT_EQ(llama_bench_plan_make(&options, plan), 0);
  EXPECT_EQ(llama_shape_open("8b", &model), 0);
  const llama_bench_bounds bounds = { 16, 0, 2, room, draft_tokens };
  const int result = llama_bench_plan_fit(plan, &model->config, &bounds, needs);
  llama_model_close(model);
  return result;
}

TEST(LlamaBench, LeavesOutWhatTheDeviceCannotHold) {
  Plan plan = std::make_unique<llama_bench_plan>();
  llama_bench_needs needs;
  ASSERT_EQ(Fit(40000000000, plan.get(), &needs), 0);
  EXPECT_EQ(plan->num_cases, 7);
  EXPECT_EQ(plan->most_requests, 64);
  EXPECT_EQ(needs.requests, 64);
  EXPECT_EQ(needs.seq_len, 4224);
  EXPECT_EQ(needs.pages, 64 * 264 + 2);
  ASSERT_EQ(Fit(20000000000, plan.get(), &needs), 0);
  for (int i = 0; i < 6; i++)
    EXPECT_STREQ(plan->cases[i].left_out, "") << i;
  EXPECT_STREQ(plan->cases[6].left_out, "its KV cache takes 35.4 GB, and the device has room for 20.0 GB");
  EXPECT_EQ(needs.requests, 64); // with the short context
  EXPECT_EQ(needs.pages, 8 * 264 + 2);
  EXPECT_EQ(Fit(1000, plan.get(), &needs), -1);
  EXPECT_STREQ(llama_message(), "--bench: no case fits; pp512: its KV cache takes 0.1 GB, and the device has room for 0.0 GB");
}

// A step with three guesses may add four tokens to each request.
TEST(LlamaBench, HasRoomForAcceptedGuesses) {
  Plan plan = std::make_unique<llama_bench_plan>();
  llama_bench_needs needs;
  ASSERT_EQ(Fit(60000000000, plan.get(), &needs, 3), 0);
  EXPECT_EQ(needs.seq_len, 4096 + 4 * 128);
  EXPECT_EQ(needs.pages, 64 * (4096 + 4 * 128) / 16 + 2);
  EXPECT_STREQ(plan->cases[6].left_out, "");
  ASSERT_EQ(Fit(36000000000, plan.get(), &needs, 3), 0); // enough without guesses
  EXPECT_STREQ(plan->cases[6].left_out, "its KV cache takes 38.7 GB, and the device has room for 36.0 GB");
}

TEST(LlamaBench, RefusesMorePagesThanAPoolHas) {
  Plan plan = std::make_unique<llama_bench_plan>();
  llama_options options = {};
  options.bench = 1;
  options.bench_requests = "4096";
  options.bench_contexts = "16000000";
  llama_config config = {};
  config.max_positions = 1 << 26;
  config.num_layers = config.num_kv_heads = config.head_dim = 1;
  llama_bench_needs needs;
  const llama_bench_bounds bounds = { 16, 0, 1, ~uint64_t{ 0 }, 0 };
  ASSERT_EQ(llama_bench_plan_make(&options, plan.get()), 0);
  ASSERT_EQ(llama_bench_plan_fit(plan.get(), &config, &bounds, &needs), 0);
  EXPECT_STREQ(plan->cases[1].left_out, "it needs 4096032770 pages, and a pool has at most 67108864");
  EXPECT_EQ(needs.pages, 34);
}

} // namespace
