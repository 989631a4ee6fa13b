#include <algorithm>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>

#include "base/index.h"
#include "report/markup.h"
#include "report/page_assets.h"
#include "report/page_parts.h"
#include "report/report.h"

namespace penstock {
namespace {

constexpr int kPairMark = 255;  // page.js: PAIR
// With more actions, the page has no picture for browsers without scripts.
constexpr std::size_t kMostInPicture = 4000;

std::string ScriptString(const std::string& text) {
  std::string quoted =
      nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  // No text may end the script element or open one.
  for (std::size_t at = 0; (at = quoted.find('<', at)) != std::string::npos;) {
    quoted.replace(at, 1, "\\u003c");
  }
  return quoted;
}

// The JSON that page.js reads. Formatted directly, because a timeline may have millions of figures.
class PageData {
 public:
  explicit PageData(const ReportInput& input) : input_(input) {}

  std::string Write() {
    Add(R"({{"timeUnit":{},"memoryUnit":{},"names":[)", ScriptString(input_.time_unit),
        ScriptString(input_.memory_unit));
    for (int op = 0; op < kOpCount; ++op) {
      Add("{}\"{}\"", op > 0 ? "," : "", OpName(static_cast<Op>(op)));
    }
    Add(R"(],"causes":[)");
    for (std::size_t cause = 0; cause < kBubbleCauses; ++cause) {
      const auto which = static_cast<BubbleCause>(cause);
      Add("{}[\"{}\",\"{}\"]", cause > 0 ? "," : "", NameOf(which), Hex(CauseColor(which)));
    }
    Add(R"(],"runs":[)");
    for (const ReportRun& run : input_.runs) {
      if (&run != input_.runs.data()) Add(",");
      Run(run);
    }
    Add(R"(],"plots":[)");
    bool first = true;
    for (const std::vector<Plot>* plots : {&input_.overview, &input_.plots}) {
      for (const Plot& plot : *plots) {
        if (!first) Add(",");
        first = false;
        PlotPoints(plot);
      }
    }
    Add("]}}");
    return std::move(text_);
  }

 private:
  template <class... Args>
  void Add(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(text_), format, std::forward<Args>(args)...);
  }

  // Runs of the same schedule have the same number: only their actions are comparable.
  std::size_t FirstRunOf(const Schedule& schedule) const {
    std::size_t run = 0;
    while (&ScheduleOf(input_, input_.runs[run]) != &schedule) ++run;
    return run;
  }

  // For each op and chunk, the colors of block and text; then the chunk of each stage.
  void Colors(const Schedule& schedule) {
    const int chunks = std::max(1, MostChunks(schedule.placement));
    Add(R"(,"colors":[)");
    for (int op = 0; op < kOpCount; ++op) {
      Add("{}[", op > 0 ? "," : "");
      for (int chunk = 0; chunk < chunks; ++chunk) {
        const Color color = BlockColor(static_cast<Op>(op), chunk, chunks);
        Add("{}[\"{}\",\"{}\"]", chunk > 0 ? "," : "", Hex(color), Hex(TextColor(color)));
      }
      Add("]");
    }
    Add(R"(],"chunkOf":[)");
    for (int stage = 0; stage < schedule.stages(); ++stage) {
      Add("{}{}", stage > 0 ? "," : "", ChunkOf(schedule.placement, stage));
    }
    Add("]");
  }

  void Run(const ReportRun& run) {
    const Schedule& schedule = ScheduleOf(input_, run);
    Add(R"({{"label":{},"end":{:.9g},"slices":{},"chainLength":{},"schedule":{})",
        ScriptString(run.label), EndOf(*run.timeline), schedule.slices,
        std::max(1, schedule.placement.chain_length()), FirstRunOf(schedule));
    Colors(schedule);
    Add(R"(,"lanes":[)");
    for (std::size_t r = 0; r < schedule.lanes.size(); ++r) {
      Add("{}[", r > 0 ? "," : "");
      Lane(schedule.lanes[r], run.timeline->spans[r]);
      Add("]");
    }
    if (run.explanation) Explained(schedule, *run.timeline, *run.explanation);
    Add(R"(],"idle":[)");
    for (std::size_t r = 0; r < run.result.ranks.size(); ++r) {
      const double makespan = run.result.makespan;
      const double idle = makespan > 0 ? 1 - run.result.ranks[r].busy / makespan : 0;
      Add("{}\"{}\"", r > 0 ? "," : "", FormatPercent(idle));
    }
    Add(R"(],"peak":[)");
    for (std::size_t r = 0; r < run.result.ranks.size(); ++r) {
      Add("{}{:.9g}", r > 0 ? "," : "", run.result.ranks[r].peak_memory);
    }
    Add(R"(],"memory":[)");
    for (std::size_t r = 0; r < run.memory.size(); ++r) {
      Add("{}[", r > 0 ? "," : "");
      for (std::size_t i = 0; i < run.memory[r].size(); ++i) {
        Add("{}{:.9g},{:.9g}", i > 0 ? "," : "", run.memory[r][i].time, run.memory[r][i].amount);
      }
      Add("]");
    }
    Add("]}}");
  }

