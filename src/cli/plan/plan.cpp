// penstock plan: how to train a model on a cluster, or the best schedule for costs and a memory
// limit.
#include <fmt/ranges.h>

#include <algorithm>
#include <tuple>

#include "base/text/numbers.h"
#include "base/text/quote.h"
#include "base/text/split.h"
#include "base/units.h"
#include "cli/command/command.h"
#include "cli/options/option_values.h"
#include "cli/options/output_format.h"
#include "cli/options/scenario_options.h"
#include "cli/plan/model_plan.h"
#include "cli/plan/schedule_plan.h"
#include "plan/search/framework.h"
#include "scenario/spelling.h"

namespace penstock {
namespace {

constexpr const char* kOfModels = "With a model";
constexpr const char* kOfCosts = "Without a model";

class PlanCommand : public Command {
 public:
  std::string Name() const override { return "plan"; }
  std::string Summary() const override {
    return "Find how to train a model on a cluster, or the best schedule for a memory limit";
  }
  void Define(CLI::App& app) override {
    Scenario& scenario = options_.scenario;
    AddInt(app, "-p,--ranks", scenario.ranks, "Pipeline ranks", {1});
    AddInt(app, "-m,--microbatches", scenario.microbatches, "Microbatches per step", {1});
    AddText(app, "--chunks", chunks_,
            "Numbers of stages per rank that are allowed (default 1,2,3,4; with a model 1 to 8)")
        ->type_name("N,...");
    AddText(app, "--memory-limit", scenario.memory_limit,
            "Memory limit per rank: activations of one rank and microbatch; with a model bytes of "
            "a device (default 95% of its memory)")
        ->type_name("LIMIT");
    AddText(app, "--overlap", scenario.overlap,
            "Time of an overlapped forward and backward: max, sum (default) or a factor of F + B");
    AddText(app, "-o,--output", output_, "Write the best schedule to this CSV file")
        ->type_name("FILE");
    format_.Define(app);
    DefineForModels(app);
    DefineForCosts(app);
    options_.Define(app, FieldGroup::kModel);
    app.footer(
        "With a model, every dimension that is not given is searched: tensor, context, pipeline, "
        "data and expert ranks, ZeRO, samples of a microbatch, recomputation, schedule, chunks and "
        "the layers of stages.");
  }

  Result<int> Run() override {
    PENSTOCK_TRY(const OutputFormat format, format_.Format());
    std::vector<int> chunks;
    if (chunks_) {
      PENSTOCK_TRY(chunks, ReadChunks(*chunks_));
    }
    if (comm_) PENSTOCK_TRY_STATUS(SetText(*FindField("comm"), *comm_, options_.scenario));
    PENSTOCK_TRY_STATUS(RefuseOthers());
    if (const Status ranges = CheckRanges(options_.scenario); !ranges) {
      return tl::unexpected(options_.AsGiven(ranges.error()));
    }
    auto planned = options_.scenario.model
                       ? PlanOfModel(std::move(chunks), format)
                       : PlanSchedules(options_.scenario, chunks, output_, format);
    if (planned) return planned;
    Error error = std::move(planned).error();
    if (error.parameter == "global_batch") {  // no field of the scenario
      return InvalidArgument("--global-batch {}", error.message);
    }
    return tl::unexpected(options_.AsGiven(std::move(error)));
  }

 private:
  void DefineForModels(CLI::App& app) {
    AddInt(app, "--global-batch", global_batch_, "Samples per step, of all replicas", {1})
        ->group(kOfModels);
    app.add_option("--schedule", allowed_, "Schedules that are allowed (default: all)")
        ->delimiter(',')
        ->allow_extra_args(false)
        ->type_name("NAME,...")
        ->group(kOfModels);
    app.add_option("--exclude", excluded_, "Schedules that are not")
        ->delimiter(',')
        ->allow_extra_args(false)
        ->type_name("NAME,...")
        ->group(kOfModels);
    AddText(app, "--for", framework_,
            fmt::format("Only what this framework can run: {}", fmt::join(FrameworkNames(), ", ")))
        ->type_name("FRAMEWORK")
        ->group(kOfModels);
  }

  void DefineForCosts(CLI::App& app) {
    Scenario& scenario = options_.scenario;
    AddText(app, "--cost", scenario.cost,
            "Times of F, I and W of one rank's share of a microbatch (default 1,1,1)")
        ->type_name("F,I,W")
        ->group(kOfCosts);
    AddText(app, "--comm", comm_, "Latency of a transfer between ranks")
        ->type_name("TIME")
        ->group(kOfCosts);
    AddText(app, "--objective", scenario.objective, "What to shorten: makespan (default) or span")
        ->group(kOfCosts);
  }

