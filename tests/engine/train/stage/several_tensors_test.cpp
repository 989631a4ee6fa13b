// Stages that exchange several tensors, some of them integers, train with the same bits as one
// module under plain autograd.
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/nn/functional/loss.h>

#include <map>

#include "model/model.h"
#include "runtime/executor/run.h"
#include "schedule/catalog.h"
#include "tests/engine/runtime/count_allocations.h"
#include "tests/engine/train/temp_folder.h"
#include "train/compiled/compiled.h"
#include "train/message/tensor_message.h"
#include "train/stage/torch_stage.h"

namespace penstock {
namespace {

constexpr std::int64_t kVocabulary = 11, kDim = 6, kBatch = 2, kSequence = 5;
constexpr int kTensorMicrobatches = 4, kTensorSteps = 3;

using Tensors = std::vector<at::Tensor>;
using In = std::span<const at::Tensor>;

// Sends hidden states and gates, which have gradients, and token ids and a mask, which do not.
class SeveralStage : public StageModule {
 public:
  at::Tensor forward(at::Tensor input) override { return ForwardAll({&input, 1}).front(); }

 protected:
  at::Tensor Weight(const char* name, std::int64_t rows) {
    at::manual_seed(std::hash<std::string>()(name));
    return register_parameter(name, at::randn({rows, kDim}) * 0.5);
  }
};

class FirstStage final : public SeveralStage {
 public:
  Tensors ForwardAll(In inputs) override {
    const at::Tensor hidden = at::embedding(table_, inputs[0]);
    const at::Tensor mask = (inputs[0] > 3).to(at::kFloat).unsqueeze(-1);
    return {hidden, inputs[0], at::sigmoid(hidden.matmul(gate_)), mask};
  }

 private:
  at::Tensor table_ = Weight("first_table", kVocabulary);
  at::Tensor gate_ = Weight("first_gate", kDim);
};

class MiddleStage final : public SeveralStage {
 public:
  Tensors ForwardAll(In inputs) override {
    const at::Tensor &hidden = inputs[0], &gate = inputs[2], &mask = inputs[3];
    return {hidden + at::tanh(hidden.matmul(up_)) * gate * mask, inputs[1],
            gate * at::sigmoid(hidden.matmul(gate_)).transpose(0, 1).contiguous().transpose(0, 1),
            mask};
  }

 private:
  at::Tensor up_ = Weight("middle_up", kDim);
  at::Tensor gate_ = Weight("middle_gate", kDim);
};

class LastStage final : public SeveralStage {
 public:
  Tensors ForwardAll(In inputs) override {
    const at::Tensor hidden = inputs[0] * inputs[2] + at::embedding(again_, inputs[1]) * inputs[3];
    return {hidden.matmul(head_.t())};
  }

