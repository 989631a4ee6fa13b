#include "report/page/page_data.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <nlohmann/json.hpp>

#include "base/index.h"
#include "report/markup.h"
#include "report/paper.h"

namespace penstock {
namespace {

constexpr int kPairMark = 255;  // data.js: PAIR

std::string ScriptString(std::string_view text) {
  std::string quoted =
      nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  // No text may end the script element or open one.
  for (std::size_t at = 0; (at = quoted.find('<', at)) != std::string::npos;) {
    quoted.replace(at, 1, "\\u003c");
  }
  return quoted;
}

// By rank and action: its index among the drawn actions, or -1.
std::vector<std::vector<int>> DrawnIndices(const Schedule& schedule, const Timeline& timeline) {
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

// Formatted directly, because a timeline may have millions of figures.
class JsonText {
 public:
  template <class... Args>
  void Add(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(text_), format, std::forward<Args>(args)...);
  }
  // Nine digits, as {:.9g}, which takes fmt three times as long.
  void Number(double value) {
    std::array<char, 32> digits;
    const auto [end, error] = std::to_chars(digits.data(), digits.data() + digits.size(), value,
                                            std::chars_format::general, 9);
    text_.append(digits.data(), end);
  }
  // The numbers, with commas between.
  void Row(std::initializer_list<double> numbers) {
    for (const double& number : numbers) {
      if (&number != numbers.begin()) text_ += ',';
      constexpr double kMostWhole = 1e9;
      if (std::abs(number) < kMostWhole && std::trunc(number) == number) {
        Whole(static_cast<std::int32_t>(number));
      } else {
        Number(number);
      }
    }
  }
  void Text(std::string_view text) { text_ += text; }
  // write(element) for each, with commas between.
  template <class Range, class Write>
  void List(const Range& range, Write&& write) {
    text_ += '[';
    bool first = true;
    for (const auto& element : range) {
      if (!first) text_ += ',';
      first = false;
      write(element);
    }
    text_ += ']';
  }
  // Writes a list of the numbers below `count` that `kept` accepts.
  template <class Write, class Kept>
  void Numbers(std::size_t count, Kept&& kept, Write&& write) {
    text_ += '[';
    bool first = true;
    for (std::size_t i = 0; i < count; ++i) {
      if (!kept(i)) continue;
      if (!first) text_ += ',';
      first = false;
      write(i);
    }
    text_ += ']';
  }
  template <class Write>
  void Numbers(std::size_t count, Write&& write) {
    Numbers(
        count, [](std::size_t) { return true; }, write);
  }
  std::string Take() { return std::move(text_); }

 private:
  void Whole(std::int32_t value) {
    std::array<char, 12> digits;
    const auto [end, error] = std::to_chars(digits.data(), digits.data() + digits.size(), value);
    text_.append(digits.data(), end);
  }

  std::string text_;
};

class RunWriter {
 public:
  RunWriter(const ReportInput& input, const ReportRun& run, JsonText& json)
      : run_(run), schedule_(ScheduleOf(input, run)), timeline_(*run.timeline), json_(json) {}

  // `number` is the same for runs of the same schedule: only their actions are comparable.
  void Write(std::size_t number) {
    json_.Add(R"({{"label":{},"end":{:.9g},"slices":{},"chainLength":{},"schedule":{})",
              ScriptString(run_.label), EndOf(timeline_), schedule_.slices,
              std::max(1, schedule_.placement.chain_length()), number);
    Colors("colors", BlockColor);
    Colors("paper", PaperBlockColor);
    Stages();
    Lanes("lanes", IsDrawn);
    Lanes("links", IsLink);
    if (run_.explanation) Explained();
    Ranks();
    Memory();
    json_.Add("}}");
  }

 private:
  std::size_t RankCount() const { return schedule_.lanes.size(); }

  // For each op and chunk, the colors of block and text.
  template <class ColorOf>
  void Colors(std::string_view name, ColorOf&& color_of) {
    const int chunks = std::max(1, MostChunks(schedule_.placement));
    json_.Add(R"(,"{}":)", name);
    json_.Numbers(kOpCount, [&](std::size_t op) {
      json_.Numbers(Index(chunks), [&](std::size_t chunk) {
        const Color color = color_of(static_cast<Op>(op), static_cast<int>(chunk), chunks);
        json_.Add(R"(["{}","{}"])", Hex(color), Hex(TextColor(color)));
      });
    });
  }

