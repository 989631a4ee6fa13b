// What the playground's page asks, and that no question brings it down.
#include "playground/playground.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "scenario/figures/simulated_json.h"
#include "scenario/price/simulated.h"
#include "schedule/catalog.h"

namespace penstock::playground {
namespace {

using Json = nlohmann::ordered_json;

Json Fields(const Json& more = {}) {
  Json fields = {{"ranks", "4"}, {"microbatches", "8"}, {"cost", "1,1.5,0.5"}};
  if (more.is_object()) fields.update(more);
  return fields;
}

Json AskFor(Json question) { return Json::parse(Ask(question.dump())); }

Json Show(const std::string& schedule, const Json& fields = Fields()) {
  return AskFor({{"ask", "show"}, {"schedule", schedule}, {"fields", fields}});
}

std::vector<std::string> Names() {
  std::vector<std::string> names;
  for (const Algorithm& algorithm : Catalog()) names.emplace_back(algorithm.name);
  return names;
}

class EverySchedule : public ::testing::TestWithParam<std::string> {};

TEST_P(EverySchedule, HasTheFiguresOfTheProgram) {
  const Json shown = Show(GetParam());
  ASSERT_TRUE(shown.contains("exact")) << shown;
  Scenario scenario;
  scenario.ranks = 4;
  scenario.microbatches = 8;
  scenario.cost = "1,1.5,0.5";
  scenario.schedules = {{Candidate::Kind::kAlgorithm, GetParam()}};
  auto all = SimulateEach(Build(scenario, {}).value(), true).value();
  EXPECT_EQ(shown["exact"], ToJson(all.front(), false));
}

TEST_P(EverySchedule, HasTheSameFiguresAsText) {
  const Json shown = Show(GetParam());
  const Json read = AskFor({{"ask", "show"}, {"csv", shown["csv"]}, {"fields", Fields()}});
  ASSERT_TRUE(read.contains("exact")) << read;
  for (const char* const figure : {"makespan", "bubble", "peak_memory", "messages", "actions"}) {
    EXPECT_EQ(read["exact"][figure], shown["exact"][figure]) << figure;
  }
}

TEST_P(EverySchedule, IsNotBelowItsBound) {
  const Json shown = Show(GetParam());
  if (shown["bound"].is_null()) return;
  EXPECT_GE(shown["exact"]["makespan"].get<double>(), shown["bound"].get<double>() * (1 - 1e-9));
}

TEST_P(EverySchedule, TellsThePlacesOfAnAction) {
  const Json shown = Show(GetParam());
  const Json base = {{"csv", shown["csv"]}, {"fields", Fields()}};
  for (const int from : {0, 3, 5}) {
    Json question = base;
    question.update({{"ask", "places"}, {"rank", 1}, {"from", from}});
    const Json told = AskFor(question);
    ASSERT_TRUE(told.contains("places")) << told;
    const int size = static_cast<int>(shown["positions"][1].size());
    std::vector<bool> legal(static_cast<std::size_t>(size));
    for (const Json& place : told["places"]) {
      question.update({{"ask", "move"}, {"to", place["to"]}});
      const Json moved = AskFor(question);
      ASSERT_TRUE(moved.contains("exact")) << moved;
      EXPECT_EQ(moved["exact"]["makespan"], place["makespan"]);
      EXPECT_EQ(moved["exact"]["peak_memory"], place["peak_memory"]);
      legal[place["to"].get<std::size_t>()] = true;
    }
    for (int to = 0; to < size; ++to) {
      if (legal[static_cast<std::size_t>(to)]) continue;
      question.update({{"ask", "move"}, {"to", to}});
      EXPECT_TRUE(AskFor(question).contains("faults")) << "from " << from << " to " << to;
      EXPECT_NE(told[to < from ? "before" : "after"], "");
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Catalog, EverySchedule, ::testing::ValuesIn(Names()),
                         [](const auto& tested) {
                           std::string name = tested.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

TEST(PlaygroundTest, ImprovesAPoorOrder) {
  // Each W follows its I, where ZB-H1 moves it into the drain.
  const std::string poor =
      "0F0,0F1,0F2,0I0,0W0,0F3,0I1,0W1,0I2,0W2,0I3,0W3\n"
      "1F0,1F1,1I0,1W0,1F2,1I1,1W1,1F3,1I2,1W2,1I3,1W3\n"
      "2F0,2I0,2W0,2F1,2I1,2W1,2F2,2I2,2W2,2F3,2I3,2W3\n";
  const Json base = {{"csv", poor}, {"fields", {{"cost", "1,1,1"}}}};
  Json question = base;
  question["ask"] = "show";
  const Json before = AskFor(question);
  question["ask"] = "improve";
  const Json after = AskFor(question);
  ASSERT_TRUE(after.contains("exact")) << after;
  EXPECT_LT(after["exact"]["makespan"], before["exact"]["makespan"]);
  EXPECT_LE(after["exact"]["peak_memory"], before["exact"]["peak_memory"]);
}

TEST(PlaygroundTest, RecognizesASchedule) {
  const Json shown = Show("zb-h1");
  const Json named = AskFor({{"ask", "name"}, {"csv", shown["csv"]}, {"fields", Fields()}});
  EXPECT_NE(std::ranges::find(named["names"], "zb-h1"), named["names"].end()) << named;
}

TEST(PlaygroundTest, NamesTheFieldOfAnError) {
  EXPECT_EQ(Show("1f1b", Fields({{"ranks", "0"}}))["error"]["field"], "ranks");
  EXPECT_EQ(Show("1f1b", Fields({{"cost", "x"}}))["error"]["field"], "cost");
  EXPECT_EQ(Show("1f1b", Fields({{"chunks", "2"}}))["error"]["field"], "chunks");
  EXPECT_TRUE(Show("nothing").contains("error"));
  EXPECT_TRUE(Show("1f1b", Fields({{"ranks", "512"}, {"microbatches", "4096"}})).contains("error"));
}

TEST(PlaygroundTest, PricesStagesAndPasses) {
  Json stages = Json::array();
  for (int stage = 0; stage < 4; ++stage) {
    stages.push_back(
        {{"forward", 1 + stage}, {"backward_input", 1}, {"backward_weight", 1}, {"activation", 1}});
  }
  const Json uneven = AskFor({{"ask", "show"},
                              {"schedule", "1f1b"},
                              {"stage_costs", stages},
                              {"fields", {{"ranks", "4"}, {"microbatches", "8"}}}});
  ASSERT_TRUE(uneven.contains("exact")) << uneven;
  EXPECT_GT(uneven["exact"]["makespan"], 8 * 6);
  const Json passed = Show("1f1b", Fields({{"pass", {"optimizer"}}}));
  ASSERT_TRUE(passed.contains("exact")) << passed;
  EXPECT_EQ(passed["csv"].get<std::string>().find("STEP"), std::string::npos);
}

// Any bytes of a question, and any lanes of a text, have an answer in JSON.
TEST(PlaygroundTest, AnswersAnything) {
  std::mt19937 random(1);
  const auto below = [&](std::size_t count) { return random() % count; };
  const std::string alphabet = "0123456789FIWB,;()\"\n =_-{}[]:";
  std::vector<std::string> texts;
  for (const std::string& name : Names()) texts.push_back(Show(name)["csv"]);
  for (int i = 0; i < 10'000; ++i) {
    std::string text = texts[below(texts.size())];
    for (std::size_t changes = 1 + below(4); changes > 0; --changes) {
      const std::size_t at = below(text.size());
      const std::size_t kind = below(3);
      if (kind == 0) text[at] = alphabet[below(alphabet.size())];
      if (kind == 1) text.erase(at, 1 + below(12));
      if (kind == 2) text.insert(at, text.substr(below(text.size()), 1 + below(12)));
      if (text.empty()) text = "0";
    }
    const Json answer = AskFor({{"ask", "show"}, {"csv", text}, {"fields", Fields()}});
    EXPECT_TRUE(answer.contains("exact") || answer.contains("faults") || answer.contains("error"));
  }
  for (int i = 0; i < 2'000; ++i) {
    std::string text =
        R"({"ask":"places","schedule":"zbv","fields":{"ranks":"4"},"rank":1,"from":2})";
    text[below(text.size())] = static_cast<char>(random());
    EXPECT_TRUE(Json::accept(Ask(text))) << text;
  }
}

}  // namespace
}  // namespace penstock::playground
