// penstock plan: how to train a model on a cluster, or the best schedule for costs and a memory
// limit.
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>

#include "base/result.h"
#include "base/text/numbers.h"
#include "base/text/quote.h"
#include "base/text/split.h"
#include "cli/command/command.h"
#include "cli/command/command_line.h"
#include "cli/options/option_values.h"
#include "cli/options/output_format.h"
#include "cli/options/scenario_options.h"
#include "cli/output/print_json.h"
#include "cli/output/progress_bar.h"
#include "cli/output/terminal.h"
#include "cli/plan/model_plan.h"
#include "cli/plan/plan_output.h"
#include "cli/plan/plan_page.h"
#include "cli/signals/interrupt.h"
#include "cli/values/output_folder.h"
#include "plan/figures/schedule_figures.h"
#include "plan/request/plan_request.h"
#include "plan/search/framework.h"
#include "report/table.h"
#include "schedule/text/text.h"

namespace penstock {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kBarSteps = 1000;

Table FrontTable(const SchedulePlan& plan) {
  Table table;
  table.columns = {"schedule", "chunks", "makespan", "peak memory", "above the bound"};
  for (const PlannedSchedule& planned : plan.front) {
    table.rows.push_back({planned.name, fmt::format("{}", planned.schedule.placement.chunks()),
                          fmt::format("{:.6g}", planned.makespan),
                          fmt::format("{:.6g}", planned.peak_memory),
                          FormatPercent(GapOf(planned.length, planned.lower_bound))});
  }
  return table;
}

// Searches, prints the front and the best schedule, and writes what `output` asks for. Ctrl-C ends
// the search with the best so far. Requires: the scenario has no model.
Result<int> PlanSchedules(const PlanRequest& request, const PlanOutput& output) {
  PENSTOCK_TRY(ScheduleQuestion question, ScheduleQuestionOf(request));
  const std::atomic<bool>& interrupt = CatchInterrupt();
  question.stop = [&] { return interrupt.load(); };
  const Clock::time_point begin = Clock::now();
  const auto seconds = [&] { return std::chrono::duration<double>(Clock::now() - begin).count(); };
  std::vector<Improvement> improvements;
  question.improved = [&](double length) { improvements.push_back({seconds(), length}); };
  ProgressBar bar(kBarSteps);
  question.progress = [&](double part) {
    bar.Show(static_cast<std::size_t>(part * static_cast<double>(kBarSteps)));
  };
  auto planned = PlanSchedule(question);
  ReleaseInterrupt();
  PENSTOCK_TRY(const SchedulePlan plan, std::move(planned));
  if (!output.csv.empty()) PENSTOCK_TRY_STATUS(SaveSchedule(plan.best().schedule, output.csv));
  nlohmann::ordered_json figures = FiguresOf(plan, improvements, seconds());
  if (!output.csv.empty()) figures["best"]["csv"] = output.csv;
  const Table table = FrontTable(plan);
  if (!output.page.empty()) {
    PENSTOCK_TRY_STATUS(WriteSchedulePage(question, request, plan, {figures, {table}, output}));
  }
  if (output.format == OutputFormat::kJson) {
    PrintObject(figures);
    return kExitOk;
  }
  if (output.format == OutputFormat::kCsv) {
    fmt::print("{}", FormatTableCsv(table));
    return kExitOk;
  }
  fmt::print("{}", TableText(table));
  for (const PlannedSchedule& planned : plan.front) {
    const int copies = planned.schedule.placement.replicas();
    if (copies == 1) continue;
    fmt::print("{} holds the weights of the model {} times, which is not in its peak memory\n",
               planned.name, copies);
  }
  const Schedule& best = plan.best().schedule;
  fmt::print(
      "{} ranks, {} microbatches, times in the unit of the costs: no schedule of these "
      "placements takes less than {}\n",
      best.ranks(), best.microbatches, FormatNumber(plan.lower_bound));
  if (output.csv.empty()) fmt::print("-o FILE.csv writes the last one\n");
  if (!output.csv.empty()) fmt::print("{}: {}\n", output.csv, plan.best().name);
  if (!output.page.empty()) fmt::print("wrote {}\n", output.page);
  return kExitOk;
}

constexpr const char* kOfModels = "With a model";
constexpr const char* kOfCosts = "Without a model";

class PlanCommand : public Command {
 public:
  std::string Name() const override { return "plan"; }
  std::string Summary() const override {
    return "Find how to train a model on a cluster, or the best schedule for a memory limit";
  }
  void Define(CLI::App& app) override {
    app_ = &app;
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
    AddText(app, "--for", request_.framework,
            fmt::format("What is to run the plan: {} (default penstock, or what has the kernels of "
                        "--implementation)",
                        fmt::join(FrameworkNames(), ", ")))
        ->type_name("FRAMEWORK");
    AddText(app, "--overlap", scenario.overlap,
            "Time of an overlapped forward and backward: max, sum (default) or a factor of F + B");
    AddText(app, "-o,--output", output_, "Write the best schedule to this CSV file")
        ->type_name("FILE");
    AddText(app, "--report", page_, "Write a page: the front as a chart, and each plan's timeline")
        ->type_name("FILE.html");
    format_.Define(app);
    DefineForModels(app);
    DefineForCosts(app);
    options_.Define(app, FieldGroup::kModel);
    app.footer(
        "With a model, every dimension that is not given is searched: tensor, context, pipeline, "
        "data and expert ranks, ZeRO, samples of a microbatch, recomputation, offloading, "
        "schedule, "
        "chunks and "
        "the layers of stages.");
  }

