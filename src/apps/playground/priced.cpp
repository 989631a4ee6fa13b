#include "playground/priced.h"

#include <utility>

#include "scenario/price/unused_fields.h"
#include "schedule/text/text.h"

namespace penstock::playground {
namespace {

constexpr Purpose kPurpose = {};

Result<Subject> ReadText(const Question& question) {
  Subject subject;
  PENSTOCK_TRY(subject.schedule, ParseCsv(*question.csv));
  if (static_cast<double>(subject.schedule.action_count()) > kMostActions) {
    return InvalidArgument("the playground shows at most {:.0f} actions, the text has {}",
                           kMostActions, subject.schedule.action_count());
  }
  subject.faults = Validate(subject.schedule);
  if (!subject.faults.empty()) return subject;
  PENSTOCK_TRY(subject.priced, PriceOther(question, subject.schedule));
  return subject;
}

}  // namespace

Scenario WithoutShape(Scenario scenario) {
  scenario.schedules.clear();
  scenario.ranks = scenario.chunks = scenario.microbatches = std::nullopt;
  scenario.group = scenario.slices = scenario.waves = scenario.steps = std::nullopt;
  scenario.split = std::nullopt;
  scenario.objective = std::nullopt;
  return scenario;
}

Result<PricedSchedule> PriceOther(const Question& question, Schedule schedule) {
  PENSTOCK_TRY(PricedSchedule priced, Price(WithoutShape(question.scenario), std::move(schedule)));
  priced.label = "edited";
  return priced;
}

Result<Subject> SubjectOf(const Question& question) {
  if (question.csv) return ReadText(question);
  const Scenario& scenario = question.scenario;
  if (scenario.schedules.empty()) return InvalidArgument("name a schedule, or give one as text");
  PENSTOCK_TRY_STATUS(RefuseUnused(scenario, kPurpose));
  PENSTOCK_TRY(std::vector<PricedSchedule> built, Build(scenario, kPurpose));
  Subject subject;
  subject.priced = std::move(built.front());
  subject.schedule = subject.priced.schedule;
  if (scenario.pass.empty()) return subject;
  Question before = question;
  before.scenario.pass.clear();
  before.scenario.price.clear();
  PENSTOCK_TRY(PricedSchedule plain,
               BuildOne(before.scenario, before.scenario.schedules.front(), kPurpose));
  subject.schedule = std::move(plain.schedule);
  return subject;
}

}  // namespace penstock::playground
