// When a program is recorded, how many recordings there are, and what happens when the device
// refuses.
//
// The graphs here are mocks: device_tests replays real ones.
#include "graph/run/program_replays.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "tests/engine/graph/small_stage.h"

namespace penstock::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// What the mocks do, and what they were asked to do.
struct Script {
  std::string begin_throws = "", end_throws = "", replay_throws = "";
  int pools = 0, begun = 0, ended = 0, replayed = 0;
};

void ThrowIf(const std::string& reason) {
  if (!reason.empty()) throw std::runtime_error(reason + "\nand a stack trace");
}

class MockGraph final : public DeviceGraph {
 public:
  explicit MockGraph(Script* script) : script_(script) {}
  void Replay() override {
    ThrowIf(script_->replay_throws);
    ++script_->replayed;
  }

 private:
  Script* script_;
};

class MockPool final : public GraphPool {
 public:
  explicit MockPool(Script* script) : script_(script) { ++script->pools; }
  void Begin() override {
    ThrowIf(script_->begin_throws);
    ++script_->begun;
  }
  std::unique_ptr<DeviceGraph> End() override {
    ++script_->ended;
    ThrowIf(script_->end_throws);
    return std::make_unique<MockGraph>(script_);
  }

 private:
  Script* script_;
};

std::vector<at::Tensor> ParametersOf(const StageSpec& spec) {
  std::vector<at::Tensor> values;
  for (const NamedTensor& parameter : spec.parameters) values.push_back(parameter.tensor.detach());
  return values;
}

// The forward of a stage, whose inputs come from outside and whose outputs stay on the rank.
class Replays : public ::testing::Test {
 protected:
  explicit Replays(StageSpec of = MiddleStage())
      : spec(std::move(of)),
        graph(Build(spec).value().forward),
        binding{ParametersOf(spec), {}},
        program(graph, binding),
        rank(std::make_shared<RankRecorder>(
            RankRecorder{[this] { return std::make_unique<MockPool>(&script); }})),
        replays(graph, binding, Ports(), rank) {}

  ProgramPorts Ports() const {
    return {std::vector<bool>(graph.inputs.size(), true),
            std::vector<bool>(graph.outputs.size(), false)};
  }
  std::vector<at::Tensor> Run(std::vector<at::Tensor> inputs) {
    std::vector<at::Tensor> outputs(graph.outputs.size());
    replays.Run(program, inputs, outputs);
    return outputs;
  }
  std::vector<at::Tensor> Run() { return Run(data.inputs); }
  void ExpectRunsOpByOp() {
    EXPECT_TRUE(at::equal(Run(data.inputs)[0], RunAutograd(spec, data).outputs[0]));
  }

  Script script;
  StageSpec spec;
  Data data = RandomData(spec, 7);  // kept, so that it is nowhere where a recording's outputs were
  Graph graph;
  GraphBinding binding;
  GraphProgram program;
  std::shared_ptr<RankRecorder> rank;
  ProgramReplays replays;
};

TEST_F(Replays, RecordTheSecondRunAndReplayItFromThen) {
  ExpectRunsOpByOp();
  EXPECT_EQ(script.pools, 0);
  for (int run = 1; run < 4; ++run) Run();
  EXPECT_EQ(script.begun, 1);
  EXPECT_EQ(script.ended, 1);
  EXPECT_EQ(script.replayed, 3);
  EXPECT_EQ(rank->recordings, 1);
  EXPECT_EQ(rank->replays, 3);
}

TEST_F(Replays, RecordOnceForEachMicrobatchInFlight) {
  Run();
  for (int step = 0; step < 3; ++step) {
    std::vector<std::vector<at::Tensor>> in_flight;
    for (int microbatch = 0; microbatch < 4; ++microbatch) in_flight.push_back(Run());
  }
  EXPECT_EQ(script.pools, 4);
  EXPECT_EQ(rank->recordings, 4);
  EXPECT_EQ(rank->replays, 12);
}

TEST_F(Replays, RecordAgainOnceAParameterHasMoved) {
  Run();
  Run();
  at::Tensor parameter = spec.parameters[0].tensor.detach();
  parameter.set_data(parameter.clone());
  binding.parameters[0].set_data(parameter);
  GraphProgram moved(graph, binding);
  ProgramReplays again(graph, binding, Ports(), rank);
  for (int run = 0; run < 2; ++run) {
    std::vector<at::Tensor> inputs = data.inputs, outputs(graph.outputs.size());
    again.Run(moved, inputs, outputs);
  }
  EXPECT_EQ(rank->recordings, 2);
}

TEST_F(Replays, AreGivenUpIfPlacesOfInputsNeverRepeat) {
  Run();
  std::vector<std::vector<at::Tensor>> kept;
  for (int run = 0; run < 100; ++run) {
    kept.push_back({data.inputs[0].clone()});
    for (const at::Tensor& input : kept.back()) rank->memory.insert(input.storage().data());
    Run(kept.back());
  }
  EXPECT_EQ(rank->recordings, 64);
  EXPECT_EQ(rank->replays, 64);
}

TEST_F(Replays, NeedInputsWhosePlaceIsKnown) {
  ProgramPorts inside = Ports();
  inside.from_outside.assign(graph.inputs.size(), false);
  ProgramReplays of_inside(graph, binding, inside, rank);
  for (int run = 0; run < 3; ++run) {
    std::vector<at::Tensor> inputs = data.inputs, outputs(graph.outputs.size());
    of_inside.Run(program, inputs, outputs);  // the inputs are in the memory of no recording
  }
  EXPECT_EQ(script.pools, 0);
}

TEST_F(Replays, RunOpByOpIfARecordingCannotBegin) {
  script.begin_throws = "capture is not allowed";
  for (int run = 0; run < 4; ++run) ExpectRunsOpByOp();
  EXPECT_EQ(script.ended, 0);
  EXPECT_THAT(rank->refusals, ElementsAre(graph.name + ": capture is not allowed"));
}

TEST_F(Replays, RunOpByOpIfARecordingCannotEnd) {
  script.end_throws = "a stream was not joined";
  for (int run = 0; run < 4; ++run) ExpectRunsOpByOp();
  EXPECT_EQ(script.begun, 1);
  EXPECT_EQ(script.replayed, 0);
  EXPECT_THAT(rank->refusals, ElementsAre(graph.name + ": a stream was not joined"));
}

TEST_F(Replays, FailTheRunIfTheDeviceRefusesAReplay) {
  Run();
  script.replay_throws = "the device is lost";
  EXPECT_THROW(Run(), std::runtime_error);
  script.replay_throws = "";
  Run();
  EXPECT_EQ(rank->recordings, 1);
  EXPECT_EQ(rank->replays, 1);
}

class ReplaysOfTheFirstStage : public Replays {
 protected:
  ReplaysOfTheFirstStage() : Replays(FirstStage()) {}
};

TEST_F(ReplaysOfTheFirstStage, EndTheRecordingIfAnOpThrows) {
  ExpectRunsOpByOp();
  const std::vector<at::Tensor> tokens = {data.inputs[0].add(kVocabulary)};
  rank->memory.insert(tokens[0].storage().data());  // so that they are read where they are
  script.end_throws = "the recording is invalid";
  EXPECT_ANY_THROW(Run(tokens));
  EXPECT_EQ(script.ended, 1);
  EXPECT_THAT(rank->refusals, ElementsAre(HasSubstr("out of range")));
  ExpectRunsOpByOp();
  EXPECT_EQ(script.begun, 1);
}

}  // namespace
}  // namespace penstock::testing
