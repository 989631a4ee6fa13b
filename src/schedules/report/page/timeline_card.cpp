#include "report/page/timeline_card.h"

#include <algorithm>
#include <initializer_list>
#include <set>
#include <utility>

#include "base/index.h"
#include "report/markup.h"
#include "report/page/page_assets.h"
#include "report/page/page_data.h"
#include "report/page/page_parts.h"
#include "report/paper.h"
#include "report/time_use.h"

namespace penstock {
namespace {

// Why the ranks of a run are idle, as parts of their time: "idle: warm-up 9.1%, drain 9.1%".
std::string IdleText(const ReportRun& run) {
  if (!run.explanation) return "";
  const auto& bubbles = run.explanation->bubbles;
  const TimeByCause own = TotalsOf(bubbles);
  const double all = EndOf(*run.timeline) * static_cast<double>(bubbles.size());
  std::string text;
  for (std::size_t i = 0; i < own.size(); ++i) {
    if (own[i] == 0) continue;
    text += fmt::format("{} {} {}", text.empty() ? "; idle:" : ",",
                        NameOf(static_cast<BubbleCause>(i)), FormatPercent(own[i] / all));
  }
  return text;
}

// Why ranks are idle in some run. The captions of the runs have the parts of the time.
std::string CausesLegend(const ReportInput& input) {
  TimeByCause sum{};
  for (const ReportRun& run : input.runs) {
    if (!run.explanation) continue;
    const TimeByCause own = TotalsOf(run.explanation->bubbles);
    for (std::size_t i = 0; i < own.size(); ++i) sum[i] += own[i];
  }
  std::string html;
  for (std::size_t i = 0; i < sum.size(); ++i) {
    if (sum[i] == 0) continue;
    const auto cause = static_cast<BubbleCause>(i);
    html += fmt::format(
        R"(<span class="item"><i class="bubble cause{}" style="color:{}"></i>idle: {}</span>)", i,
        Hex(CauseColor(cause)), NameOf(cause));
  }
  if (!html.empty()) return html;
  return "<span class=\"item\"><i style=\"background:var(--idle)\"></i>idle</span>";
}

std::string Swatch(Color screen, Color paper) {
  return fmt::format(R"(<i style="--screen:{};--paper:{}"></i>)", Hex(screen), Hex(paper));
}

std::string Item(const std::string& swatches, std::string_view name) {
  return fmt::format(R"(<span class="item">{}{}</span>)", swatches, EscapeMarkup(name));
}

// Transfers and collectives that some run shows.
std::string LinksLegend(const ReportInput& input) {
  std::set<Op> ops;
  for (const ReportRun& run : input.runs) {
    const Schedule& schedule = ScheduleOf(input, run);
    for (std::size_t rank = 0; rank < schedule.lanes.size(); ++rank) {
      for (std::size_t i = 0; i < schedule.lanes[rank].size(); ++i) {
        const Action& action = schedule.lanes[rank][i];
        if (IsLink(action, run.timeline->spans[rank][i])) ops.insert(action.first.op);
      }
    }
  }
  std::string html;
  for (const Op op : ops) {
    html += Item(Swatch(BlockColor(op, 0, 1), PaperBlockColor(op, 0, 1)), OpName(op));
  }
  return html;
}

// Nothing if there is only one kind.
std::string MemoryLegend(const ReportInput& input) {
  std::string html;
  std::size_t kinds = 0;
  for (std::size_t kind = 0; kind < kMemoryKinds; ++kind) {
    const auto which = static_cast<MemoryKind>(kind);
    const bool shown = which != MemoryKind::kOffloaded &&
                       std::ranges::any_of(input.runs, [&](const ReportRun& run) {
                         return Holds(run.memory_by_kind, which);
                       });
    if (!shown) continue;
    ++kinds;
    html += Item(Swatch(MemoryColor(which), PaperMemoryColor(which)),
                 fmt::format("memory: {}", NameOf(which)));
  }
  return kinds > 1 ? html : "";
}

// A button that shows what keys and pointer do; timelines are described by it.
std::string KeysHtml(std::initializer_list<std::pair<const char*, const char*>> keys) {
  std::string rows;
  for (const auto& [key, what] : keys) rows += fmt::format("<dt>{}</dt><dd>{}</dd>", key, what);
  return R"(<button type="button" popovertarget="keys">Keys</button>)"
         R"(<div id="keys" popover class="card"><dl>)" +
         rows + "</dl></div>";
}

// The card's title and controls.
std::string Toolbar(const ReportInput& input, const std::string& switches) {
  const auto any = [&](auto&& of) { return std::ranges::any_of(input.runs, of); };
  std::string html =
      "<div class=\"toolbar\"><h2>Timeline</h2>"
      "<span class=\"hint\">Hover for details, click to follow a microbatch.</span>" +
      KeysHtml(
          {{"pointer over an action", "what it waits for; its microbatch in all timelines"},
           {"click", "keeps following the microbatch"},
           {"after a click: scroll, drag", "zoom, move"},
           {"double-click", "shows all"},
           {"Enter", "selects an action, then keeps following its microbatch"},
           {"arrows", "go to other actions and gaps; with nothing selected, they move the view"},
           {"Escape", "ends"},
           {"+ - 0", "zoom in, zoom out, show all"}});
  if (any([](const ReportRun& run) {
        return !run.memory.empty() || !run.memory_by_kind.empty();
      })) {
    html += SwitchHtml("memory", "memory", true);
  }
  if (any([](const ReportRun& run) { return run.explanation.has_value(); })) {
    html += SwitchHtml("path", "critical path");
  }
  html += SwitchHtml("paper", "colors for print") + switches;
  return html +
         R"(<div><button id="out" title="Zoom out" aria-label="Zoom out">&minus;</button> )"
         R"(<button id="fit" title="Show all">Fit</button> )"
         R"(<button id="in" title="Zoom in" aria-label="Zoom in">+</button> )"
         R"(<button id="svg" title="The timelines as they are in view">Copy as SVG</button> )"
         R"(<button id="print">Print</button></div></div>)"
         "\n";
}

}  // namespace

std::string LegendHtml(const ReportInput& input) {
  std::string html = R"(<div class="legend">)";
  for (const LegendEntry& entry : LegendOf(input)) {
    std::string swatches;
    const int count = static_cast<int>(entry.colors.size());
    for (int chunk = 0; chunk < count; ++chunk) {
      swatches += Swatch(entry.colors[Index(chunk)], PaperBlockColor(entry.op, chunk, count));
    }
    html += Item(swatches, OpName(entry.op));
  }
  html += LinksLegend(input) + CausesLegend(input) + MemoryLegend(input);
  const auto any = [&](auto&& of) {
    return std::ranges::any_of(
        input.runs, [&](const ReportRun& run) { return of(ScheduleOf(input, run).placement) > 1; });
  };
  const std::string lighter = LighterText(any([](const Placement& of) { return of.chunks(); }),
                                          any([](const Placement& of) { return of.replicas(); }));
  if (!lighter.empty()) html += fmt::format(R"(<span class="item hint">{}</span>)", lighter);
  return html + "</div>\n";
}

std::string CaptionText(const ReportInput& input, const ReportRun& run) {
  return RunFigures(input, run) + IdleText(run);
}

std::string SwitchHtml(std::string_view id, std::string_view name, bool checked) {
  return fmt::format(R"(<label><input type="checkbox" id="{}"{}> {}</label>)", id,
                     checked ? " checked" : "", name);
}

std::string TimelineHead(const ReportInput& input, const std::string& switches) {
  return Toolbar(input, switches) + LegendHtml(input);
}

std::string RunHtml(const ReportInput& input, std::size_t index) {
  const ReportRun& run = input.runs[index];
  return fmt::format(
      R"(<div class="run"><div class="caption"><b>{0}</b><span>{1}</span></div>)"
      R"(<canvas id="run{2}" tabindex="0" role="application" aria-roledescription="timeline" )"
      R"(aria-label="{0}: {1}" aria-describedby="keys"></canvas>)"
      R"(<details id="text{2}"><summary>{0} as text</summary>{3}</details></div>)"
      "\n",
      EscapeMarkup(run.label), EscapeMarkup(CaptionText(input, run)), index,
      TextHtml("", run.label + " as text"));
}

std::string UnitHtml(const ReportInput& input) {
  std::string text = input.time_unit.empty() ? "Time in the unit of the costs" : "";
  if (!input.costs.empty()) text += (text.empty() ? "Costs: " : ": ") + input.costs;
  return text.empty() ? text : R"(<p class="hint">)" + EscapeMarkup(text) + "</p>\n";
}

Table UseTable(const ReportInput& input, std::span<const ReportRun> runs) {
  std::vector<std::string> labels;
  std::vector<TimeUse> uses;
  double longest = 0;
  for (const ReportRun& run : runs) {
    if (!run.explanation) continue;
    longest = std::max(longest, run.result.makespan);
    labels.push_back(run.label);
    uses.push_back(TimeUseOf({ScheduleOf(input, run), *run.timeline, run.explanation->bubbles}));
  }
  return TimeUseTable(labels, uses, FormatLike(longest, input.time_unit));
}

std::string RanksCard(const ReportInput& input, const ReportRun& run) {
  return TableCard(fmt::format("Ranks, {}", run.label),
                   RankTable(run.result, input.time_unit, input.memory_unit));
}

std::string PageScripts(const ReportInput& input) {
  // Screen readers get the selected action from `said`: a tip changes with every move of a pointer.
  return "<div id=\"tip\" aria-hidden=\"true\"></div>\n"
         "<div id=\"said\" class=\"unseen\" role=\"status\"></div>\n"
         "<script type=\"application/json\" id=\"data\">" +
         PageDataJson(input) + "</script>\n<script>\n" + kPageScript + "</script>\n";
}

}  // namespace penstock
