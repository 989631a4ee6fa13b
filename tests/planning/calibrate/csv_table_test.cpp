#include "calibrate/csv_table.h"

#include <gtest/gtest.h>

#include "tests/results.h"

namespace penstock {
namespace {

std::string Refusal(std::string_view text) { return LineOf(ParseCsvTable(text)); }

TEST(CsvTable, ReadsCellsAsSpreadsheetsWriteThem) {
  const auto table = ParseCsvTable(
      "\xEF\xBB\xBF"
      "a, b ,c\r\n"
      "1,\"x,\"\"y\"\"\",\t3\r\n"
      "\r\n"
      ",,\n");
  ASSERT_TRUE(table);
  EXPECT_EQ(table->columns, (std::vector<std::string>{"a", "b", "c"}));
  ASSERT_EQ(table->rows.size(), 2u);
  EXPECT_EQ(table->rows[0].cells, (std::vector<std::string>{"1", "x,\"y\"", "3"}));
  EXPECT_EQ(table->rows[1].line, 4);
  const CsvRow row(*table, 0);
  EXPECT_EQ(row.Text("b"), "x,\"y\"");
  EXPECT_EQ(row.Text("d"), "");
  EXPECT_EQ(*row.Count("a"), 1);
  EXPECT_FALSE(CsvRow(*table, 1).Has("a"));
}

TEST(CsvTable, RefusesWhatIsNoTable) {
  EXPECT_EQ(Refusal(""), "the table is empty");
  EXPECT_EQ(Refusal("\n\n"), "the table is empty");
  EXPECT_EQ(Refusal("a,b\n"), "the table has a header and no rows");
  EXPECT_EQ(Refusal("a,\n1,2\n"), "line 1: column 2 has no name");
  EXPECT_EQ(Refusal("a,a\n1,2\n"), "line 1: column 'a' is given twice");
  EXPECT_EQ(Refusal("a,b\n1\n"), "line 2: the row has 1 cells, the header 2");
  EXPECT_EQ(Refusal("a,b\n1,2,3\n"), "line 2: the row has 3 cells, the header 2");
  EXPECT_NE(Refusal("a\n\"1\n").find("line 2: a quoted cell does not end"), std::string::npos);
  EXPECT_NE(Refusal("a\n\"1\"2\n").find("line 2: '2' follows a quoted cell"), std::string::npos);
  EXPECT_NE(Refusal(std::string_view("a\n1\0\n", 5)).find("line 2: "), std::string::npos);
  EXPECT_NE(Refusal("a\n\xff\xfe\n").find("is not text"), std::string::npos);
}

TEST(CsvTable, NumbersNameTheirColumn) {
  const auto table = ParseCsvTable("a,b,c,d\n4.0,0,x,1e40\n");
  ASSERT_TRUE(table);
  const CsvRow row(*table, 0);
  EXPECT_EQ(*row.Count("a"), 4);
  EXPECT_EQ(row.Count("b").error().line(), "b '0': a whole number of at least 1 is needed");
  EXPECT_EQ(row.Number("c").error().line(), "c 'x': a number is needed");
  EXPECT_EQ(row.Positive("b").error().line(), "b '0': more than 0 is needed");
  EXPECT_FALSE(row.Count("d"));
  EXPECT_EQ(row.Number("e").error().line(), "e: a number is needed, the cell is empty");
}

}  // namespace
}  // namespace penstock