  // Refuses options of a model without one, and those of costs with one.
  Status RefuseOthers() const {
    const Scenario& scenario = options_.scenario;
    if (scenario.model) {
      for (const auto& [option, given] : {std::pair("--cost", scenario.cost.has_value()),
                                          {"--comm", scenario.comm.has_value()},
                                          {"--objective", scenario.objective.has_value()}}) {
        if (given) return InvalidArgument("{} has no effect with --model, which has costs", option);
      }
      return {};
    }
    for (const auto& [option, given] : {std::pair("--global-batch", global_batch_.has_value()),
                                        {"--schedule", !allowed_.empty()},
                                        {"--exclude", !excluded_.empty()},
                                        {"--for", framework_.has_value()}}) {
      if (given) return InvalidArgument("{} has no effect without --model; give one", option);
    }
    for (const ScenarioField& field : ScenarioFields()) {
      if (field.group == FieldGroup::kModel && IsGiven(field, scenario)) {
        return InvalidArgument("{} has no effect without --model; give one", OptionOf(field.name));
      }
    }
    return {};
  }

  Result<int> PlanOfModel(std::vector<int> chunks, OutputFormat format) {
    PlanQuestion question;
    question.scenario = options_.scenario;
    question.scenario.memory_limit.reset();
    // Pairs of one device's kernels rarely take less than one after the other.
    if (!question.scenario.overlap) question.scenario.overlap = "sum";
    question.chunks = std::move(chunks);
    question.schedules = allowed_;
    question.excluded = excluded_;
    PENSTOCK_TRY_STATUS(CheckNames());
    if (!global_batch_) {
      return InvalidArgument("--global-batch is missing: how many samples does a step have?");
    }
    question.global_batch = *global_batch_;
    if (options_.scenario.memory_limit) {
      const auto bytes = ParseBytes(*options_.scenario.memory_limit);
      if (!bytes || *bytes <= 0) {
        return InvalidArgument(
            "--memory-limit {}: with a model, bytes of a device are needed (70GiB)",
            Quote(*options_.scenario.memory_limit));
      }
      question.memory_limit = static_cast<double>(*bytes);
    }
    if (framework_) PENSTOCK_TRY_STATUS(Restrict(question));
    return PlanModel(std::move(question), output_, format);
  }

  Status CheckNames() const {
    for (const std::string& name : excluded_) PENSTOCK_TRY_STATUS(FindAlgorithm(name));
    for (const std::string& name : allowed_) {
      PENSTOCK_TRY(const Algorithm* algorithm, FindAlgorithm(name));
      if (algorithm->supported.steps) {
        return InvalidArgument(
            "--schedule {}: its microbatches have weights of different ages; "
            "plans keep them in step",
            name);
      }
      if (std::ranges::find(excluded_, name) == excluded_.end()) continue;
      return InvalidArgument("--exclude {}: --schedule allows it; leave one of the two out", name);
    }
    return {};
  }

  Status Restrict(PlanQuestion& question) const {
    const auto found = FindFramework(*framework_);
    if (!found) return InvalidArgument("--for {}", found.error().line());
    const Framework& framework = *found;
    if (question.schedules.empty()) question.schedules = framework.schedules;
    for (const std::string& name : question.schedules) {
      if (framework.schedules.empty() ||
          std::ranges::find(framework.schedules, name) != framework.schedules.end())
        continue;
      return InvalidArgument("--schedule {}: {} does not run it", name, framework.name);
    }
    question.most_tensor = framework.most_tensor;
    question.most_context = framework.most_context;
    question.most_zero = framework.most_zero;
    Scenario& scenario = question.scenario;
    if (!scenario.implementation) scenario.implementation = std::string(framework.implementation);
    for (const auto& [option, given, most] :
         {std::tuple("--tensor", scenario.tensor, framework.most_tensor),
          {"--context", scenario.context, framework.most_context},
          {"--zero", scenario.zero, framework.most_zero == 3 ? 0 : framework.most_zero}}) {
      if (given && most > 0 && *given > most) {
        return InvalidArgument("{} {}: {} has at most {}", option, *given, framework.name, most);
      }
    }
    return {};
  }

  static Result<std::vector<int>> ReadChunks(const std::string& text) {
    std::vector<int> chunks;
    for (const std::string& part : SplitAt(text, ',')) {
      const Result<int> number = ParseInt(part);
      if (!number || *number < 1) {
        return InvalidArgument("--chunks {}: give numbers from 1 on with commas between them: 1,2",
                               Quote(text));
      }
      chunks.push_back(*number);
    }
    return chunks;
  }

  ScenarioOptions options_;
  FormatOptions format_;
  std::optional<std::string> chunks_, comm_, framework_;
  std::optional<int> global_batch_;
  std::vector<std::string> allowed_, excluded_;
  std::string output_;
};

}  // namespace

std::unique_ptr<Command> MakePlanCommand() { return std::make_unique<PlanCommand>(); }

}  // namespace penstock
