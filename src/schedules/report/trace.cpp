#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>

#include "base/index.h"
#include "report/markup.h"
#include "report/report.h"
#include "schedule/compute_times.h"
#include "schedule/text/text.h"

namespace penstock {
namespace {

std::string Quoted(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// Nanoseconds per unit of time.
int NanosecondsIn(const std::string& time_unit) { return time_unit == "s" ? 1000000000 : 1000000; }

// The nearest of the colors that Chrome's viewer knows by name.
std::string_view ChromeColor(const Action& action) {
  if (action.is_pair()) return "thread_state_running";
  switch (action.first.op) {
    case Op::kForward:
      return "rail_response";
    case Op::kBackward:
      return "rail_load";
    case Op::kBackwardInput:
      return "thread_state_runnable";
    case Op::kBackwardWeight:
      return "rail_idle";
    case Op::kStep:
      return "rail_animation";
    case Op::kRecompute:
      return "thread_state_uninterruptible";
    default:
      return IsVocabulary(action.first.op) ? "olive" : "generic_work";
  }
}

class TraceWriter {
 public:
  explicit TraceWriter(const ReportInput& input)
      : input_(input), scale_(NanosecondsIn(input.time_unit)) {}

  std::string Write() {
    text_ = R"({"displayTimeUnit":"ms","otherData":{"title":)" + Quoted(input_.title) +
            R"(,"penstock":)" + Quoted(Description()) + R"(},"traceEvents":[)";
    for (std::size_t process = 0; process < input_.runs.size(); ++process) {
      const ReportRun& run = input_.runs[process];
      Name("process_name", process, 0, run.label);
      const Schedule& schedule = ScheduleOf(input_, run);
      for (std::size_t rank = 0; rank < schedule.lanes.size(); ++rank) {
        Name("thread_name", process, rank, fmt::format("rank {}", rank));
        Actions(process, rank, schedule.lanes[rank]);
        if (!run.memory.empty()) Memory(process, rank, run.memory[rank]);
        if (!run.memory_by_kind.empty()) {
          MemoryKinds(process, rank, run.memory_by_kind[rank].curves);
        }
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

  // What reads the trace back (interop/traces/recorded_run.cpp), as JSON.
  std::string Description() const {
    nlohmann::ordered_json runs = nlohmann::ordered_json::array();
    for (const ReportRun& run : input_.runs) {
      const Schedule& schedule = ScheduleOf(input_, run);
      runs.push_back({{"label", run.label},
                      {"schedule", WriteCsv(schedule)},
                      {"microbatches", schedule.microbatches},
                      {"replicas", schedule.placement.replicas()},
                      {"slices", schedule.slices},
                      {"steps", schedule.steps},
                      {"weights", ToText(schedule.weights)}});
    }
    const nlohmann::ordered_json description = {
        {"time_unit", input_.time_unit},
        {"microseconds", NanosecondsIn(input_.time_unit) / 1000},  // in one unit
        {"runs", std::move(runs)}};
    return description.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  }

  // In microseconds, the unit of traces. Whole nanoseconds, which is what Perfetto stores: an
  // action that ends where the next one starts must not overlap it.
  double Time(double time) const { return std::round(time * scale_) / 1e3; }
  double Duration(const Span& span) const {
    return (std::round(span.end * scale_) - std::round(span.start * scale_)) / 1e3;
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
      Event(R"({{"ph":"X","name":"{}","cat":"{}","cname":"{}","pid":{},"tid":{},"ts":{},)"
            R"("dur":{},"args":{{"stage":{},"microbatch":{}}}}})",
            ToText(lane[i]), lane[i].is_pair() ? "overlapped" : OpName(part.op),
            ChromeColor(lane[i]), process, rank, Time(spans[i].start), Duration(spans[i]),
            part.stage, part.microbatch);
    }
  }

  void Memory(std::size_t process, std::size_t rank, const MemoryCurve& curve) {
    for (const MemoryPoint& point : curve) {
      Event(R"({{"ph":"C","name":"memory of rank {}","pid":{},"ts":{},"args":{{"held":{:.10g}}}}})",
            rank, process, Time(point.time), point.amount);
    }
  }

  // Each event has all kinds that the rank ever holds, because viewers stack them.
  void MemoryKinds(std::size_t process, std::size_t rank,
                   const std::array<MemoryCurve, kMemoryKinds>& curves) {
    std::set<double> times;
    for (const MemoryCurve& curve : curves) {
      for (const MemoryPoint& point : curve) times.insert(point.time);
    }
    for (const double time : times) {
      std::string kinds;
      for (std::size_t kind = 0; kind < kMemoryKinds; ++kind) {
        const MemoryCurve& curve = curves[kind];
        if (PeakOf(curve) == 0) continue;
        const auto after = std::ranges::upper_bound(curve, time, {}, &MemoryPoint::time);
        const double amount = after == curve.begin() ? 0 : std::prev(after)->amount;
        kinds += fmt::format("{}\"{}\":{:.10g}", kinds.empty() ? "" : ",",
                             NameOf(static_cast<MemoryKind>(kind)), amount);
      }
      if (kinds.empty()) return;
      Event(R"({{"ph":"C","name":"memory of rank {} by kind","pid":{},"ts":{},"args":{{{}}}}})",
            rank, process, Time(time), kinds);
    }
  }

  // A flow from the action that computes a value to the one that reads it, and a slice of its own
  // while it is in flight.
  void Messages(std::size_t process, const ReportRun& run, const Schedule& schedule) {
    if (run.messages.empty()) return;
    const ComputeTimes times(schedule, *run.timeline);
    for (const SentMessage& message : run.messages) {
      const bool forward = message.kind == ValueKind::kActivation;
      const int reader = ReaderOf(schedule, message.kind, message.stage);
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
    Event(R"({{"ph":"{}","cat":"message","name":"{}","id":{},"pid":{},"tid":{},"ts":{}}})", phase,
          name, messages_, process, rank, Time(time));
  }
  void InFlight(std::string_view phase, const std::string& name, std::size_t process, double time) {
    Event(R"({{"ph":"{}","cat":"in flight","name":"{}","id":{},"pid":{},"ts":{}}})", phase, name,
          messages_, process, Time(time));
  }

  const ReportInput& input_;
  const double scale_;        // nanoseconds per unit of time
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