  Result<int> Run() override {
    PENSTOCK_TRY(const OutputFormat format, format_.Format());
    PENSTOCK_TRY_STATUS(CheckFiles());
    const PlanOutput output = {format, output_, configs_, page_, CommandLine(Name(), *app_)};
    if (chunks_) {
      PENSTOCK_TRY(request_.chunks, ReadChunks(*chunks_));
    }
    request_.scenario = options_.scenario;
    if (comm_) PENSTOCK_TRY_STATUS(SetText(*FindField("comm"), *comm_, request_.scenario));
    if (!configs_.empty() && !options_.scenario.model) {
      return InvalidArgument("--configs has no effect without --model; give one");
    }
    auto planned =
        options_.scenario.model ? PlanModel(request_, output) : PlanSchedules(request_, output);
    if (!planned) return tl::unexpected(options_.AsGiven(std::move(planned).error()));
    return planned;
  }

 private:
  void DefineForModels(CLI::App& app) {
    AddInt(app, "--global-batch", request_.global_batch, "Samples per step, of all replicas", {1})
        ->group(kOfModels);
    AddText(app, "--tokens", request_.tokens,
            "Tokens that a run trains (15T, 300B): adds its days to each plan")
        ->type_name("COUNT")
        ->group(kOfModels);
    app.add_option("--price-per-hour", request_.price_per_hour,
                   "Price of a device per hour, in any currency: adds what these days cost")
        ->type_name("X")
        ->group(kOfModels);
    app.add_option("--schedule", request_.schedules, "Schedules that are allowed (default: all)")
        ->delimiter(',')
        ->allow_extra_args(false)
        ->type_name("NAME,...")
        ->group(kOfModels);
    app.add_option("--exclude", request_.excluded, "Schedules that are not")
        ->delimiter(',')
        ->allow_extra_args(false)
        ->type_name("NAME,...")
        ->group(kOfModels);
    app.add_option("--precisions", request_.precisions,
                   "Precisions that are allowed (default: only --precision)")
        ->delimiter(',')
        ->allow_extra_args(false)
        ->type_name("DTYPE,...")
        ->group(kOfModels);
    AddText(app, "--configs", configs_,
            "Write the fastest plan as configurations that run it into this folder")
        ->type_name("FOLDER")
        ->group(kOfModels);
    AddInt(app, "--samples", request_.samples,
           "How sure the choice is: price the best plans again with this many samples of the "
           "constants of the machine, which are uncertain",
           {1})
        ->group(kOfModels);
    AddInt(app, "--seed", request_.seed, "Seed of the samples (default 1)", {0})->group(kOfModels);
    app.add_option("--uncertainty", request_.uncertainty,
                   "Standard deviations of constants, as parts of their values "
                   "(link_efficiency=0.1; default: the errors in --machine)")
        ->delimiter(',')
        ->allow_extra_args(false)
        ->type_name("NAME=X,...")
        ->group(kOfModels);
  }

  void DefineForCosts(CLI::App& app) {
    Scenario& scenario = options_.scenario;
    AddText(app, "--cost", scenario.cost,
            "Times of F, I and W of one rank's share of a microbatch (default 1,1,1)")
        ->type_name("F,I,W")
        ->group(kOfCosts);
    AddText(app, "--costs", request_.costs,
            "Costs of layers in a configuration of 'penstock simulate', such as the measured.yaml "
            "of a recorded run")
        ->type_name("FILE.yaml")
        ->group(kOfCosts);
    AddText(app, "--comm", comm_, "Latency of a transfer between ranks")
        ->type_name("TIME")
        ->group(kOfCosts);
    AddText(app, "--objective", scenario.objective, "What to shorten: makespan (default) or span")
        ->group(kOfCosts);
  }

  // Refuses files of another kind before the search.
  Status CheckFiles() const {
    if (!page_.empty() && !page_.ends_with(".html")) {
      return InvalidArgument("--report {}: a page is written; give a file ending in .html", page_);
    }
    if (output_.ends_with(".html")) {
      return InvalidArgument("--output {}: a schedule is written as CSV; --report writes a page",
                             output_);
    }
    if (!output_.empty()) PENSTOCK_TRY_STATUS(CheckFolderOf("--output", output_));
    if (!page_.empty()) PENSTOCK_TRY_STATUS(CheckFolderOf("--report", page_));
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
  PlanRequest request_;
  std::optional<std::string> chunks_, comm_;
  std::string output_, configs_, page_;
  const CLI::App* app_ = nullptr;
};

}  // namespace

std::unique_ptr<Command> MakePlanCommand() { return std::make_unique<PlanCommand>(); }

}  // namespace penstock
