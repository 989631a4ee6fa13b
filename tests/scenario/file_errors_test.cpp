// Errors about a value in a file: each has a code, the key as its parameter, and the line.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "interop/traces/trace_rule.h"
#include "scenario/price/read_file.h"
#include "scenario/spelling.h"

namespace penstock {
namespace {

struct Fault {
  const char* yaml;
  const char* key;
  int line;
};

constexpr Fault kFaults[] = {
    {"ranks: x", "ranks", 1},
    {"comm: 1\nbandwidth: x", "bandwidth", 2},
    {"comm: x", "comm", 1},
    {"data_parallel: x", "data_parallel", 1},
    {"data: x", "data", 1},
    {"data: 1\ndata_parallel: 1", "data", 1},
    {"schedule: {ranks: 1}", "schedule", 1},
    {"schedule: nosuch.txt", "schedule", 1},
    {"schedule: {schedule: 1f1b, rnks: 1}", "rnks", 1},
    {"sweep:\n  ranks: []", "ranks", 2},
    {"sweep:\n  ranks: [1, 1]", "ranks", 2},
    {"sweep:\n  rnks: 1", "rnks", 2},
    {"cost: 1\nmodel: gpt2", "cost", 1},
    {"stage_costs: 1", "stage_costs", 1},
    {"stage_costs:\n- {forward: -1}", "forward", 2},
    {"stage_costs:\n- {forward: 1}\n- {activation: x}", "activation", 3},
    {"stage_costs:\n- {backward: 9}", "backward", 2},
    {"layer_costs:\n- {layers: 0}", "layers", 2},
    {"topology: []", "topology", 1},
    {"topology:\n- {latency: 1}", "level", 2},
    {"topology:\n- {level: a, latency: -1}", "latency", 2},
    {"topology:\n- {level: a, bandwidth: 0}", "bandwidth", 2},
    {"topology:\n- {level: a, ranks: 0}", "ranks", 2},
    {"topology:\n- {level: a, links: x}", "links", 2},
    {"topology:\n- {level: a, links: shared}", "links", 2},
    {"topology:\n- {level: a, duplex: x}", "duplex", 2},
    {"topology:\n- {level: a, ranks: 4}\n- level: b\n  ranks: 6", "ranks", 4},
    {"topology:\n- {level: a, ranks: 4}\n- level: b\n  ranks: 4", "ranks", 4},
    {"topology:\n- {level: a}\n- {level: b, ranks: 4}", "ranks", 2},
    {"collectives: {levels: [{level: a}]}", "replicas", 1},
    {"collectives:\n  replicas: 8\n  algorithm: x\n  levels: [{level: a}]", "algorithm", 3},
    {"collectives:\n  levels: [{level: a, ranks: 4}, {level: b}]\n  replicas: 6", "replicas", 3},
    {"collectives:\n  replicas: 8\n  levels: [{level: a, ranks: 4}]", "levels", 3},
    {"collectives:\n  replicas: 8\n  levels:\n  - {level: a, ranks: 3}\n  - {level: b, ranks: 4}",
     "ranks", 5},
};

// Checks an error about a key, and that no layer spells the key as an option.
void ExpectPlaced(const Error& error, const std::string& path, const Fault& fault) {
  SCOPED_TRACE(fault.yaml);
  EXPECT_EQ(error.code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(error.parameter, fault.key);
  const std::string where = fmt::format("{}: line {}", path, fault.line);
  EXPECT_EQ(error.where, where);
  const auto as_option = [](std::string_view field) { return fmt::format("--{}", field); };
  const std::string line = Spell(error, {}, as_option).line();
  EXPECT_TRUE(line.starts_with(fmt::format("{}: {}: ", where, fault.key))) << line;
  EXPECT_EQ(line.find("--"), std::string::npos) << line;
  EXPECT_EQ(line.find('`'), std::string::npos) << line;
}

class FileErrors : public testing::Test {
 protected:
  // Tests run at the same time.
  FileErrors()
      : path_(testing::TempDir() + "penstock_" +
              testing::UnitTest::GetInstance()->current_test_info()->name() + ".yaml") {}
  ~FileErrors() override { std::filesystem::remove(path_); }

  const std::string& Write(std::string_view yaml) const {
    std::ofstream(path_) << yaml << "\n";
    return path_;
  }

 private:
  const std::string path_;
};

TEST_F(FileErrors, OfScenariosHaveTheLineAndTheKey) {
  for (const Fault& fault : kFaults) {
    Scenario scenario;
    const std::string& path = Write(fault.yaml);
    const auto read = ReadScenarioFile(path, {.sweeps = true}, scenario);
    ASSERT_FALSE(read) << fault.yaml;
    ExpectPlaced(read.error(), path, fault);
  }
}

TEST_F(FileErrors, OfTraceRulesHaveTheLineAndTheKey) {
  const Fault faults[] = {
      {"category: x", "events", 1},
      {"events:\n- {action: F}", "match", 2},
      {"events:\n- {match: '(', action: F}", "match", 2},
      {"events:\n- match: a", "match", 2},
      {"events:\n- match: a\n  action: X", "action", 3},
      {"events:\n- {match: a, action: F}\nrank: x", "rank", 3},
      {"events:\n- {match: a, action: F}\nrank: group", "rank", 3},
      {"events:\n- {match: a, action: F}\nwait: '('", "wait", 3},
      {"events:\n- {match: a, action: F}\nstep: '(?<x>.)'", "step", 3},
  };
  for (const Fault& fault : faults) {
    const std::string& path = Write(fault.yaml);
    const auto rule = LoadTraceRule(path);
    ASSERT_FALSE(rule) << fault.yaml;
    ExpectPlaced(rule.error(), path, fault);
  }
}

}  // namespace
}  // namespace penstock
