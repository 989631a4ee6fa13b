#include "report/table.h"

#include <gtest/gtest.h>

#include <cmath>

namespace penstock {
namespace {

TEST(Table, ColumnsAreAlignedAndFiguresFlushRight) {
  const Table table{"Title", {"schedule", "makespan"}, {{"1f1b", "117"}, {"é", "5.25 ms"}}};
  EXPECT_EQ(FormatTable(table),
            "Title\n"
            "schedule  makespan\n"
            "--------  --------\n"
            "1f1b           117\n"
            "é          5.25 ms\n");
}

TEST(Table, NamesThatBeginWithADigitAreNotFigures) {
  const Table table{"",
                    {"a", "b", "c", "d", "e"},
                    {{"1f1b", "+1.5", "12%", "-", "0.87x"}, {"x", "-2", "", "3 s", "-"}}};
  EXPECT_EQ(FigureColumns(table), (std::vector<bool>{false, true, true, true, true}));
}

TEST(Table, FiguresOfAnySizeAreReadable) {
  const std::pair<double, const char*> figures[] = {
      {0, "0"},      {-0.0, "0"},         {117, "117"},      {-11.5, "-11.5"}, {1e-17, "0"},
      {-1e-17, "0"}, {1.5e-6, "1.5e-06"}, {-2e-5, "-2e-05"}, {5e-5, "0.0001"}, {1e20, "1e+20"}};
  for (const auto& [value, text] : figures) EXPECT_EQ(FormatNumber(value), text);
  EXPECT_EQ(FormatAmount(-1.392216597, "s"), "-1.392 s");
  EXPECT_EQ(FormatAmount(-3 * 0x1p30, "B"), "-3.00 GiB");
  EXPECT_EQ(WithSign("3 ms"), "+3 ms");
  for (const char* as_it_is : {"-3 ms", "0 ms", "0.0 s", "-"})
    EXPECT_EQ(WithSign(as_it_is), as_it_is);
}

TEST(Table, BestValuesAreMarkedAndBoldOnATerminal) {
  const Table table{"", {"a", "b"}, {{"x", "1.5"}, {"y", "12"}}, {{0, 1}}};
  EXPECT_EQ(FormatTable(table),
            "a     b\n"
            "-  ----\n"
            "x  1.5*\n"
            "y   12\n");
  EXPECT_EQ(FormatTable(table, TableStyle::kTerminal),
            "a     b\n"
            "-  ----\n"
            "x  \x1b[1m1.5*\x1b[0m\n"
            "y   12\n");
  EXPECT_EQ(FormatTableCsv(table), "a,b\nx,1.5\ny,12\n");
}

TEST(Table, CsvQuotesSpecialCharacters) {
  const Table table{"Title", {"a", "b"}, {{"1,5", "say \"so\""}, {"plain", "two\nlines"}}};
  EXPECT_EQ(FormatTableCsv(table), "a,b\n\"1,5\",\"say \"\"so\"\"\"\nplain,\"two\nlines\"\n");
}

TEST(Table, FormatsNumbers) {
  EXPECT_EQ(FormatNumber(117), "117");
  EXPECT_EQ(FormatNumber(11.5), "11.5");
  EXPECT_EQ(FormatNumber(100), "100");
  EXPECT_EQ(FormatNumber(1.0 / 3), "0.3333");
  EXPECT_EQ(FormatNumber(-1e-17), "0");
  EXPECT_EQ(FormatNumber(2.5, 0), "2");
  EXPECT_EQ(FormatNumber(std::nan("")), "-");
  EXPECT_EQ(FormatPercent(0.1795), "17.9%");
  EXPECT_EQ(FormatPercent(-1e-16), "0.0%");
  EXPECT_EQ(FormatAmount(0.0124, "s"), "12.4 ms");
  EXPECT_EQ(FormatAmount(0, "s"), "0 s");
  EXPECT_EQ(FormatAmount(1536, "B"), "1.50 KiB");
  EXPECT_EQ(FormatAmount(1.5, ""), "1.5");
}

TEST(Table, ComparesPredictedAndMeasured) {
  SimulationResult predicted = {.makespan = 2,
                                .bubble = 0.25,
                                .peak_memory = 1024,
                                .ranks = {{1.5, 0, 2, 1024}, {1, 0.5, 1.5, 0}}};
  SimulationResult measured = predicted;
  measured.makespan = 3;
  measured.ranks[0].busy = 1.8;
  const Table table = PredictedMeasuredTable(predicted, measured, "s", "B");
  ASSERT_EQ(table.rows.size(), 3U);
  for (const auto& row : table.rows) ASSERT_EQ(row.size(), table.columns.size());
  EXPECT_EQ(table.rows[0], (std::vector<std::string>{"0", "1.500 s", "1.800 s", "1.2", "25.0%",
                                                     "40.0%", "1.000 KiB", "1.000 KiB", "1"}));
  EXPECT_EQ(table.rows[1].back(), "-");  // without a prediction there is no ratio
  EXPECT_EQ(table.rows[2][3], "1.5");
}

TEST(AmountFormatTest, AllAmountsOfATableHaveTheUnitOfTheLargest) {
  const AmountFormat seconds = FormatLike(2.7857, "s");
  EXPECT_EQ(seconds(2.7857), "2.786 s");
  EXPECT_EQ(seconds(0.0031), "0.003 s");
  EXPECT_EQ(seconds(0), "0 s");
  EXPECT_EQ(FormatLike(0.0124, "s")(0.0124), "12.40 ms");
  EXPECT_EQ(FormatLike(0.99996, "s")(0.99996), "1.000 s");
  EXPECT_EQ(FormatLike(3e-10, "s")(3e-10), "0.300 ns");
  EXPECT_EQ(FormatLike(512, "B")(512), "512 B");
  EXPECT_EQ(FormatLike(3.0 * 0x1p30, "B")(0x1p20), "0.001 GiB");
  EXPECT_EQ(FormatLike(117, "")(11.5), "11.5");
}

std::size_t WidestLine(const std::string& text) { return WidthOf(text); }

TEST(FitTableTest, NoTableIsWiderThanTheTerminalAndNoFigureIsLost) {
  Table table;
  table.title = "Title";
  table.columns = {"schedule", "peak activations", "tokens per second", "why it loses", "bytes"};
  table.rows = {{"1f1b", "12", "4711", "a reason of several words that takes much room", "1 GiB"},
                {"zbv", "8", "815", "short", "23.5 GiB"}};
  table.best = {{1, 1}};
  const std::string whole = FormatTable(table);
  EXPECT_EQ(FormatTable(table, TableStyle::kPlain, 200), whole);
  for (std::size_t width = WidestLine(whole); width >= 34; --width) {
    const std::string text = FormatTable(table, TableStyle::kPlain, width);
    EXPECT_LE(WidestLine(text), width) << text;
    for (const char* const word : {"Title", "12", "8*", "4711", "815", "reason", "room", "1 GiB",
                                   "23.5 GiB", "activations", "bytes"}) {
      EXPECT_NE(text.find(word), std::string::npos) << word << " at " << width << "\n" << text;
    }
  }
}

}  // namespace
}  // namespace penstock
