#include <algorithm>

#include "calibrate/fit/fit_runs.h"

namespace penstock {
namespace {

constexpr double kWorthwhile = 0.02;   // the decrease of the error for which a constant is added
constexpr std::size_t kMostRows = 64;  // of a choice among constants
constexpr std::size_t kMostTried = 3;  // candidates that are fitted, not only estimated
// A choice among constants counts one as determined if its standard error is at most this part of
// its value, or of its range if it may be 0.
constexpr double kDetermined = 0.25;

// Whether the rows determine all values: none is at its bound or too uncertain.
bool AreDetermined(const Fit& fit) {
  return std::ranges::all_of(fit.values, [](const ConstantValue& value) {
    const ScenarioField& field = *value.field;
    const double slope = SlopeOf(field, ToSearch(field, value.value));
    return !value.at_bound && value.error <= kDetermined * slope;
  });
}

struct Addition {
  std::vector<FitConstant> constants;  // with the one that is added
  double error = 0;                    // of rows that are left out
  Fit fit = {};
};

class ConstantChoice {
 public:
  // Ownership: refers to all arguments.
  ConstantChoice(const TimedRuns& timed, const std::vector<std::string_view>& per,
                 const std::function<void(double)>& progress)
      : timed_(timed), current_(timed), per_(per), progress_(progress) {}

  // Returns the constants, in the order in which they decrease the error; empty if the rows
  // determine none.
  std::vector<FitConstant> Choose() {
    std::vector<FitConstant> chosen;
    double least_error = 0;
    while (auto best = BestAddition(chosen)) {
      if (!chosen.empty() && best->error > least_error * (1 - kWorthwhile)) break;
      least_error = best->error;
      chosen = std::move(best->constants);
      SetIn(current_.runs, best->fit);
      rest_ /= 2;
    }
    return chosen;
  }

 private:
  // Estimates all additions, and fits the best ones.
  std::optional<Addition> BestAddition(const std::vector<FitConstant>& chosen) {
    std::vector<Addition> additions = Additions(chosen);
    for (std::size_t i = 0; i < additions.size(); ++i) {
      const FitProblem problem(current_.runs, current_.measured, additions[i].constants);
      additions[i].error = LinearError(problem);
      Progress(i, additions.size() + kMostTried);
    }
    std::ranges::stable_sort(additions, {}, &Addition::error);
    std::optional<Addition> best;
    std::size_t tried = 0;
    for (Addition& each : additions) {
      if (tried == kMostTried) break;
      const auto fit =
          FitRuns({current_.runs, current_.measured, timed_.before}, each.constants, 0);
      if (!fit || !fit->cross_validated || !AreDetermined(*fit)) continue;
      Progress(additions.size() + ++tried, additions.size() + kMostTried);
      each.fit = *fit;
      each.error = *fit->cross_validated;
      if (!best || each.error < best->error) best = each;
    }
    return best;
  }

  std::vector<Addition> Additions(const std::vector<FitConstant>& chosen) const {
    std::vector<Addition> additions;
    for (const ScenarioField* field : MachineFields()) {
      const bool has =
          std::ranges::any_of(chosen, [&](const FitConstant& each) { return each.field == field; });
      if (has) continue;
      for (const std::vector<std::string_view>& columns :
           per_.empty() ? UsualColumns(*field) : std::vector<std::vector<std::string_view>>{per_}) {
        std::vector<FitConstant> with = chosen;
        with.push_back({field, columns});
        const std::size_t values =
            FitProblem(current_.runs, current_.measured, with).parameters().size();
        if (values < current_.runs.size()) additions.push_back({std::move(with)});
      }
    }
    return additions;
  }

  // Nobody knows how many constants there will be: each takes half of the rest.
  void Progress(std::size_t done, std::size_t all) const {
    progress_(1 - rest_ + rest_ / 2 * static_cast<double>(done) / static_cast<double>(all));
  }

  const TimedRuns& timed_;
  TimedRuns current_;  // with the constants that are chosen
  const std::vector<std::string_view>& per_;
  const std::function<void(double)>& progress_;
  double rest_ = 1;
};

}  // namespace

Result<Fit> FitDeterminedConstants(const PricedRuns& priced,
                                   const std::vector<std::string_view>& per,
                                   const std::function<void(double)>& progress) {
  PENSTOCK_TRY(const TimedRuns some, Timed(priced, kMostRows));
  const std::vector<FitConstant> chosen = ConstantChoice(some, per, progress).Choose();
  if (chosen.empty()) {
    return InvalidArgument(
        "the rows determine no constant to a quarter of its value: give more rows, or name what "
        "to fit");
  }
  PENSTOCK_TRY(Fit fit, FitConstants(priced, chosen));
  // Constants that predict other rows worse than no fit would not help.
  fit.is_kept = fit.cross_validated && *fit.cross_validated < fit.mape_before;
  if (!fit.is_kept) fit.runs = priced.runs;
  return fit;
}

}  // namespace penstock
