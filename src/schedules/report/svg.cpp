#include <algorithm>
#include <cmath>
#include <iterator>

#include "base/index.h"
#include "report/markup.h"
#include "report/paper.h"
#include "report/report.h"

namespace penstock {
namespace {

// In the picture's units, which are pixels at its own size.
constexpr double kLabels = 84;        // left of the rows: "rank 12"
constexpr double kNamedLabels = 148;  // "rank 12  predicted"
// Narrower pictures are for a column of a paper: without title and figures, which its caption has.
constexpr int kLeastForFigures = 700;
constexpr double kColumnLabels = 52, kColumnMargin = 10;
constexpr double kRightMargin = 108;  // right of the rows: idle share and peak memory
constexpr double kMargin = 24;
constexpr double kHeading = 34;  // title of a run
constexpr double kAxis = 30;
constexpr double kLegendLine = 20;
constexpr double kSliver = 0.4;      // narrower blocks are drawn as one
constexpr double kDigitWidth = 6.7;  // in the font of the labels
constexpr const char* kInk = "#18212f";
constexpr const char* kMuted = "#5f6b7c";
constexpr Color kIdleColor = {0xdf, 0xe4, 0xea};
constexpr Color kMemory = {0x7c, 0x5c, 0xd6};

// Heights of a row: the more ranks, the thinner.
struct Rows {
  double block, strip, gap;

  static Rows For(int ranks) {
    if (ranks <= 8) return {28, 16, 6};
    if (ranks <= 16) return {22, 12, 5};
    if (ranks <= 32) return {14, 0, 3};
    return {8, 0, 2};
  }
};

class SvgWriter {
 public:
  explicit SvgWriter(const ReportInput& input) : input_(input), schedule_(input.schedule) {
    for (const ReportRun& run : input.runs) {
      end_ = std::max(end_, EndOf(*run.timeline));
      for (const MemoryCurve& curve : run.memory) most_ = std::max(most_, PeakOf(curve));
    }
    if (!(end_ > 0)) end_ = 1;
    is_column_ = input.width < kLeastForFigures;
    left_ = input.by_rank ? kNamedLabels : is_column_ ? kColumnLabels : kLabels;
    right_ = input.width - (is_column_ ? kColumnMargin : kRightMargin);
  }

  std::string Write() {
    double y = is_column_ ? kColumnMargin : kMargin;
    if (!input_.title.empty() && !is_column_) {
      Title(y);
      y += 44;
    }
    if (input_.by_rank) {
      y = Ranks(y);
    } else {
      for (const ReportRun& run : input_.runs) y = Run(run, y);
    }
    y = Legend(y + 8);
    const double height = std::ceil(y + (is_column_ ? kColumnMargin : kMargin));
    return fmt::format(
               R"(<svg xmlns="http://www.w3.org/2000/svg" width="{0}" height="{1}" )"
               R"(viewBox="0 0 {0} {1}" font-family="system-ui, -apple-system, 'Segoe UI', )"
               R"(Roboto, Helvetica, Arial, sans-serif" font-size="12">)"
               "\n"
               R"(<rect width="{0}" height="{1}" fill="#ffffff"/>)"
               "\n",
               input_.width, height) +
           text_ + "</svg>\n";
  }