  void Stages() {
    json_.Add(R"(,"chunkOf":)");
    json_.Numbers(Index(schedule_.stages()), [&](std::size_t stage) {
      json_.Add("{}", ChunkOf(schedule_.placement, static_cast<int>(stage)));
    });
    if (run_.costs == nullptr) return;
    const auto sent = [&](Op op, int stage) { return SentBytes(op, stage); };
    ByOpAndStage("sends", {Op::kForward, Op::kBackwardInput, Op::kBackward}, sent);
    const auto held = [&](Op op, int stage) {
      const StageCosts& costs = run_.costs->stages[Index(stage)];
      return op == Op::kForward ? costs.activation : -costs.Freed(op);
    };
    ByOpAndStage("holds", {Op::kForward, Op::kBackwardInput, Op::kBackwardWeight, Op::kBackward},
                 held);
  }

  // An object of lists: of each op, by stage.
  template <class ValueOf>
  void ByOpAndStage(std::string_view name, std::initializer_list<Op> ops, ValueOf&& value_of) {
    json_.Add(R"(,"{}":{{)", name);
    for (const Op op : ops) {
      json_.Add("{}\"{}\":", op == *ops.begin() ? "" : ",", static_cast<int>(op));
      json_.Numbers(Index(schedule_.stages()), [&](std::size_t stage) {
        json_.Add("{:.9g}", value_of(op, static_cast<int>(stage)));
      });
    }
    json_.Add("}}");
  }

  // What F, I or B sends to another rank; 0 if nothing, or if it is unknown.
  double SentBytes(Op op, int stage) const {
    const Placement& placement = schedule_.placement;
    const ValueKind kind = MadeBy(op);
    const int reader = ReaderOf(schedule_, kind, stage);
    if (reader < 0 || placement.rank_of(reader) == placement.rank_of(stage)) return 0;
    const int output = kind == ValueKind::kActivation ? stage : reader;
    const StageCosts& costs = run_.costs->stages[Index(output)];
    return run_.costs->message_bytes * costs.message_scale * costs.length;
  }

  // The actions that `shown` selects.
  template <class Shown>
  void Lanes(std::string_view name, Shown&& shown) {
    json_.Add(R"(,"{}":)", name);
    json_.Numbers(RankCount(), [&](std::size_t rank) {
      const Lane& lane = schedule_.lanes[rank];
      const std::vector<Span>& spans = timeline_.spans[rank];
      const auto is_shown = [&](std::size_t i) { return shown(lane[i], spans[i]); };
      json_.Numbers(lane.size(), is_shown, [&](std::size_t i) { Block(lane[i], spans[i]); });
    });
  }

  void Block(const Action& action, const Span& span) {
    if (action.is_pair()) json_.Add("{},", kPairMark);
    ForEachPart(action, [&](const Part& part) {
      json_.Row({double{1} * static_cast<int>(part.op), double{1} * part.stage,
                 double{1} * part.microbatch});
      json_.Text(",");
    });
    json_.Row({span.start, span.end});
  }

  void Explained() {
    const std::vector<std::vector<int>> drawn = DrawnIndices(schedule_, timeline_);
    json_.Add(R"(,"bubbles":)");
    json_.List(run_.explanation->bubbles, [&](const std::vector<Bubble>& bubbles) {
      json_.List(bubbles, [&](const Bubble& bubble) { Idle(bubble); });
    });
    json_.Add(R"(,"path":)");
    const std::vector<ActionAt>& path = run_.explanation->critical_path;
    const auto index = [&](std::size_t i) {
      return drawn[Index(path[i].rank)][Index(path[i].position)];
    };
    json_.Numbers(
        path.size(), [&](std::size_t i) { return index(i) >= 0; },
        [&](std::size_t i) { json_.Add("{},{}", path[i].rank, index(i)); });
    Inputs(drawn);
  }

  void Idle(const Bubble& bubble) {
    json_.Row({bubble.start, bubble.end, double{1} * static_cast<int>(bubble.cause),
               double{1} * bubble.waits_for.rank});
    if (!bubble.waits_for.known()) return;
    const Part& part =
        schedule_.lanes[Index(bubble.waits_for.rank)][Index(bubble.waits_for.position)].first;
    json_.Add(",{},{},{}", static_cast<int>(part.op), part.stage, part.microbatch);
  }

  void Inputs(const std::vector<std::vector<int>>& drawn) {
    const ActionInputs inputs(schedule_, timeline_, run_.messages);
    json_.Add(R"(,"inputs":)");
    json_.Numbers(RankCount(), [&](std::size_t rank) {
      const auto is_drawn = [&](std::size_t i) { return drawn[rank][i] >= 0; };
      json_.Numbers(drawn[rank].size(), is_drawn, [&](std::size_t i) {
        const ActionInput last = inputs.LastOf({static_cast<int>(rank), static_cast<int>(i)});
        const int index =
            last.from.known() ? drawn[Index(last.from.rank)][Index(last.from.position)] : -1;
        if (index < 0) return json_.Add("-1");
        json_.Row({double{1} * last.from.rank, double{1} * index, last.ready});
      });
    });
  }

