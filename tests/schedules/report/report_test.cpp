#include "report/report.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "base/index.h"
#include "report/paper.h"
#include "schedule/catalog.h"
#include "schedule/passes/passes.h"
#include "schedule/text/text.h"

namespace penstock {
namespace {

using Json = nlohmann::json;

// A schedule with the values that refer to it.
struct Subject {
  explicit Subject(Schedule made) : schedule(std::move(made)) {
    costs = Costs::Uniform(schedule.placement, schedule.slices, 1, 1, 1);
    result = Simulate(schedule, costs, {.timeline = &timeline}).value();
  }
  Subject(const Subject&) = delete;
  Subject& operator=(const Subject&) = delete;

  ReportInput Input() const {
    ReportInput input;
    input.title = "a <title> & \"more\"";
    input.schedule = &schedule;
    input.runs.push_back(
        {"predicted", &timeline, result, MemoryOverTime(schedule, timeline, costs)});
    return input;
  }

  Schedule schedule;
  Costs costs;
  Timeline timeline;
  SimulationResult result;
};

Schedule Named(std::string_view name, int ranks, int microbatches) {
  return Generate(name, {.ranks = ranks, .microbatches = microbatches}).value();
}

Schedule WithPair() {
  return ParseCsv("0F0,0F1,0B0,0B1,0STEP\n1F0,(1F1;1B0)OVERLAP_F_B,1B1,1STEP\n").value();
}

Json DataOf(const std::string& page) {
  const std::string open = "id=\"data\">";
  const std::size_t begin = page.find(open) + open.size();
  return Json::parse(page.substr(begin, page.find("</script>", begin) - begin));
}

std::size_t Count(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size()) {
    ++count;
  }
  return count;
}

TEST(HtmlReport, CarriesEveryDrawnActionWithItsTimes) {
  const Subject subject(WithPair());
  const Json data = DataOf(RenderHtml(subject.Input()).value());
  const Json& run = data["runs"][0];
  // op, stage, microbatch, start, end. A pair is 255 and its two parts. STEP takes no time.
  EXPECT_EQ(run["lanes"][0], Json({0, 0, 0, 0, 1, 0, 0, 1, 1, 2, 3, 0, 0, 4, 6, 3, 0, 1, 6, 8}));
  EXPECT_EQ(run["lanes"][1], Json({0, 1, 0, 1, 2, 255, 0, 1, 1, 3, 1, 0, 2, 4, 3, 1, 1, 4, 6}));
  EXPECT_EQ(run["end"], 8);
  ASSERT_EQ(run["memory"].size(), 1U);
  EXPECT_EQ(run["memory"][0]["curves"].size(), 2U);
  EXPECT_EQ(run["peak"], Json({2, 2}));
}

TEST(HtmlReport, CarriesWhatEachActionReadLast) {
  const Subject subject(Named("zbv", 3, 4));
  ReportInput input = subject.Input();
  input.runs[0].explanation = Explain(subject.schedule, subject.timeline);
  const Json page = DataOf(RenderHtml(input).value());
  const Json& run = page["runs"][0];
  const ActionInputs inputs(subject.schedule, subject.timeline, {});
  for (int rank = 0; rank < 3; ++rank) {
    const Json& flat = run["inputs"][static_cast<std::size_t>(rank)];
    std::size_t at = 0;
    // All actions of this schedule are drawn.
    for (int i = 0; i < static_cast<int>(subject.schedule.lanes[Index(rank)].size()); ++i) {
      const ActionInput last = inputs.LastOf({rank, i});
      ASSERT_EQ(flat[at++], last.from.rank);
      if (!last.from.known()) continue;
      EXPECT_EQ(flat[at++], last.from.position);
      EXPECT_EQ(flat[at++], last.ready);
    }
    EXPECT_EQ(at, flat.size());
  }
}

TEST(HtmlReport, MemoryByKindAddsUpToThePeak) {
  const Subject subject(Named("1f1b", 3, 6));
  Costs costs = subject.costs;
  costs.ForEachStage([](StageCosts& stage) { stage.weights = stage.optimizer = 2; });
  ReportInput input = subject.Input();
  input.runs[0].memory_by_kind = MemoryByKind({subject.schedule, subject.timeline, {}, costs, 0});
  const Json page = DataOf(RenderHtml(input).value());
  const Json& run = page["runs"][0];
  ASSERT_EQ(run["memory"].size(), 3U);
  EXPECT_EQ(run["memory"][0]["name"], "weights");
  EXPECT_EQ(run["memory"][1]["name"], "optimizer");
  EXPECT_EQ(run["memory"][2]["name"], "activations");
  EXPECT_EQ(run["peak"], Json({7, 6, 5}));
}

TEST(Paper, OpsDifferInBrightness) {
  std::vector<double> levels;  // from 0 to 255 (ITU-R BT.601)
  for (const Op op : {Op::kForward, Op::kBackwardWeight, Op::kBackwardInput, Op::kBackward}) {
    const Color color = PaperBlockColor(op, 0, 1);
    levels.push_back(0.299 * color.red + 0.587 * color.green + 0.114 * color.blue);
  }
  for (std::size_t i = 1; i < levels.size(); ++i) EXPECT_GE(levels[i - 1] - levels[i], 30);
  EXPECT_GE(levels.front() - levels.back(), 100);
}

TEST(Svg, OfAPaperColumnFitsItsWidth) {
  const Subject subject(Named("zbv", 4, 8));
  ReportInput input = subject.Input();
  input.width = 345;
  const std::string narrow = RenderSvg(input).value();
  EXPECT_EQ(narrow.find("idle)"), std::string::npos);
  EXPECT_NE(narrow.find(">rank 3</text>"), std::string::npos);
  EXPECT_EQ(narrow.find("a &lt;title&gt;"), std::string::npos);  // a paper has captions
  input.for_paper = true;
  const std::string paper = RenderSvg(input).value();
  EXPECT_NE(paper.find(Hex(PaperBlockColor(Op::kForward, 0, 2))), std::string::npos);
  EXPECT_EQ(paper.find(Hex(BlockColor(Op::kForward, 0, 2))), std::string::npos);
}

TEST(HtmlReport, UserTextCannotBreakThePage) {
  const Subject subject(WithPair());
  ReportInput input = subject.Input();
  const std::string nasty = "</script><script>alert(1)</script>\"'\\ \xff";
  input.subtitle = nasty;
  input.runs[0].label = nasty;
  input.figures.push_back({nasty, nasty, nasty});
  input.plots.push_back({nasty, nasty, nasty, {{nasty, {{0, 1}, {1, 2}}}}});
  input.tables.push_back({nasty, {nasty}, {{nasty}}});
  input.passages.push_back({nasty, nasty});
  const std::string page = RenderHtml(input).value();
  EXPECT_EQ(page.find("<script>alert"), std::string::npos);
  EXPECT_EQ(Count(page, "</script>"), 2U);
  EXPECT_EQ(DataOf(page)["plots"][0]["series"][0]["points"], Json({{0, 1}, {1, 2}}));
}

TEST(HtmlReport, TwoRunsAreCompared) {
  const Subject subject(Named("1f1b", 3, 4));
  ReportInput input = subject.Input();
  EXPECT_EQ(RenderHtml(input)->find("Predicted and measured"), std::string::npos);
  input.runs.push_back(input.runs[0]);
  input.runs[1].label = "measured";
  const std::string page = RenderHtml(input).value();
  EXPECT_NE(page.find("Predicted and measured"), std::string::npos);
  EXPECT_NE(page.find("id=\"run1\""), std::string::npos);
  EXPECT_EQ(DataOf(page)["runs"][1]["label"], "measured");
}

TEST(HtmlReport, PlotsSkipNonFinitePoints) {
  const Subject subject(Named("1f1b", 2, 2));
  ReportInput input = subject.Input();
  const double infinity = std::numeric_limits<double>::infinity();
  input.plots.push_back({"none", "x", "y", {}});
  input.plots.push_back({"empty", "x", "y", {{"a", {}}}});
  input.plots.push_back({"one", "x", "y", {{"a", {{3, 3}}}}});
  input.plots.push_back({"lost", "x", "y", {{"a", {{0, infinity}, {1, -infinity}, {2, 5}}}}});
  const std::string page = RenderHtml(input).value();
  EXPECT_EQ(page.find("inf"), page.find("infinite"));  // only the word in the page's script
  EXPECT_EQ(page.find(">nan<"), std::string::npos);
  EXPECT_EQ(DataOf(page)["plots"][3]["series"][0]["points"], Json::array({{2, 5}}));
}

TEST(Svg, DrawsOneBoxPerPartAndStaysSmallWithManyActions) {
  const Subject pair(WithPair());
  const std::string small = RenderSvg(pair.Input()).value();
  EXPECT_EQ(small.find("<title>"), std::string::npos);  // the title is escaped
  EXPECT_NE(small.find("a &lt;title&gt; &amp; &quot;more&quot;"), std::string::npos);
  // Background, 2 idle rows, 9 parts, 4 swatches.
  EXPECT_EQ(Count(small, "<rect"), 1U + 2 + 8 + 4);

  const Subject many(Named("1f1b", 4, 20000));
  EXPECT_LT(RenderSvg(many.Input())->size(), std::size_t{3} << 20);
}

TEST(Svg, ByRankGroupsTheRowsOfAllRuns) {
  const Subject predicted(Named("zbv", 4, 8));
  const Subject measured(Named("zbv", 4, 8));
  ReportInput input = predicted.Input();
  input.runs.push_back(measured.Input().runs.front());
  input.runs.back().label = "measured";
  const std::string apart = RenderSvg(input).value();
  input.by_rank = true;
  const std::string together = RenderSvg(input).value();
  EXPECT_EQ(Count(together, "<rect"), Count(apart, "<rect"));
  std::size_t at = 0;
  for (const char* row : {"rank 0  predicted", "rank 0  measured", "rank 1  predicted",
                          "rank 1  measured", "rank 3  measured"}) {
    at = together.find(row, at);
    ASSERT_NE(at, std::string::npos) << row;
  }
  const Subject other(Named("zbv", 2, 8));
  input.runs.back() = other.Input().runs.front();
  input.runs.back().schedule = &other.schedule;
  EXPECT_EQ(RenderSvg(input).error().code, ErrorCode::kInvalidArgument);
}

TEST(Svg, PlotIsAWholeSvgAndShowsALonePointAsADot) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::string picture = RenderPlot({"loss",
                                          "step",
                                          "nats per byte",
                                          {{"training", {{0, 5}, {1, 3}, {2, 2}}},
                                           {"held out", {{1, nan}, {2, 2.5}}},
                                           {"a < b", {{0, 3}, {2, 3}}}}});
  EXPECT_TRUE(picture.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\""));
  EXPECT_EQ(Count(picture, "<polyline"), 2U);
  EXPECT_EQ(Count(picture, "<circle"), 1U);
  EXPECT_EQ(Count(picture, "nan"), 0U);
  EXPECT_EQ(Count(picture, ">a &lt; b<"), 1U);
}