 private:
  template <class... Args>
  void Add(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(text_), format, std::forward<Args>(args)...);
  }

  double X(double time) const { return left_ + time / end_ * (right_ - left_); }
  bool HasStrip(const ReportRun& run) const {
    return !run.memory.empty() && rows_.strip > 0 && most_ > 0;
  }
  double Pitch(const ReportRun& run) const {
    return rows_.block + rows_.gap + (HasStrip(run) ? rows_.strip + 2 : 0);
  }

  void Title(double y) {
    Add(R"(<text x="{}" y="{}" font-size="20" font-weight="650" fill="{}">{}</text>)", kMargin,
        y + 16, kInk, EscapeMarkup(input_.title));
    Add(R"(<text x="{}" y="{}" font-size="13" fill="{}">{}</text>)"
        "\n",
        kMargin, y + 36, kMuted, EscapeMarkup(input_.subtitle));
  }

  // The following functions draw from `y` down and return where the next element may begin.

  double Heading(const ReportRun& run, double y) {
    Add(R"(<text x="{}" y="{}" font-size="13" fill="{}"><tspan font-weight="600">{}</tspan>)",
        left_, y + 22, kInk, EscapeMarkup(run.label));
    if (!is_column_) {
      Add(R"(<tspan dx="12" fill="{}">{}</tspan>)", kMuted, EscapeMarkup(RunFigures(input_, run)));
    }
    Add("</text>\n");
    return y + kHeading;
  }

  void Select(const ReportRun& run) {
    schedule_ = &ScheduleOf(input_, run);
    chunks_ = std::max(1, MostChunks(schedule_->placement));
    rows_ = Rows::For(schedule_->ranks());
  }

  double Run(const ReportRun& run, double y) {
    Select(run);
    if (!is_column_ || input_.runs.size() > 1) y = Heading(run, y);
    const double bottom = y + Pitch(run) * schedule_->ranks();
    for (int rank = 0; rank < schedule_->ranks(); ++rank) {
      Row(run, rank, fmt::format("rank {}", rank), y + Pitch(run) * rank);
    }
    Axis(y, bottom);
    return bottom + kAxis;
  }

  // Rank by rank, the rows of all runs directly below each other.
  double Ranks(double y) {
    constexpr double kBetweenRanks = 10;
    for (const ReportRun& run : input_.runs) y = Heading(run, y) - kHeading / 3;
    y += kHeading / 3;
    const double top = y;
    for (int rank = 0; rank < input_.schedule->ranks(); ++rank) {
      for (const ReportRun& run : input_.runs) {
        Select(run);
        Row(run, rank, fmt::format("rank {}  {}", rank, EscapeMarkup(run.label)), y);
        y += Pitch(run);
      }
      y += kBetweenRanks;
    }
    Axis(top, y);
    return y + kAxis;
  }

  void Row(const ReportRun& run, int rank, const std::string& label, double y) {
    const std::size_t r = rank;
    const double middle = y + rows_.block / 2 + 4;
    const double size = std::min(12.0, rows_.block + 1);
    const double makespan = run.result.makespan;
    const double idle = makespan > 0 ? 1 - run.result.ranks[r].busy / makespan : 0;
    Add(R"(<text x="{}" y="{}" font-size="{}" fill="{}" text-anchor="end">{}</text>)", left_ - 10,
        middle, size, kInk, label);
    if (!is_column_) {
      Add(R"(<text x="{}" y="{}" font-size="{}" fill="{}">{} idle</text>)", right_ + 10, middle,
          size, kMuted, FormatPercent(idle));
    }
    Add(R"(<rect x="{}" y="{:.1f}" width="{:.2f}" height="{}" fill="{}"/>)"
        "\n",
        left_, y, X(EndOf(*run.timeline)) - left_, rows_.block, Hex(kIdleColor));
    Lane(schedule_->lanes[r], run.timeline->spans[r], y);
    if (!HasStrip(run)) return;
    Strip(run.memory[r], EndOf(*run.timeline), y + rows_.block + 2);
    if (is_column_) return;
    Add(R"(<text x="{}" y="{:.1f}" font-size="11" fill="{}">peak {}</text>)"
        "\n",
        right_ + 10, y + rows_.block + rows_.strip / 2 + 6, kMuted,
        FormatAmount(run.result.ranks[r].peak_memory, input_.memory_unit));
  }

  void Lane(const penstock::Lane& lane, const std::vector<Span>& spans, double y) {
    double last = -1;  // right edge of the last sliver
    for (std::size_t i = 0; i < lane.size(); ++i) {
      if (!IsDrawn(lane[i], spans[i])) continue;
      const double x = X(spans[i].start);
      const double width = X(spans[i].end) - x;
      if (width < kSliver) {
        if (x < last) continue;
        last = x + kSliver;
      }
      Block(lane[i], x, y, std::max(width, kSliver));
    }
    Add("\n");
  }

  void Block(const Action& action, double x, double y, double width) {
    if (!action.is_pair()) {
      PartBox(action.first, x, y, width, rows_.block);
      return;
    }
    PartBox(action.first, x, y, width, rows_.block / 2);
    PartBox(action.second, x, y + rows_.block / 2, width, rows_.block / 2);
  }

  void PartBox(const Part& part, double x, double y, double width, double height) {
    const int chunk = ChunkOf(schedule_->placement, part.stage);
    const Color color = input_.for_paper ? PaperBlockColor(part.op, chunk, chunks_)
                                         : BlockColor(part.op, chunk, chunks_);
    // A thin gap separates neighbors of the same color.
    const double drawn = width > 4 ? width - 0.8 : width;
    Add(R"(<rect x="{:.2f}" y="{:.1f}" width="{:.2f}" height="{}" fill="{}"/>)", x, y, drawn,
        height, Hex(color));
    if (!HasMicrobatch(part.op) || height < 11) return;
    const std::string label = MicrobatchText(*schedule_, part.microbatch);
    if (kDigitWidth * static_cast<double>(label.size()) > drawn - 1) return;
    Add(R"(<text x="{:.2f}" y="{:.1f}" font-size="{}" text-anchor="middle" fill="{}">{}</text>)",
        x + drawn / 2, y + height / 2 + 4, height < 14 ? 10 : 11, Hex(TextColor(color)), label);
  }

  // Memory over time below a row. All rows share one scale.
  void Strip(const MemoryCurve& curve, double end, double y) {
    const double base = y + rows_.strip;
    Add(R"(<path fill="{0}" fill-opacity="0.28" stroke="{0}" stroke-opacity="0.8" d="M{1} {2:.1f})",
        Hex(kMemory), left_, base);
    for (const MemoryPoint& point : curve) {
      Add("H{:.2f}V{:.2f}", X(point.time), base - point.amount / most_ * (rows_.strip - 1));
    }
    Add(R"(H{:.2f}V{:.1f}Z"/>)", X(end), base);
  }

  void Axis(double top, double bottom) {
    constexpr double kBetweenTicks = 80;
    const double step = TickStep(end_, static_cast<int>((right_ - left_) / kBetweenTicks));
    for (int tick = 0; tick * step <= end_ * (1 + 1e-9); ++tick) {
      const double x = X(tick * step);
      const std::string label = TickText(tick * step);
      Add(R"(<path d="M{0:.2f} {1:.1f}V{2:.1f}" stroke="#18212f" stroke-opacity="0.09"/>)"
          R"(<text x="{0:.2f}" y="{3:.1f}" text-anchor="middle" fill="{4}">{5}</text>)",
          x, top - 3, bottom + 2, bottom + 16, kMuted, label);
    }
    Add("\n");
  }

  // All ticks are in one unit: s, ms or us, whichever suits the whole run.
  std::string TickText(double time) const {
    if (input_.time_unit != "s") return FormatNumber(time, 6);
    if (end_ >= 1) return FormatNumber(time) + " s";
    return end_ >= 1e-3 ? FormatNumber(time * 1e3) + " ms" : FormatNumber(time * 1e6) + " us";
  }

  // Wraps at the right edge. Returns where the next element may begin.
  double Legend(double y) {
    double x = left_;
    const auto item = [&](const std::vector<Color>& colors, std::string_view name) {
      const double swatches = 12.0 * static_cast<double>(colors.size());
      const double width = swatches + 30 + 6.2 * static_cast<double>(name.size());
      if (x > left_ && x + width - 18 > input_.width) {
        x = left_;
        y += kLegendLine;
      }
      for (std::size_t i = 0; i < colors.size(); ++i) {
        Add(R"(<rect x="{}" y="{}" width="14" height="12" rx="2" fill="{}"/>)",
            x + 12.0 * static_cast<double>(i), y, Hex(colors[i]));
      }
      Add(R"(<text x="{}" y="{}" fill="{}">{}</text>)", x + swatches + 8, y + 10.5, kInk, name);
      x += width;
    };
    for (LegendEntry& entry : LegendOf(input_)) {
      const int count = static_cast<int>(entry.colors.size());
      for (int chunk = 0; input_.for_paper && chunk < count; ++chunk) {
        entry.colors[Index(chunk)] = PaperBlockColor(entry.op, chunk, count);
      }
      item(entry.colors, OpName(entry.op));
    }
    item({kIdleColor}, "idle");
    if (std::any_of(input_.runs.begin(), input_.runs.end(),
                    [&](const ReportRun& run) { return HasStrip(run); })) {
      item({kMemory}, "memory held");
    }
    Add("\n");
    return y + kLegendLine;
  }

  const ReportInput& input_;
  const Schedule* schedule_;  // of the run being drawn, like the next two
  int chunks_ = 1;
  Rows rows_ = Rows::For(1);
  bool is_column_ = false;
  double left_ = 0, right_ = 0;  // where rows begin and end
  double end_ = 0;
  double most_ = 0;
  std::string text_;
};

}  // namespace

Result<std::string> RenderSvg(const ReportInput& input) {
  PENSTOCK_TRY_STATUS(CheckReport(input));
  return SvgWriter(input).Write();
}

}  // namespace penstock