  void Ranks() {
    const std::vector<RankResult>& results = run_.result.ranks;
    const double makespan = run_.result.makespan;
    json_.Add(R"(,"idle":)");
    json_.List(results, [&](const RankResult& rank) {
      json_.Add("\"{}\"", FormatPercent(makespan > 0 ? 1 - rank.busy / makespan : 0));
    });
    json_.Add(R"(,"peak":)");
    if (run_.memory_by_kind.empty()) {
      json_.List(results, [&](const RankResult& rank) { json_.Add("{:.9g}", rank.peak_memory); });
    } else {
      json_.List(run_.memory_by_kind,
                 [&](const RankMemory& rank) { json_.Add("{:.9g}", rank.peak.amount); });
    }
  }

  void Memory() {
    if (run_.memory_limit) json_.Add(R"(,"limit":{:.9g})", *run_.memory_limit);
    json_.Add(R"(,"memory":)");
    if (run_.memory_by_kind.empty()) {
      json_.Numbers(run_.memory.empty() ? 0 : 1, [&](std::size_t) {
        Kind("held", MemoryKind::kActivations,
             [&](std::size_t rank) -> const MemoryCurve& { return run_.memory[rank]; });
      });
      return;
    }
    // What is in the slower pool is not the rank's.
    const auto is_held = [&](std::size_t kind) {
      const auto which = static_cast<MemoryKind>(kind);
      return which != MemoryKind::kOffloaded && Holds(run_.memory_by_kind, which);
    };
    json_.Numbers(kMemoryKinds, is_held, [&](std::size_t kind) {
      const auto which = static_cast<MemoryKind>(kind);
      Kind(NameOf(which), which, [&](std::size_t rank) -> const MemoryCurve& {
        return run_.memory_by_kind[rank].curves[kind];
      });
    });
  }

  template <class CurveOf>
  void Kind(std::string_view name, MemoryKind kind, CurveOf&& curve_of) {
    json_.Add(R"({{"name":{},"color":"{}","paper":"{}","curves":)", ScriptString(name),
              Hex(MemoryColor(kind)), Hex(PaperMemoryColor(kind)));
    json_.Numbers(RankCount(), [&](std::size_t rank) {
      json_.List(curve_of(rank), [&](const MemoryPoint& point) {
        json_.Row({point.time, point.amount});
      });
    });
    json_.Add("}}");
  }

  const ReportRun& run_;
  const Schedule& schedule_;
  const Timeline& timeline_;
  JsonText& json_;
};

void WritePlot(const Plot& plot, JsonText& json) {
  json.Add(R"({{"x":{},"series":)", ScriptString(plot.x_name));
  json.List(plot.series, [&](const Series& series) {
    json.Add(R"({{"name":{},"points":)", ScriptString(series.name));
    const auto is_finite = [&](std::size_t i) {
      return std::isfinite(series.points[i].first) && std::isfinite(series.points[i].second);
    };
    json.Numbers(series.points.size(), is_finite, [&](std::size_t i) {
      json.Add("[{:.9g},{:.9g}]", series.points[i].first, series.points[i].second);
    });
    json.Add("}}");
  });
  json.Add("}}");
}

}  // namespace

std::size_t RunDataSize(const ReportInput& input, const ReportRun& run) {
  JsonText json;
  RunWriter(input, run, json).Write(0);
  return json.Take().size();
}

std::string PageDataJson(const ReportInput& input) {
  JsonText json;
  json.Add(R"({{"timeUnit":{},"memoryUnit":{},"names":)", ScriptString(input.time_unit),
           ScriptString(input.memory_unit));
  json.Numbers(kOpCount, [&](std::size_t op) { json.Add("\"{}\"", OpName(static_cast<Op>(op))); });
  json.Add(R"(,"causes":)");
  json.Numbers(kBubbleCauses, [&](std::size_t cause) {
    const auto which = static_cast<BubbleCause>(cause);
    json.Add(R"(["{}","{}"])", NameOf(which), Hex(CauseColor(which)));
  });
  json.Add(R"(,"runs":)");
  json.List(input.runs, [&](const ReportRun& run) {
    std::size_t first = 0;
    while (&ScheduleOf(input, input.runs[first]) != &ScheduleOf(input, run)) ++first;
    RunWriter(input, run, json).Write(first);
  });
  std::vector<const Plot*> plots;
  for (const Plot& plot : input.overview) plots.push_back(&plot);
  for (const Plot& plot : input.plots) plots.push_back(&plot);
  json.Add(R"(,"plots":)");
  json.List(plots, [&](const Plot* plot) { WritePlot(*plot, json); });
  json.Add("}}");
  return json.Take();
}

}  // namespace penstock