TEST(Svg, PlotOverNamesHasTheirTicksAndDotsWithTooltips) {
  const Plot plot{
      "peak", "size", "GiB", {{"1f1b", {{0, 4}, {1, 4.5}, {2, 6}}}}, {"1GiB", "2GiB", "a<b"}};
  const std::string picture = RenderPlot(plot);
  for (const char* tick : {">1GiB<", ">2GiB<", ">a&lt;b<", "1f1b, size 2GiB: 4.5"}) {
    EXPECT_EQ(Count(picture, tick), 1U) << tick;
  }
  EXPECT_EQ(Count(picture, "<circle"), 3U);
  EXPECT_EQ(Count(picture, ">1<"), 0U);  // no ticks of the indices
}

TEST(Svg, NamesOfManySeriesAreBelowThePlot) {
  Plot plot{"loss", "step", "loss", {}};
  for (int i = 0; i < 20; ++i) {
    plot.series.push_back({fmt::format("series {}", i), {{0, i}, {1, i + 1}}});
  }
  const std::string picture = RenderPlot(plot);
  for (const Series& series : plot.series) {
    EXPECT_EQ(Count(picture, ">" + series.name + "<"), 1U);
  }
  EXPECT_GT(Count(picture, "stroke-dasharray=\"7 3\""), 7U);  // lines, and their samples
  EXPECT_EQ(Count(picture, "height=\"300\""), 0U);
}

