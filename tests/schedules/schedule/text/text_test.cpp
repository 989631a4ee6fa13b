#include "schedule/text/text.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <set>

#include "base/notes.h"
#include "schedule/passes/passes.h"
#include "schedule/text/lost_header.h"
#include "tests/results.h"
#include "tests/schedules/schedule/make_schedules.h"

namespace penstock::testing {
namespace {

namespace fs = std::filesystem;

TEST(Text, EveryCellReadsBackAsItself) {
  for (int op = 0; op < kOpCount; ++op) {
    const Action action =
        MakeAction(static_cast<Op>(op), 12, HasMicrobatch(static_cast<Op>(op)) ? 345 : -1);
    const auto back = ValueOf(ParseAction(ToText(action)));
    EXPECT_EQ(back, action) << ToText(action);
  }
  EXPECT_EQ(ToText(Overlap(Forward(0, 0), Backward(1, 1))), "(0F0;1B1)OVERLAP_F_B");
  EXPECT_EQ(ParseAction(" ( 0B0 ; 1F1 )OVERLAP_F_B "), Overlap(Backward(0, 0), Forward(1, 1)));
  EXPECT_EQ(ToText(MakeAction(Op::kUnshard, 3)), "3UNSHARD");
  EXPECT_EQ(ToText(MakeAction(Op::kSendForward, 3, 1)), "3SEND_F1");
}

TEST(Text, RefusesInvalidCellsAndNamesThem) {
  for (const char* cell : {"",
                           "F",
                           "0",
                           "0F",
                           "F0",
                           "0X1",
                           "0f1",
                           "-1F0",
                           "0F-1",
                           "0F1x",
                           "65536F0",
                           "0F99999999999",
                           "99999999999999999999F0",
                           "1UNSHARD3",
                           "(0F0;1B1)",
                           "(0F0)OVERLAP_F_B",
                           "(0F0;1F1)OVERLAP_F_B",
                           "(0F0;1B1;1W1)OVERLAP_F_B",
                           "(0F0;1SEND_B1)OVERLAP_F_B",
                           "((0F0;1B1)OVERLAP_F_B;0F0)OVERLAP_F_B",
                           "0 F0",
                           "\xff\x01"}) {
    EXPECT_FALSE(ParseAction(cell)) << cell;
  }
  EXPECT_TRUE(Refused(ParseCsv("0F0,0B0\n1F0,1G0\n"), "line 2, column 2: '1G0'"));
  const auto noise = ParseCsv(std::string(10000, 'x'));
  ASSERT_FALSE(noise);
  EXPECT_LT(noise.error().line().size(), 200U) << "a long cell is truncated";
}

TEST(Text, ReadsCsvAsPythonWritesIt) {
  // Carriage returns, quotes, blank cells, blank lines at the end, a byte order mark.
  const auto schedule =
      ValueOf(ParseCsv("\xEF\xBB\xBF"
                       "0F0,,0F1, 0B0,0B1\r\n,\"1F0\",1B0,1F1,1B1,\r\n\r\n"));
  EXPECT_EQ(schedule.ranks(), 2);
  EXPECT_EQ(schedule.stages(), 2);
  EXPECT_EQ(schedule.microbatches, 2);
  EXPECT_EQ(WriteCsv(schedule), "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n");
}

std::string FirstLine(const std::string& csv) { return csv.substr(0, csv.find('\n')); }

// The first cell of earlier versions, which spells a header in blanks.
std::string Hidden(std::string_view header) {
  std::string blanks;
  for (const char c : header) {
    for (int bit = 7; bit >= 0; --bit) blanks += (c >> bit & 1) != 0 ? '\t' : ' ';
  }
  return blanks;
}

// Nobody takes a file that lost its header, a lane or the order of its lanes for another schedule.
void ExpectLossesAreRefused(const std::string& csv) {
  const std::size_t first = csv.find('\n') + 1;
  const std::size_t second = csv.find('\n', first) + 1;
  const std::string header = csv.substr(0, first), lane = csv.substr(first, second - first);
  EXPECT_TRUE(Refused(ParseCsv(csv.substr(first)), "line 1, column 1: 'rank=0': the header"));
  EXPECT_TRUE(Refused(ParseCsv(csv.substr(first), {.slices = 2}), "the header"));
  EXPECT_TRUE(Refused(ParseCsv(header + csv.substr(second)), "the lane of rank 0"));
  EXPECT_TRUE(Refused(ParseCsv(csv + lane), "the lane of rank 4"));
}

TEST(Text, EveryScheduleOfTheCatalogRoundTrips) {
  const std::optional<WeightPolicy> policies[] = {WeightPolicy::kFlush, WeightPolicy::kStashed,
                                                  WeightPolicy::kDoubleBuffered};
  std::set<std::string> headers;
  for (const Algorithm& algorithm : Catalog()) {
    for (const int count : {1, 2, 3}) {
      ScheduleParams params = {.ranks = 4,
                               .chunks = 0,
                               .microbatches = 8,
                               .slices = algorithm.supported.slices ? count : 1,
                               .steps = algorithm.supported.steps ? count : 1};
      Schedule schedule = *Generate(algorithm.name, params);
      for (const auto weights : policies) {
        schedule.weights = *weights;
        for (const Schedule& each :
             {schedule, AddCommunication(schedule), PairWherePossible(schedule)}) {
          SCOPED_TRACE(algorithm.name);
          ExpectRoundTrip(each);
          const std::string csv = WriteCsv(each);
          const bool for_torch = schedule.placement.replicas() == 1 && schedule.slices == 1 &&
                                 schedule.steps == 1 && schedule.weights == WeightPolicy::kFlush;
          EXPECT_EQ(FormOfHeader(csv), for_torch ? HeaderForm::kNone : HeaderForm::kLine);
          if (for_torch) continue;
          headers.insert(FirstLine(csv));
          ExpectLossesAreRefused(csv);
        }
      }
    }
  }
  for (const char* header : {"weights=stashed", "weights=double-buffered", "slices=3", "replicas=2",
                             "steps=2,weights=stashed"}) {
    EXPECT_TRUE(headers.contains(header)) << header;
  }
}

TEST(Text, AMissingMicrobatchStaysMissing) {
  Schedule schedule = Make("1f1b", {2, 0, 3});
  for (Lane& lane : schedule.lanes) {
    std::erase_if(lane, [](const Action& action) { return action.first.microbatch == 2; });
  }
  EXPECT_EQ(FirstLine(WriteCsv(schedule)), "microbatches=3");
  ExpectRoundTrip(schedule);
}

TEST(Text, EachRankOfAFileWithAHeaderIsNamed) {
  const Schedule schedule = ValueOf(ParseCsv("slices=2\n0F0,0F1,0B1,0B0\n1F0,1F1,1B1,1B0\n"));
  EXPECT_EQ(WriteCsv(schedule), "slices=2\nrank=0,0F0,0F1,0B1,0B0\nrank=1,1F0,1F1,1B1,1B0\n");
}

TEST(Text, HiddenHeadersOfEarlierVersionsAreRead) {
  const std::string lanes = "0F0,0F1,0B1,0B0\n1F0,1F1,1B1,1B0\n";
  const std::string csv = Hidden("slices=2") + "," + lanes;
  EXPECT_EQ(FormOfHeader(csv), HeaderForm::kHidden);
  EXPECT_EQ(WriteCsv(ValueOf(ParseCsv(csv))), WriteCsv(ValueOf(ParseCsv("slices=2\n" + lanes))));
  EXPECT_EQ(ParseCsv(csv, {.slices = 1})->microbatches, 2) << "an option takes precedence";
}

// The lanes of slices tell of them even if a header was stripped that was hidden.
TEST(Text, LanesOfSlicesLookLikeSlices) {
  for (const Algorithm& algorithm : Catalog()) {
    for (const int slices : {1, 2, 3}) {
      if (slices > 1 && !algorithm.supported.slices) continue;
      for (const int microbatches : {4, 8}) {
        const auto made =
            Generate(algorithm.name,
                     {.ranks = 4, .chunks = 0, .microbatches = microbatches, .slices = slices});
        if (!made || made->placement.replicas() > 1) continue;  // some need 8 microbatches
        Schedule schedule = *made;
        schedule.microbatches *= slices;
        schedule.slices = 1;
        EXPECT_EQ(SeemingSlices(schedule), slices) << algorithm.name << " " << microbatches;
      }
    }
  }
  EXPECT_EQ(SeemingSlices(*ParseCsv("0F0,0F1,0F2,0F3,0B3,0B2,0B1,0B0\n")), 1)
      << "GPipe's paper runs all backwards in reverse order";
}

TEST(Text, HeadersAreReadStrictly) {
  const std::string lanes = "0F0,0B0,0F1,0B1\n";
  for (const char* header :
       {"slices=2", " slices = 2 ", "\"slices=2\",", ",slices=2\r",
        "\xEF\xBB\xBFslices=2,weights=flush,replicas=1,steps=1,microbatches=1"}) {
    const auto schedule = ParseCsv(std::string(header) + "\n" + lanes);
    ASSERT_TRUE(schedule) << header << ": " << schedule.error().line();
    EXPECT_EQ(schedule->slices, 2) << header;
    EXPECT_EQ(schedule->microbatches, 1) << header;
  }
  EXPECT_EQ(ParseCsv("slices=2\n" + lanes, {.slices = 1})->microbatches, 2);
  for (const char* header :
       {"slices=", "slices=0", "slices=-1", "slices=2x", "slices=1073741824", "=2", "slice=2",
        "slices=2,slices=2", "rank=0", "weights=none", "weights=flush,weights=flush",
        "slices=2,0F0", "0F0,slices=2", "slices=2\nslices=2", "\nslices=2", "slices==2"}) {
    EXPECT_TRUE(Refused(ParseCsv(std::string(header) + "\n" + lanes), ", column ")) << header;
  }
  EXPECT_TRUE(
      Contains(ParseCsv("slices=2\n0F0,0B0\n1F0,1G0\n").error().line(), "line 3, column 2: '1G0'"));
}

TEST(Text, OneStrayCellDoesNotMoveItsStage) {
  const auto schedule = ParseCsv("1F0,0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n");
  ASSERT_TRUE(schedule);
  EXPECT_EQ(schedule->placement.rank_of(1), 1);
  const auto faults = Validate(*schedule);
  ASSERT_EQ(faults.size(), 1U);
  EXPECT_EQ(faults[0].rank, 0);
  EXPECT_EQ(faults[0].position, 0);
}

TEST(Text, RefusesOptionsThatDoNotFitTheLanes) {
  const std::string csv = "0F0,0B0\n1F0,1B0\n2F0,2B0\n";
  CsvOptions options = {.replicas = 2};
  EXPECT_FALSE(ParseCsv(csv, options)) << "3 stages do not form two chains of equal length";
  options = {};
  options.slices = 0;
  EXPECT_FALSE(ParseCsv(csv, options));
  options = {};
  options.microbatches = 1 << 20;
  options.slices = options.steps = 1 << 20;
  EXPECT_FALSE(ParseCsv(csv, options));
  EXPECT_FALSE(ParseCsv(""));
  EXPECT_FALSE(ParseCsv("\n,,\n"));
}

TEST(Text, RequireTorchOpsNamesTheOp) {
  Schedule schedule = Make("1f1b", {2, 0, 2});
  EXPECT_TRUE(RequireTorchOps(schedule));
  schedule.lanes[1].push_back(MakeAction(Op::kStep, 1));
  EXPECT_TRUE(Refused(RequireTorchOps(schedule), "STEP"));
  schedule = Make("1f1b", {2, 0, 2});
  schedule.slices = 2;
  EXPECT_FALSE(RequireTorchOps(schedule));
}

class ScheduleFile : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / fmt::format("penstock_text_{}", ::getpid());
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }
  std::string Path(const char* name) const { return (folder_ / name).string(); }
  void Write(const char* name, std::string_view text) const { std::ofstream(Path(name)) << text; }