 private:
  at::Tensor head_ = Weight("last_head", kVocabulary);
  at::Tensor again_ = Weight("last_again", kVocabulary);
};

std::vector<std::shared_ptr<StageModule>> Model() {
  return {std::make_shared<FirstStage>(), std::make_shared<MiddleStage>(),
          std::make_shared<LastStage>()};
}

// Returns the tokens (0) or targets (1) of a step's microbatch.
at::Tensor BatchPart(std::int64_t step, int microbatch, int which) {
  at::manual_seed(static_cast<std::uint64_t>(step * 100 + microbatch * 2 + which));
  return torch::randint(kVocabulary, {kBatch, kSequence}, torch::kLong);
}

// Fills the same tensors in every step, like a run's source.
std::function<at::Tensor(std::int64_t, int)> Source(int which) {
  std::vector<Tensors> all(kTensorSteps);
  for (int step = 0; step < kTensorSteps; ++step) {
    for (int microbatch = 0; microbatch < kTensorMicrobatches; ++microbatch)
      all[step].push_back(BatchPart(step, microbatch, which));
  }
  Tensors buffers;
  for (const at::Tensor& each : all[0]) buffers.push_back(at::empty_like(each));
  return [=](std::int64_t step, int microbatch) {
    const std::size_t index = microbatch;
    at::Tensor buffer = buffers[index];
    return buffer.copy_(all[step][index]);
  };
}

struct TrainedTensors {
  std::vector<double> losses;
  std::map<std::string, at::Tensor> parameters;
};

TrainedTensors ByAutograd() {
  const auto model = Model();
  TrainedTensors trained;
  for (int step = 0; step < kTensorSteps; ++step) {
    double sum = 0;
    for (int microbatch = 0; microbatch < kTensorMicrobatches; ++microbatch) {
      Tensors values = {BatchPart(step, microbatch, 0)};
      for (const auto& stage : model) values = stage->ForwardAll(values);
      const at::Tensor loss = torch::nn::functional::cross_entropy(
          values[0].reshape({-1, kVocabulary}), BatchPart(step, microbatch, 1).reshape({-1}));
      (loss / kTensorMicrobatches).backward();
      sum += loss.item<float>();
    }
    trained.losses.push_back(sum / kTensorMicrobatches);
    const torch::NoGradGuard no_gradients;
    for (const auto& stage : model) {
      for (at::Tensor& parameter : stage->parameters()) parameter.sub_(parameter.grad(), 0.1);
      stage->zero_grad();
    }
  }
  for (const auto& stage : model) {
    for (const auto& each : stage->named_parameters())
      trained.parameters[each.key()] = each.value();
  }
  return trained;
}

struct TensorsCase {
  const char* schedule;
  bool compiled = false;  // from a file
};
void PrintTo(const TensorsCase& value, std::ostream* out) { *out << value.schedule; }

std::vector<std::unique_ptr<TorchStage>> Stages(
    const std::vector<std::shared_ptr<StageModule>>& model, const TensorsCase& way) {
  const TempFolder folder;
  std::vector<std::unique_ptr<TorchStage>> stages;
  StageExamples examples{{BatchPart(0, 0, 0)}, {BatchPart(0, 0, 1)}};
  const BatchSource source{Source(0), Source(1)};
  for (std::size_t i = 0; i < model.size(); ++i) {
    TorchStageOptions options;
    options.schedule.first = i == 0;
    options.schedule.last = i + 1 == model.size();
    options.schedule.microbatches = kTensorMicrobatches;
    if (way.compiled) {
      const auto program = CompileStage(MakeStageSpec(model[i], examples, options), {}).value();
      EXPECT_TRUE(SaveStageProgram(folder / "stage", program, {}));
      options.programs = std::make_shared<const std::vector<StageProgram>>(
          1, LoadStageProgram(folder / "stage", {}).value());
    }
    auto made = TorchStage::Make(model[i], examples, source, options,
                                 [](std::vector<NamedParameter>& parameters) {
                                   for (NamedParameter& each : parameters) {
                                     each.value.sub_(each.gradient, 0.1);
                                   }
                                 });
    if (!made) throw std::runtime_error(made.error().line());
    stages.push_back(*std::move(made));
    examples.inputs = stages.back()->ExampleOutputs();
  }
  return stages;
}

class SeveralTensors : public ::testing::TestWithParam<TensorsCase> {};

TEST_P(SeveralTensors, TrainLikeAutograd) {
  at::set_num_threads(1);
  const auto model = Model();
  const auto stages = Stages(model, GetParam());
  std::vector<Stage*> pointers;
  for (const auto& stage : stages) pointers.push_back(stage.get());

  ScheduleParams params = {.ranks = 3, .microbatches = kTensorMicrobatches};
  TrainedTensors trained;
  RunOptions options = {.steps = kTensorSteps};
  options.on_thread_start = [](int) { at::set_num_threads(1); };
  options.on_step = [&](int rank, std::int64_t) {
    if (rank == 2) trained.losses.push_back(stages.back()->StepLoss());
  };
  const Status status = RunRanks(Generate(GetParam().schedule, params).value(), pointers, options);
  ASSERT_TRUE(status) << status.error().line();

  const TrainedTensors expected = ByAutograd();
  EXPECT_EQ(trained.losses, expected.losses);
  for (const auto& stage : model) {
    for (const auto& each : stage->named_parameters()) {
      EXPECT_TRUE(at::equal(each.value(), expected.parameters.at(each.key()))) << each.key();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Train, SeveralTensors,
                         ::testing::Values(TensorsCase{"1f1b"}, TensorsCase{"zb-h1"},
                                           TensorsCase{"1f1b", true}),
                         [](const auto& info) {
                           std::string name = info.param.schedule;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name + (info.param.compiled ? "_compiled" : "");
                         });

TEST(TorchStage, ExampleOutputsRequireGradientsWhereTheyHaveThem) {
  const auto stages = Stages(Model(), {"1f1b"});
  for (const std::size_t i : {0U, 1U}) {
    std::vector<bool> has_gradient;
    for (const at::Tensor& each : stages[i]->ExampleOutputs()) {
      has_gradient.push_back(each.requires_grad());
    }
    EXPECT_EQ(has_gradient, (std::vector<bool>{true, false, true, false})) << i;
  }
  EXPECT_TRUE(stages[2]->ExampleOutputs().empty());
}

class TensorMessage : public ::testing::TestWithParam<std::size_t> {
 protected:
  TensorMessage() {
    const Tensors kinds = {at::randn({3, 5}), at::arange(7),     at::randn({3}).to(at::kBFloat16),
                           at::empty({0, 2}), at::full({}, 2.5), at::randn({65}) > 0};
    for (std::size_t i = 0; i < GetParam(); ++i) {
      tensors_.push_back(kinds[i]);
      types_.push_back(TypeOf(kinds[i]));
    }
  }

  Tensors Received(Message message) {
    Tensors received(types_.size());
    FromMessage(std::move(message), types_, received);
    return received;
  }

  Tensors tensors_;
  std::vector<TensorType> types_;
};

TEST_P(TensorMessage, MovesTensors) {
  Tensors sent = tensors_;
  const Tensors received = Received(ToMessage(sent));
  ASSERT_EQ(received.size(), tensors_.size());
  for (std::size_t i = 0; i < received.size(); ++i) {
    EXPECT_FALSE(sent[i].defined());
    EXPECT_TRUE(received[i].is_same(tensors_[i]));
  }
}

TEST_P(TensorMessage, PreservesTensorsAsBytes) {
  Tensors sent = tensors_;
  const Tensors received = Received(Packed(ToMessage(sent)));
  ASSERT_EQ(received.size(), tensors_.size());
  for (std::size_t i = 0; i < received.size(); ++i) {
    EXPECT_TRUE(at::equal(received[i], tensors_[i])) << i;
    EXPECT_EQ(received[i].scalar_type(), tensors_[i].scalar_type()) << i;
  }
}

TEST_P(TensorMessage, RefusesOtherTypes) {
  Tensors sent = tensors_;
  types_.push_back(TypeOf(at::randn({9})));
  EXPECT_THROW(Received(Packed(ToMessage(sent))), std::runtime_error);
  sent = tensors_;
  EXPECT_THROW(Received(ToMessage(sent)), std::runtime_error);
  EXPECT_EQ(tensors_.empty() ? 1 : tensors_[0].use_count(), 1);  // freed, not leaked
}

TEST(OneTensorMessage, AllocatesNothing) {
  Tensors tensor = {at::randn({3, 5})};
  const std::vector<TensorType> types = {TypeOf(tensor[0])};
  const std::int64_t before = AllocationsOfThisThread();
  FromMessage(ToMessage(tensor), types, tensor);
  EXPECT_EQ(AllocationsOfThisThread(), before);
  EXPECT_TRUE(tensor[0].defined());
}

INSTANTIATE_TEST_SUITE_P(Counts, TensorMessage, ::testing::Values(0, 1, 2, 6));

}  // namespace
}  // namespace penstock
