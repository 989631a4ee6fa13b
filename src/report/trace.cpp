#include <iterator>
#include <nlohmann/json.hpp>

#include "report/markup.h"
#include "report/report.h"
#include "schedule/text/text.h"

namespace penstock {
namespace {

// Microseconds (the unit of traces) per unit of time.
double MicrosecondsIn(const std::string& time_unit) { return time_unit == "s" ? 1e6 : 1e3; }

std::string Quoted(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

class TraceWriter {
 public:
  explicit TraceWriter(const ReportInput& input)
      : input_(input), scale_(MicrosecondsIn(input.time_unit)) {}

  std::string Write() {
    text_ = R"({"displayTimeUnit":"ms","otherData":{"title":)" + Quoted(input_.title) +
            R"(},"traceEvents":[)";
    for (std::size_t process = 0; process < input_.runs.size(); ++process) {
      const ReportRun& run = input_.runs[process];
      Name("process_name", process, 0, run.label);
      const Schedule& schedule = ScheduleOf(input_, run);
      for (std::size_t rank = 0; rank < schedule.lanes.size(); ++rank) {
        Name("thread_name", process, rank, fmt::format("rank {}", rank));
        Actions(process, rank, schedule.lanes[rank]);
        if (!run.memory.empty()) Memory(process, rank, run.memory[rank]);
      }
    }
    return text_ + "\n]}\n";
  }

 private:
  template <class... Args>
  void Event(fmt::format_string<Args...> format, Args&&... args) {
    text_ += first_ ? "\n" : ",\n";
    first_ = false;
    fmt::format_to(std::back_inserter(text_), format, std::forward<Args>(args)...);
  }

  void Name(std::string_view what, std::size_t process, std::size_t rank, const std::string& name) {
    Event(R"({{"ph":"M","name":"{}","pid":{},"tid":{},"args":{{"name":{}}}}})", what, process, rank,
          Quoted(name));
  }

  void Actions(std::size_t process, std::size_t rank, const Lane& lane) {
    const auto& spans = input_.runs[process].timeline->spans[rank];
    for (std::size_t i = 0; i < lane.size(); ++i) {
      if (!IsDrawn(lane[i], spans[i])) continue;
      const Part& part = lane[i].first;
      Event(R"({{"ph":"X","name":"{}","cat":"{}","pid":{},"tid":{},"ts":{:.10g},"dur":{:.10g},)"
            R"("args":{{"stage":{},"microbatch":{}}}}})",
            ToText(lane[i]), lane[i].is_pair() ? "overlapped" : OpName(part.op), process, rank,
            spans[i].start * scale_, (spans[i].end - spans[i].start) * scale_, part.stage,
            part.microbatch);
    }
  }

  void Memory(std::size_t process, std::size_t rank, const MemoryCurve& curve) {
    for (const MemoryPoint& point : curve) {
      Event(
          R"({{"ph":"C","name":"memory of rank {}","pid":{},"ts":{:.10g},"args":{{"held":{:.10g}}}}})",
          rank, process, point.time * scale_, point.amount);
    }
  }

  const ReportInput& input_;
  const double scale_;
  std::string text_;
  bool first_ = true;
};

}  // namespace

Result<std::string> RenderChromeTrace(const ReportInput& input) {
  PENSTOCK_TRY_STATUS(CheckReport(input));
  return TraceWriter(input).Write();
}

}  // namespace penstock
