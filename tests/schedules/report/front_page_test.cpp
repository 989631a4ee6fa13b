#include "report/front_page.h"

#include <gtest/gtest.h>

#include "report/front_chart.h"
#include "schedule/catalog.h"

namespace penstock {
namespace {

bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

class FrontPageTest : public testing::Test {
 protected:
  FrontPageTest() {
    schedule_ = Generate("1f1b", {.ranks = 3, .microbatches = 4}).value();
    costs_ = Costs::Uniform(schedule_.placement, schedule_.slices, 1, 1, 1);
    result_ = Simulate(schedule_, costs_, {.timeline = &timeline_}).value();
    page_.report.title = "a <title>";
    page_.report.schedule = &schedule_;
    page_.report.runs.push_back(
        {"Plan 1", &timeline_, result_, MemoryOverTime(schedule_, timeline_, costs_)});
    page_.plans.resize(2);
    page_.plans[0].name = "fast & large";
    page_.plans[0].time = 10;
    page_.plans[0].memory = 4;
    page_.plans[0].command = "penstock simulate 'a<b'";
    page_.plans[0].run = 0;
    page_.plans[1].name = "slow";
    page_.plans[1].time = 20;
    page_.plans[1].memory = 2;
    page_.plans[1].csv_name = "plan-2.csv";
    page_.plans[1].csv = "0F0,\"a\" %#\n";
    page_.plans[1].missing = "too <large>";
  }

  Schedule schedule_;
  Costs costs_;
  Timeline timeline_;
  SimulationResult result_;
  FrontPage page_;
};

TEST_F(FrontPageTest, ShowsTheFirstPlanAndHidesTheOthers) {
  page_.first = 1;
  const std::string html = RenderFront(page_).value();
  EXPECT_TRUE(Has(html, R"(<section class="card plan" data-plan="1" hidden>)"));
  EXPECT_TRUE(Has(html, R"(<section class="card plan" data-plan="2">)"));
  EXPECT_TRUE(Has(html, R"(<div class="plan" data-plan="1" hidden><div class="run">)"));
  EXPECT_TRUE(
      Has(html, R"(<div class="plan" data-plan="2"><p class="hint">too &lt;large&gt;</p>)"));
}

TEST_F(FrontPageTest, EscapesTextAndFiles) {
  const std::string html = RenderFront(page_).value();
  EXPECT_TRUE(Has(html, "<title>a &lt;title&gt; - Penstock</title>"));
  EXPECT_TRUE(Has(html, "Plan 1: fast &amp; large"));
  EXPECT_TRUE(Has(html, "penstock simulate 'a&lt;b'</pre>"));
  EXPECT_TRUE(Has(html, R"(download="plan-2.csv" href="data:text/csv;charset=utf-8,)"
                        R"(0F0,%22a%22%20%25%23%0A")"));
}

TEST_F(FrontPageTest, RowsOfTablesLeadToTheirPlans) {
  page_.report.tables = {{"front", {"schedule"}, {{"a"}}},
                         {"empty", {"schedule"}, {}},
                         {"others", {"schedule"}, {{"b"}}}};
  const std::string html = RenderFront(page_).value();
  EXPECT_TRUE(Has(html, R"(<a href="#plan=1">1</a></th><td>a</td>)"));
  EXPECT_TRUE(Has(html, R"(<a href="#plan=2">2</a></th><td>b</td>)"));
  EXPECT_FALSE(Has(html, "<h2>empty</h2>"));
}

TEST_F(FrontPageTest, APageMayHaveNoTimelines) {
  page_.report.runs.clear();
  page_.report.schedule = nullptr;
  page_.plans[0].run.reset();
  const std::string html = RenderFront(page_).value();
  EXPECT_FALSE(Has(html, "<canvas"));
  EXPECT_TRUE(Has(html, "\"runs\":[]"));
}

TEST_F(FrontPageTest, RunsMustMatchTheirSchedule) {
  page_.report.runs[0].timeline = nullptr;
  EXPECT_TRUE(Has(RenderFront(page_).error().line(), "has no timeline"));
}

TEST_F(FrontPageTest, TheChartNamesALimitThatIsFarAway) {
  page_.memory_limit = 5;
  EXPECT_TRUE(Has(FrontSvg(page_), R"(<line class="limit")"));
  page_.memory_limit = 50;
  const std::string svg = FrontSvg(page_);
  EXPECT_FALSE(Has(svg, R"(<line class="limit")"));
  EXPECT_TRUE(Has(svg, "memory limit 50 &#8594;"));
}

TEST_F(FrontPageTest, BoundsAreStepsOverMemory) {
  EXPECT_FALSE(Has(FrontSvg(page_), "lower bound"));
  page_.bounds = {{2, 15}, {4, 9}};
  const std::string svg = FrontSvg(page_);
  EXPECT_TRUE(Has(svg, "lower bound 9</text>"));
  const std::size_t at = svg.find(R"(class="bound" d="M)");
  ASSERT_NE(at, std::string::npos);
  const std::string path = svg.substr(at, svg.find("/>", at) - at);
  EXPECT_EQ(std::ranges::count(path, 'H'), 2);
  EXPECT_EQ(std::ranges::count(path, 'V'), 1);
}

TEST_F(FrontPageTest, OthersAreNoPartOfTheFront) {
  page_.plans[1].in_front = false;
  page_.plans[1].note = "+100%: bubble";
  const std::string svg = FrontSvg(page_);
  EXPECT_TRUE(Has(svg, R"(1 plan of the front, 1 that lost)"));
  EXPECT_TRUE(Has(svg, R"(memory 2; +100%: bubble" class="other">)"));
}

}  // namespace
}  // namespace penstock