  fs::path folder_;
};

TEST_F(ScheduleFile, CompanionOfAnEarlierVersionIsRead) {
  auto schedule = ParseCsv("0F0,0B0,0F1,0B1\n", {.slices = 2});
  ASSERT_TRUE(schedule);
  Write("a.csv", "0F0,0B0,0F1,0B1\n");
  Write("a.yaml", "slices: 2\n");
  auto back = LoadSchedule(Path("a.csv"));
  ASSERT_TRUE(back) << back.error().line();
  EXPECT_EQ(back->slices, 2);
  EXPECT_EQ(back->microbatches, 1);
  back = LoadSchedule(Path("a.csv"), {.slices = 1});
  ASSERT_TRUE(back);
  EXPECT_EQ(back->slices, 1) << "an option takes precedence over the file";
  Write("a.csv", "steps=2\n0F0,0B0,0F1,0B1\n");
  EXPECT_EQ(LoadSchedule(Path("a.csv"))->slices, 1) << "a file with a header is complete";

  ASSERT_TRUE(SaveSchedule(*schedule, Path("a.csv")));
  EXPECT_EQ(LoadSchedule(Path("a.csv"))->slices, 2);
  EXPECT_FALSE(fs::exists(Path("a.yaml"))) << "a stale companion would change the meaning";
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), 1)
      << "no temporary file is left";
}