  // For each rank, its bubbles: start, end, cause, and the rank, op, stage and microbatch index of
  // what it waits for, or only -1. Then the critical path: rank, and index among the drawn actions.
  void Explained(const Schedule& schedule, const Timeline& timeline,
                 const Explanation& explanation) {
    Add(R"(],"bubbles":[)");
    for (std::size_t r = 0; r < explanation.bubbles.size(); ++r) {
      Add("{}[", r > 0 ? "," : "");
      for (const Bubble& bubble : explanation.bubbles[r]) {
        if (&bubble != explanation.bubbles[r].data()) Add(",");
        Add("{:.9g},{:.9g},{},{}", bubble.start, bubble.end, static_cast<int>(bubble.cause),
            bubble.waits_for.rank);
        if (!bubble.waits_for.known()) continue;
        const Part& part =
            schedule.lanes[Index(bubble.waits_for.rank)][Index(bubble.waits_for.position)].first;
        Add(",{},{},{}", static_cast<int>(part.op), part.stage, part.microbatch);
      }
      Add("]");
    }
    Add(R"(],"path":[)");
    const std::vector<std::vector<int>> drawn = DrawnIndices(schedule, timeline);
    bool first = true;
    for (const ActionAt& at : explanation.critical_path) {
      const int index = drawn[Index(at.rank)][Index(at.position)];
      if (index < 0) continue;
      Add("{}{},{}", first ? "" : ",", at.rank, index);
      first = false;
    }
  }

  // By rank and action: its index among those that are drawn, or -1.
  static std::vector<std::vector<int>> DrawnIndices(const Schedule& schedule,
                                                    const Timeline& timeline) {
    std::vector<std::vector<int>> indices(schedule.lanes.size());
    for (std::size_t r = 0; r < schedule.lanes.size(); ++r) {
      int next = 0;
      for (std::size_t i = 0; i < schedule.lanes[r].size(); ++i) {
        const bool is_drawn = IsDrawn(schedule.lanes[r][i], timeline.spans[r][i]);
        indices[r].push_back(is_drawn ? next++ : -1);
      }
    }
    return indices;
  }

  void Lane(const penstock::Lane& lane, const std::vector<Span>& spans) {
    bool first = true;
    for (std::size_t i = 0; i < lane.size(); ++i) {
      if (!IsDrawn(lane[i], spans[i])) continue;
      if (!first) Add(",");
      first = false;
      if (lane[i].is_pair()) Add("{},", kPairMark);
      ForEachPart(lane[i], [&](const Part& part) {
        Add("{},{},{},", static_cast<int>(part.op), part.stage, part.microbatch);
      });
      Add("{:.9g},{:.9g}", spans[i].start, spans[i].end);
    }
  }

  void PlotPoints(const Plot& plot) {
    Add(R"({{"x":{},"series":[)", ScriptString(plot.x_name));
    for (std::size_t s = 0; s < plot.series.size(); ++s) {
      Add(R"({}{{"name":{},"points":[)", s > 0 ? "," : "", ScriptString(plot.series[s].name));
      bool first = true;
      for (const auto& [x, y] : plot.series[s].points) {
        if (!std::isfinite(x) || !std::isfinite(y)) continue;
        Add("{}[{:.9g},{:.9g}]", first ? "" : ",", x, y);
        first = false;
      }
      Add("]}}");
    }
    Add("]}}");
  }

