// Configurations as users of the ringside command meet them: --config, --print-config, and what is
// made from the tables of options and committed.
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <iterator>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <sstream>

#include "tests/support/directories.h"
#include "tests/support/subprocess.h"
#include "tests/support/vmm/test_machine.h"
#include "vmm/metric_table.h"

namespace ringside {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Json = nlohmann::ordered_json;

class ConfigCommandTest : public ::testing::Test {
 protected:
  static ProcessResult Ringside(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), RINGSIDE_COMMAND);
    return RunProcess(arguments);
  }
  std::string Write(const std::string& name, const std::string& text) const {
    std::ofstream(directory_ / name) << text;
    return directory_ / name;
  }
  // As a shell runs it in the test's directory, where `ringside` is the command.
  ProcessResult Shell(const std::string& line) const {
    const std::filesystem::path command(RINGSIDE_COMMAND);
    return RunProcess({"/bin/sh", "-c",
                       "cd '" + (directory_ / "") + "' && PATH='" + command.parent_path().string() +
                           ":'$PATH && " + line});
  }
  void ExpectRefused(const std::string& json, const std::string& says) const {
    const std::string path = Write("refused.json", json);
    const ProcessResult result = Ringside({"run", "--config", path});
    EXPECT_EQ(result.status, 2) << json;
    EXPECT_EQ(result.output, "");
    EXPECT_EQ(result.errors, "ringside: error: --config '" + path + "': " + says + "\n");
  }

 private:
  const testing::TempDirectory directory_;
};

// The examples that a text for users has, each in one line.
std::vector<std::string> ExamplesIn(std::string text) {
  text = std::regex_replace(text, std::regex(R"( *\\\n +)"), " ");
  std::vector<std::string> examples;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::smatch match;
    const std::regex example(R"(^ +(?:.*[ /])?(ringside run --(?!help).*))");
    if (std::regex_match(line, match, example)) examples.push_back(match[1]);
  }
  return examples;
}

std::string ReadFile(const std::filesystem::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Of the documents, whose examples are indented.
std::vector<std::string> DocumentedExamples() {
  const std::filesystem::path docs(RINGSIDE_DOCS);
  std::vector<std::string> examples = ExamplesIn(ReadFile(docs / ".." / "README.md"));
  for (const auto& entry : std::filesystem::directory_iterator(docs)) {
    if (entry.path().extension() != ".md") continue;
    for (std::string& example : ExamplesIn(ReadFile(entry))) examples.push_back(std::move(example));
  }
  return examples;
}

TEST_F(ConfigCommandTest, EveryExampleOfTheHelpAndTheDocumentsIsAConfiguration) {
  std::vector<std::string> examples = ExamplesIn(Ringside({"run", "--help"}).output);
  EXPECT_GE(examples.size(), 12u);
  const std::vector<std::string> documented = DocumentedExamples();
  EXPECT_GE(documented.size(), 3u);
  examples.insert(examples.end(), documented.begin(), documented.end());
  for (const std::string& example : examples) {
    SCOPED_TRACE(example);
    const bool prints = example.find("--print-config") != std::string::npos;
    const ProcessResult run = Shell(prints ? example : example + " --print-config");
    EXPECT_EQ(run.status, 0) << run.errors;
    EXPECT_THAT(run.errors, IsEmpty());
    if (prints) continue;  // into vm.json, which the next example runs from
    ASSERT_TRUE(Json::accept(run.output)) << run.output;
    std::vector<std::string> words = {"run", "--config", Write("again.json", run.output),
                                      "--print-config"};
    // The command's own, and none of a machine.
    if (example.find("--template") != std::string::npos) {
      words.insert(words.end(), {"--template", "snap"});
    }
    const ProcessResult again = Ringside(words);
    EXPECT_EQ(again.status, 0) << again.errors;
    EXPECT_EQ(again.output, run.output);
  }
}

TEST_F(ConfigCommandTest, TheExampleOfAFileIsOne) {
  const std::string document = ReadFile(std::filesystem::path(RINGSIDE_DOCS) / "options.md");
  const std::string begin = "```json\n";
  const size_t first = document.find(begin) + begin.size();
  const std::string json = document.substr(first, document.find("```", first) - first);
  const ProcessResult run = Ringside({"run", "--config", Write("vm.json", json), "--print-config"});
  ASSERT_EQ(run.status, 0) << run.errors;
  // All that it says is in what is printed.
  EXPECT_EQ(Json::parse(run.output)["iothreads"][0]["price"], 0.5);
  EXPECT_EQ(Json::parse(run.output)["disks"].size(), 2u);
}

TEST_F(ConfigCommandTest, FlagsOverrideTheFile) {
  const std::string path = Write("vm.json", R"({"kernel": "k", "memory": "1G", "cpus": 3,
    "disks": [{"path": "a"}, {"path": "b"}], "iothreads": [{"id": "x"}]})");
  const ProcessResult run = Ringside(
      {"run", "--config", path, "--memory", "2G", "--disk", "type=null,size=1M", "--print-config"});
  ASSERT_EQ(run.status, 0) << run.errors;
  const Json json = Json::parse(run.output);
  EXPECT_EQ(json["kernel"], "k");
  EXPECT_EQ(json["memory"], "2G");
  EXPECT_EQ(json["cpus"], 3);
  ASSERT_EQ(json["disks"].size(), 1u);
  EXPECT_EQ(json["disks"][0]["type"], "null");
  EXPECT_EQ(json["iothreads"][0]["id"], "x");
}

