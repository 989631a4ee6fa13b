#include "playground/playground.h"

#include <utility>

#include "base/text/quote.h"
#include "playground/answer.h"
#include "playground/compare.h"
#include "playground/edit.h"
#include "playground/priced.h"
#include "playground/question.h"
#include "schedule/text/text.h"

namespace penstock::playground {
namespace {

// What `show` answers to the same question with another order of the actions.
Result<std::string> ShowOther(const Question& question, Schedule schedule) {
  Question other = question;
  other.csv = WriteCsv(schedule);
  Subject subject;
  subject.faults = Validate(schedule);
  if (!subject.faults.empty()) return TextOf(FaultsJson(subject.faults));
  PENSTOCK_TRY(subject.priced, PriceOther(other, schedule));
  subject.schedule = std::move(schedule);
  return ShowText(other, std::move(subject));
}

Status RefusePasses(const Question& question) {
  if (question.scenario.pass.empty()) return {};
  return InvalidParameter("pass", ": remove the passes before you move actions by hand");
}

Result<std::string> AnswerAbout(const Question& question, Subject subject) {
  if (question.ask == "show") return ShowText(question, std::move(subject));
  if (question.ask == "name") return TextOf({{"names", NamesOf(question, subject.schedule)}});
  PENSTOCK_TRY_STATUS(RefusePasses(question));
  if (question.ask == "improve") {
    auto better = Improved(subject.priced, subject.schedule);
    if (!better) return TextOf({{"none", true}});
    return ShowOther(question, std::move(*better));
  }
  PENSTOCK_TRY(const Move move, ReadMove(question.rest, subject.schedule));
  if (question.ask == "places") return TextOf(PlacesJson(subject, move.rank, move.from));
  Apply(move, subject.schedule);
  return ShowOther(question, std::move(subject.schedule));
}

Result<std::string> Answer(std::string_view text) {
  PENSTOCK_TRY(const Question question, ReadQuestion(text));
  if (question.ask == "catalog") return TextOf(CatalogJson());
  if (question.ask == "figures") {
    PENSTOCK_TRY(const Json figures, FiguresJson(question));
    return TextOf(figures);
  }
  for (const char* const known : {"show", "name", "improve", "places", "move"}) {
    if (question.ask != known) continue;
    PENSTOCK_TRY(Subject subject, SubjectOf(question));
    if (!subject.faults.empty()) return TextOf(FaultsJson(subject.faults));
    return AnswerAbout(question, std::move(subject));
  }
  return InvalidArgument("there is no question {}", Quote(question.ask));
}

}  // namespace

std::string Ask(std::string_view question) {
  const auto answer = Answer(question);
  return answer ? *answer : TextOf(ErrorJson(answer.error()));
}

}  // namespace penstock::playground