  const ReportInput& input_;
  std::string text_;
};

// Why ranks are idle, in all runs, with the part of the time.
std::string CausesLegend(const ReportInput& input) {
  TimeByCause sum{};
  double all = 0;
  for (const ReportRun& run : input.runs) {
    if (!run.explanation) continue;
    const auto& bubbles = run.explanation->bubbles;
    const TimeByCause own = TotalsOf(bubbles);
    for (std::size_t i = 0; i < own.size(); ++i) sum[i] += own[i];
    all += EndOf(*run.timeline) * static_cast<double>(bubbles.size());
  }
  std::string html;
  for (std::size_t i = 0; i < sum.size(); ++i) {
    if (sum[i] == 0) continue;
    const auto cause = static_cast<BubbleCause>(i);
    html += fmt::format(
        R"(<span class="item"><i class="bubble" style="color:{}"></i>idle: {} {}</span>)",
        Hex(CauseColor(cause)), NameOf(cause), FormatPercent(sum[i] / all));
  }
  if (!html.empty()) return html;
  return "<span class=\"item\"><i style=\"background:var(--idle)\"></i>idle</span>";
}

std::string Legend(const ReportInput& input) {
  std::string html = R"(<div class="legend">)";
  std::size_t chunks = 1;
  for (const LegendEntry& entry : LegendOf(input)) {
    html += R"(<span class="item">)";
    for (const Color color : entry.colors) {
      html += fmt::format(R"(<i style="background:{}"></i>)", Hex(color));
    }
    html += fmt::format("{}</span>", OpName(entry.op));
    chunks = std::max(chunks, entry.colors.size());
  }
  html += CausesLegend(input);
  if (chunks > 1) html += "<span class=\"item hint\">lighter: later chunks of a rank</span>";
  return html + "</div>\n";
}

Result<std::string> TimelineCard(const ReportInput& input) {
  const bool with_memory = std::any_of(input.runs.begin(), input.runs.end(),
                                       [](const ReportRun& run) { return !run.memory.empty(); });
  std::string html =
      "<section class=\"card\"><div class=\"toolbar\"><h2>Timeline</h2>"
      "<span class=\"hint\">Hover to follow a microbatch, click to keep it; then scroll to zoom, "
      "drag to move, double-click to see all.</span>";
  if (with_memory) {
    html += R"(<label><input type="checkbox" id="memory" checked> memory over time</label>)";
  }
  const bool explained =
      std::any_of(input.runs.begin(), input.runs.end(),
                  [](const ReportRun& run) { return run.explanation.has_value(); });
  if (explained) html += R"(<label><input type="checkbox" id="path"> critical path</label>)";
  html += R"(<div><button id="out" title="Zoom out">&minus;</button> )"
          R"(<button id="fit" title="Show all">Fit</button> )"
          R"(<button id="in" title="Zoom in">+</button></div></div>)"
          "\n";
  html += Legend(input);
  for (std::size_t i = 0; i < input.runs.size(); ++i) {
    html += fmt::format(
        R"(<div class="run"><div class="caption"><b>{}</b><span>{}</span></div>)"
        R"(<canvas id="run{}" tabindex="0" aria-label="timeline, {}"></canvas></div>)"
        "\n",
        EscapeMarkup(input.runs[i].label), EscapeMarkup(RunFigures(input, input.runs[i])), i,
        EscapeMarkup(input.runs[i].label));
  }
  std::size_t actions = 0;
  for (const ReportRun& run : input.runs) actions += ScheduleOf(input, run).action_count();
  if (actions <= kMostInPicture) {
    PENSTOCK_TRY(const std::string picture, RenderSvg(input));
    html += "<noscript>" + picture + "</noscript>\n";
  }
  return html + "</section>\n";
}

std::string PlotCards(const std::vector<Plot>& plots) {
  std::string cards;
  for (const Plot& plot : plots) cards += CardHtml(plot.title, PlotSvg(plot));
  return cards.empty() ? cards : "<div class=\"columns\">" + cards + "</div>\n";
}

std::string TableCards(const ReportInput& input) {
  std::string html;
  for (const Table& table : input.tables) html += CardHtml(table.title, TableHtml(table));
  if (input.runs.size() > 1 &&
      &ScheduleOf(input, input.runs[0]) == &ScheduleOf(input, input.runs[1])) {
    html += CardHtml("Predicted and measured",
                     TableHtml(PredictedMeasuredTable(input.runs[0].result, input.runs[1].result,
                                                      input.time_unit, input.memory_unit)));
  }
  html += "<div class=\"columns\">";
  for (const ReportRun& run : input.runs) {
    html += CardHtml(fmt::format("Ranks, {}", run.label),
                     TableHtml(RankTable(run.result, input.time_unit, input.memory_unit)));
  }
  return html + "</div>\n";
}

}  // namespace

Result<std::string> RenderHtml(const ReportInput& input) {
  PENSTOCK_TRY_STATUS(CheckReport(input));
  PENSTOCK_TRY(const std::string timeline, TimelineCard(input));
  std::string html = PageStart(input.title, input.subtitle);
  html += FiguresHtml(input.figures) + R"(<div class="overview">)" + PlotCards(input.overview) +
          "</div>\n" + timeline;
  html += PlotCards(input.plots);
  html += TableCards(input);
  for (const Passage& passage : input.passages) {
    html += CardHtml(passage.title, "<pre>" + EscapeMarkup(passage.text) + "</pre>");
  }
  html += "<footer>Made by Penstock.</footer>\n<div id=\"tip\" role=\"tooltip\"></div>\n";
  html += "<script type=\"application/json\" id=\"data\">" + PageData(input).Write() +
          "</script>\n<script>\n" + kPageScript + "</script>\n</body></html>\n";
  return html;
}

}  // namespace penstock
