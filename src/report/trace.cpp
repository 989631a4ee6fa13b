#include <iterator>
#include <nlohmann/json.hpp>

#include "base/index.h"
#include "report/markup.h"
#include "report/report.h"
#include "schedule/compute_times.h"
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
      Messages(process, run, schedule);
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

  // A flow from the action that computes a value to the one that reads it, and a slice of its own
  // while it is in flight.
  void Messages(std::size_t process, const ReportRun& run, const Schedule& schedule) {
    if (run.messages.empty()) return;
    const ComputeTimes times(schedule, *run.timeline);
    for (const SentMessage& message : run.messages) {
      const bool forward = message.kind == ValueKind::kActivation;
      const int reader = ReaderOf(schedule.placement, message.kind, message.stage);
      const Span& computed = times.Of(message.kind, message.stage, Index(message.microbatch));
      const Span& read = times.Of(message.kind, Index(reader), Index(message.microbatch));
      const std::string name =
          fmt::format("{} of stage {}, microbatch {}", forward ? "activation" : "gradient",
                      message.stage, MicrobatchText(schedule, message.microbatch));
      // A flow starts inside of its slice, which ends before its end.
      const double inside = computed.end - (computed.end - computed.start) / 64;
      ++messages_;
      Flow("s", name, process, message.from, inside);
      Flow("f\",\"bp\":\"e", name, process, message.to, read.start);
      InFlight("b", name, process, message.sent);
      InFlight("e", name, process, message.arrived);
    }
  }
  void Flow(std::string_view phase, const std::string& name, std::size_t process, int rank,
            double time) {
    Event(R"({{"ph":"{}","cat":"message","name":"{}","id":{},"pid":{},"tid":{},"ts":{:.10g}}})",
          phase, name, messages_, process, rank, time * scale_);
  }
  void InFlight(std::string_view phase, const std::string& name, std::size_t process, double time) {
    Event(R"({{"ph":"{}","cat":"in flight","name":"{}","id":{},"pid":{},"ts":{:.10g}}})", phase,
          name, messages_, process, time * scale_);
  }

  const ReportInput& input_;
  const double scale_;
  std::size_t messages_ = 0;  // identifies a message
  std::string text_;
  bool first_ = true;
};

}  // namespace

Result<std::string> RenderChromeTrace(const ReportInput& input) {
  PENSTOCK_TRY_STATUS(CheckReport(input));
  return TraceWriter(input).Write();
}

}  // namespace penstock