TEST_F(ScheduleFile, AHiddenHeaderIsNoted) {
  TakeNotes();
  Write("a.csv", "slices=2\n0F0,0F1,0B1,0B0\n");
  ASSERT_TRUE(LoadSchedule(Path("a.csv")));
  EXPECT_TRUE(TakeNotes().empty());
  Write("a.csv", Hidden("slices=2") + ",0F0,0F1,0B1,0B0\n");
  EXPECT_EQ(ValueOf(LoadSchedule(Path("a.csv"))).slices, 2);
  const std::vector<std::string> notes = TakeNotes();
  ASSERT_EQ(notes.size(), 1U);
  EXPECT_TRUE(Contains(notes.front(), "works in this release only; write the file again"));
}

TEST_F(ScheduleFile, ForeignCompanionIsRefusedAndKept) {
  Write("b.yaml", "model: llama\n");
  const Schedule schedule = Make("1f1b", {2, 0, 2});
  EXPECT_FALSE(SaveSchedule(schedule, Path("b.csv")));
  EXPECT_FALSE(fs::exists(Path("b.csv")));
  EXPECT_TRUE(fs::exists(Path("b.yaml")));
  Write("b.csv", WriteCsv(schedule));
  EXPECT_TRUE(Refused(LoadSchedule(Path("b.csv")), "unknown key 'model'"));
}

TEST_F(ScheduleFile, BrokenFilesAreRefusedInOneLine) {
  EXPECT_EQ(LoadSchedule(Path("none.csv")).error().code, ErrorCode::kNotFound);
  EXPECT_FALSE(LoadSchedule(folder_.string()));
  EXPECT_FALSE(SaveSchedule(Make("gpipe", {1, 0, 1}), Path("no/such/folder.csv")));
  Write("c.csv", "0F0,0B0\n");
  for (const char* text : {"slices: [1]\n", "slices: -1\n", "slices: x\n", "- 1\n", "slices: {\n",
                           "[1]: 2\n", "weights: none\n"}) {
    Write("c.yaml", text);
    const auto loaded = LoadSchedule(Path("c.csv"));
    ASSERT_FALSE(loaded) << text;
    EXPECT_EQ(loaded.error().line().find('\n'), std::string::npos) << loaded.error().line();
  }
  Write("c.yaml", "");
  EXPECT_TRUE(LoadSchedule(Path("c.csv")));
}

}  // namespace
}  // namespace penstock::testing
