// penstock plan: the best schedule for costs and a memory limit.
#include "base/text/numbers.h"
#include "base/text/quote.h"
#include "cli/command/command.h"
#include "cli/commands/schedule_plan.h"
#include "cli/options/option_values.h"
#include "cli/options/output_format.h"
#include "cli/options/scenario_options.h"
#include "scenario/spelling.h"

namespace penstock {
namespace {

class PlanCommand : public Command {
 public:
  std::string Name() const override { return "plan"; }
  std::string Summary() const override {
    return "Find the best schedule for a memory limit, with a lower bound";
  }
  void Define(CLI::App& app) override {
    Scenario& scenario = options_.scenario;
    AddInt(app, "-p,--ranks", scenario.ranks, "Pipeline ranks", {1});
    AddInt(app, "-m,--microbatches", scenario.microbatches, "Microbatches per step", {1});
    AddText(app, "--chunks", chunks_,
            "Numbers of stages per rank that are allowed (default 1,2,3,4)")
        ->type_name("N,...");
    AddText(app, "--cost", scenario.cost,
            "Times of F, I and W of one rank's share of a microbatch (default 1,1,1)")
        ->type_name("F,I,W");
    AddText(app, "--comm", comm_, "Latency of a transfer between ranks")->type_name("TIME");
    AddText(app, "--overlap", scenario.overlap,
            "Time of an overlapped forward and backward: max, sum (default) or a factor of F + B");
    AddText(app, "--memory-limit", scenario.memory_limit,
            "Memory limit per rank: activations of one rank and microbatch")
        ->type_name("LIMIT");
    AddText(app, "--objective", scenario.objective, "What to shorten: makespan (default) or span");
    AddText(app, "-o,--output", output_, "Write the best schedule to this CSV file")
        ->type_name("FILE");
    format_.Define(app);
  }

  Result<int> Run() override {
    PENSTOCK_TRY(const OutputFormat format, format_.Format());
    std::vector<int> chunks;
    if (chunks_) {
      PENSTOCK_TRY(chunks, ReadChunks(*chunks_));
    }
    if (comm_) PENSTOCK_TRY_STATUS(SetText(*FindField("comm"), *comm_, options_.scenario));
    auto planned = PlanSchedules(options_.scenario, chunks, output_, format);
    if (!planned) return tl::unexpected(options_.AsGiven(std::move(planned).error()));
    return planned;
  }

 private:
  static Result<std::vector<int>> ReadChunks(const std::string& text) {
    std::vector<int> chunks;
    for (std::size_t begin = 0; begin <= text.size();) {
      const std::size_t end = std::min(text.find(',', begin), text.size());
      const Result<int> number = ParseInt(text.substr(begin, end - begin));
      if (!number || *number < 1) {
        return InvalidArgument("--chunks {}: give numbers from 1 on with commas between them: 1,2",
                               Quote(text));
      }
      chunks.push_back(*number);
      begin = end + 1;
    }
    return chunks;
  }

  ScenarioOptions options_;
  FormatOptions format_;
  std::optional<std::string> chunks_, comm_;
  std::string output_;
};

}  // namespace

std::unique_ptr<Command> MakePlanCommand() { return std::make_unique<PlanCommand>(); }

}  // namespace penstock