TEST(ChromeTrace, HasEventsCountersAndNames) {
  const Subject subject(AddCommunication(Named("1f1b", 3, 4)));
  ReportInput input = subject.Input();
  input.time_unit = "s";
  const Json trace = Json::parse(RenderChromeTrace(input).value());
  std::size_t actions = 0;
  std::size_t counters = 0;
  std::size_t names = 0;
  for (const Json& event : trace["traceEvents"]) {
    actions += event["ph"] == "X" ? 1 : 0;
    counters += event["ph"] == "C" ? 1 : 0;
    names += event["ph"] == "M" ? 1 : 0;
    if (event["name"] == "1B3") {
      EXPECT_EQ(event["args"], Json({{"stage", 1}, {"microbatch", 3}}));
      EXPECT_EQ(event["dur"], 2e6);
    }
  }
  EXPECT_EQ(actions, 24U);  // messages take no time
  EXPECT_GE(counters, 3U * (4 + 1));
  EXPECT_EQ(names, 1U + 3);
}

TEST(Report, RefusesInconsistentInput) {
  const Subject subject(Named("1f1b", 3, 4));
  const auto refused = [](const ReportInput& input) {
    const auto page = RenderHtml(input);
    return !page && page.error().code == ErrorCode::kInvalidArgument && !RenderSvg(input) &&
           !RenderChromeTrace(input);
  };
  EXPECT_TRUE(refused({}));
  ReportInput input = subject.Input();
  EXPECT_FALSE(refused(input));
  input.runs[0].timeline = nullptr;
  EXPECT_TRUE(refused(input));

  Timeline timeline = subject.timeline;
  input.runs[0].timeline = &timeline;
  timeline.spans[1].pop_back();
  EXPECT_TRUE(refused(input));
  timeline = subject.timeline;
  timeline.spans[1][0].end = std::numeric_limits<double>::quiet_NaN();
  EXPECT_TRUE(refused(input));
  timeline = subject.timeline;
  timeline.spans[2][1] = {5, 4};
  EXPECT_TRUE(refused(input));
  timeline = subject.timeline;
  input.runs[0].memory.pop_back();
  EXPECT_TRUE(refused(input));
}

TEST(Report, FormatFollowsTheFileExtension) {
  const Subject subject(Named("1f1b", 2, 2));
  const std::filesystem::path folder =
      std::filesystem::path(testing::TempDir()) / ("penstock_report_" + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  const auto head = [&](const char* name) {
    const std::string path = (folder / name).string();
    EXPECT_TRUE(WriteReport(subject.Input(), path));
    return ReadFile(path).value_or("").substr(0, 9);
  };
  EXPECT_EQ(head("a.html"), "<!DOCTYPE");
  EXPECT_EQ(head("a.svg"), "<svg xmln");
  EXPECT_EQ(head("a.trace.json"), "{\"display");
  for (const char* name : {"a.json", "a", ".htm", "a.html.gz"}) {
    EXPECT_EQ(WriteReport(subject.Input(), (folder / name).string()).error().code,
              ErrorCode::kInvalidArgument);
  }
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace penstock
