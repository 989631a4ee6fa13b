// The runs with jitter in ScheduleOptions.
#include "simulate/noise/jitter.h"

#include "base/text/numbers.h"
#include "cli/options/option_values.h"
#include "cli/options/schedule_options.h"

namespace penstock {
namespace {

constexpr int kMostRuns = 1'000'000;

}  // namespace

void ScheduleOptions::DefineJitter(CLI::App& app) {
  app.option_defaults()->group("Jitter");
  AddText(app, "--jitter", jitter,
          "Also run with random times (lognormal, the costs are their means) and add mean, median "
          "and 95th percentile of the makespan. CV is the standard deviation over the mean")
      ->type_name("CV");
  AddInt(app, "--seed", seed, "Seed of the random times (default 0)");
  AddInt(app, "--runs", runs,
         fmt::format("Number of runs with jitter (default {})", MonteCarloOptions().runs));
}

Result<std::optional<MonteCarloOptions>> ScheduleOptions::RunsWithJitter() const {
  MonteCarloOptions asked;
  asked.runs = runs.value_or(asked.runs);
  if (asked.runs < 1 || asked.runs > kMostRuns) {
    return InvalidArgument("--runs {}: give 1 to {}", asked.runs, kMostRuns);
  }
  if (seed.value_or(0) < 0) return InvalidArgument("--seed {}: at least 0", *seed);
  asked.seed = static_cast<std::uint64_t>(seed.value_or(0));
  if (!jitter) return std::optional<MonteCarloOptions>();
  const auto variation = ParseNumber(*jitter);
  if (!variation) return InvalidArgument("--jitter {}", variation.error().line());
  if (*variation < 0 || *variation > kMostJitter) {
    return InvalidArgument("--jitter {}: give 0 to {}", *variation, kMostJitter);
  }
  asked.jitter = *variation;
  return can_jitter ? std::optional(asked) : std::nullopt;
}

}  // namespace penstock