TEST_F(ConfigCommandTest, AFileRunsAMachine) {
  SKIP_WITHOUT_KVM();
  const Json config = {{"kernel", RINGSIDE_GUEST_ELF},
                       {"cmdline", "end=poweroff"},
                       {"disks", Json::array({{{"type", "null"}, {"size", 1 << 20}, {"id", "d"}}})},
                       {"serial", "none"}};
  const ProcessResult run =
      Ringside({"run", "--config", Write("vm.json", config.dump()), "--stats=json"});
  EXPECT_EQ(run.status, 0) << run.errors;
  EXPECT_EQ(run.output, "");
  EXPECT_EQ(Json::parse(run.errors)["disks"][0]["id"], "d");
}

TEST_F(ConfigCommandTest, SaysWhereAFileIsWrong) {
  ExpectRefused("{\n  \"kernel\": \"k\",\n  \"cpus\": 1,\n}",
                "line 4: syntax error while parsing object key - unexpected '}'; expected string "
                "literal");
  ExpectRefused(R"({"kernel": "k", "disks": [{"path": "a", "queues": 0}]})",
                "disks[0].queues=0 is out of range: a disk has 1 to 16 queues");
  ExpectRefused(R"({"kernal": "k"})", "kernal is unknown: did you mean 'kernel'?");
  ExpectRefused(R"({"kernel": "k", "kernel": "k"})", "line 1: the key 'kernel' is there twice");
  ExpectRefused(std::string((1 << 20) + 1, ' '),
                "it has more than 1048576 bytes, and none like it needs as many");
  const ProcessResult missing = Ringside({"run", "--config", "/nonexistent"});
  EXPECT_EQ(missing.status, 2);
  EXPECT_THAT(missing.errors,
              HasSubstr("--config cannot read '/nonexistent': No such file or directory"));
  EXPECT_EQ(Ringside({"run", "--config", "/"}).status, 2);
}

TEST_F(ConfigCommandTest, AKernelComesFromSomewhere) {
  const ProcessResult run = Ringside({"run", "--config", Write("vm.json", "{}")});
  EXPECT_EQ(run.status, 2);
  EXPECT_EQ(run.errors,
            "ringside: error: no kernel is given: give --kernel FILE, a \"kernel\" in "
            "--config's file, --restore DIR or --template DIR\n");
}

TEST_F(ConfigCommandTest, WantsToKnowWhatToPrint) {
  for (const auto& arguments :
       {std::vector<std::string>{"config"}, {"config", "--schema", "--markdown"}}) {
    const ProcessResult result = Ringside(arguments);
    EXPECT_EQ(result.status, 2);
    EXPECT_EQ(result.errors,
              "ringside: error: config prints one thing: give --schema, --markdown, --metrics or "
              "--openapi\n");
  }
}

TEST_F(ConfigCommandTest, SaysWhenItsOutputIsLost) {
  const std::string config = Write("vm.json", R"({"kernel": "k"})");
  for (const std::string& line : {std::string("ringside config --schema"),
                                  "ringside run --print-config --config " + config}) {
    const ProcessResult result = Shell(line + " > /dev/full");
    EXPECT_EQ(result.status, 1);
    EXPECT_EQ(result.errors,
              "ringside: error: cannot write all of it to stdout: No space left on device\n");
  }
}

TEST_F(ConfigCommandTest, WhatIsCommittedIsCurrent) {
  const auto committed = [](const std::string& name) {
    return ReadFile(std::filesystem::path(RINGSIDE_DOCS) / name);
  };
  EXPECT_EQ(Ringside({"config", "--markdown"}).output, committed("options.md"))
      << "make it anew: build/release/ringside config --markdown > docs/options.md";
  EXPECT_EQ(Ringside({"config", "--schema"}).output, committed("options.schema.json"))
      << "make it anew: build/release/ringside config --schema > docs/options.schema.json";
  EXPECT_EQ(Ringside({"config", "--metrics"}).output, committed("metrics.md"))
      << "make it anew: build/release/ringside config --metrics > docs/metrics.md";
}

// What each query of the dashboard asks for is there.
TEST(Dashboard, NamesMetricsOfTheTable) {
  std::set<std::string> known;
  for (const Metric& metric : Metrics()) {
    const std::string name = metric.name;
    if (metric.type != MetricType::kHistogram) known.insert(name);
    if (metric.type != MetricType::kHistogram) continue;
    known.insert({name + "_bucket", name + "_sum", name + "_count"});
  }
  const auto path = std::filesystem::path(RINGSIDE_DOCS) / "grafana" / "ringside.json";
  const nlohmann::json dashboard = nlohmann::json::parse(ReadFile(path));
  std::vector<std::string> queries = {dashboard["templating"]["list"][1]["query"]};
  for (const auto& panel : dashboard["panels"]) {
    for (const auto& target : panel["targets"]) queries.push_back(target["expr"]);
  }
  EXPECT_GE(queries.size(), dashboard["panels"].size() + 1);
  static const std::regex kName("ringside_[a-z_]+");
  for (const std::string& query : queries) {
    std::sregex_iterator name(query.begin(), query.end(), kName);
    EXPECT_NE(name, std::sregex_iterator()) << query;
    for (; name != std::sregex_iterator(); ++name) EXPECT_EQ(known.count(name->str()), 1u) << query;
  }
}

}  // namespace
}  // namespace ringside
