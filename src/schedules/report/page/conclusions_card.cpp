#include "report/page/conclusions_card.h"

#include <algorithm>
#include <array>

#include "base/index.h"
#include "report/conclusions.h"
#include "report/markup.h"
#include "report/page/page_assets.h"
#include "report/page/page_parts.h"

namespace penstock {
namespace {

struct Word {
  std::string_view name, meaning;
};

constexpr std::array kFigures = {
    Word{"makespan",
         "the time from the first start to the last end of any action, transfers included"},
    Word{"bubble", "the share of the makespan in which the busiest rank is idle"},
    Word{"span bubble",
         "the same without the time before a rank's first action and after its last one"},
    Word{"peak memory", "the most that a rank holds, of the worst rank"},
    Word{"critical path",
         "the chain of actions that determines the makespan; shortening anything else changes "
         "nothing"}};

// In the order of BubbleCause.
constexpr std::array<std::string_view, kBubbleCauses> kCauses = {
    "the rank has not begun a backward yet: the pipeline fills. More microbatches or chunks make "
    "it a smaller part",
    "the rank has no forward left: the pipeline drains. Schedules that run W late fill it",
    "the input is computed, and its message is in flight",
    "the rank waits for its own transfer or collective",
    "the rank waits for another rank's action in between, as of a slower stage",
    "a forward is ready, but its activations do not fit into the memory limit"};

std::string Entry(std::string_view name, std::string_view meaning) {
  return fmt::format("<dt>{}</dt><dd>{}</dd>", EscapeMarkup(name), EscapeMarkup(meaning));
}

std::string Link(std::string_view page, std::string_view name) {
  return fmt::format(R"(<a href="{}/{}">{}</a>)", EscapeMarkup(kSite), page, name);
}

}  // namespace

std::string CommandHtml(std::string_view command, std::string_view title) {
  return R"(<div class="command">)" + TextHtml(command, title) +
         R"(<button type="button" class="copy">Copy</button></div>)";
}

std::string PassageCard(const Passage& passage) {
  return CardHtml(passage.title, passage.is_command ? CommandHtml(passage.text, passage.title)
                                                    : TextHtml(passage.text, passage.title));
}

std::string ConclusionsCard(const ReportInput& input, std::span<const ReportRun> runs) {
  std::string html;
  for (const std::string& sentence : Conclusions(input, runs)) {
    html += "<p>" + EscapeMarkup(sentence) + "</p>";
  }
  if (input.advice) {
    html += "<p>" + EscapeMarkup(input.advice->text) + ":</p>" +
            CommandHtml(input.advice->command, "Command to try next");
  }
  return html.empty() ? html : R"(<section class="card conclusions">)" + html + "</section>\n";
}

std::string WordsCard(const ReportInput& input) {
  TimeByCause times{};
  for (const ReportRun& run : input.runs) {
    if (!run.explanation) continue;
    const TimeByCause own = TotalsOf(run.explanation->bubbles);
    for (std::size_t i = 0; i < own.size(); ++i) times[i] += own[i];
  }
  std::string html = "<details class=\"card\"><summary>What these words mean</summary><dl>";
  for (const Word& word : kFigures) html += Entry(word.name, word.meaning);
  for (std::size_t i = 0; i < times.size(); ++i) {
    if (times[i] > 0) html += Entry(NameOf(static_cast<BubbleCause>(i)), kCauses[i]);
  }
  html += "</dl>";
  if (*kSite != '\0') {
    html += "<p>" + Link("docs/reports.html", "Reports") + " - " +
            Link("docs/glossary.html", "Glossary") + " - " +
            Link("docs/which_schedule.html", "Which schedule should I use?") + " - " +
            Link("playground.html", "Playground") + "</p>";
  }
  return html + "</details>\n";
}

}  // namespace penstock
