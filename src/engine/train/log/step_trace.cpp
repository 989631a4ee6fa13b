#include "train/log/step_trace.h"

#include "report/report.h"

namespace penstock {

std::vector<MemoryCurve> MeasuredMemory(const Trace& trace, const Timeline& timeline,
                                        std::int64_t round) {
  std::vector<MemoryCurve> curves;
  for (int rank = 0; rank < trace.schedule().ranks(); ++rank) {
    const Program& program = trace.program(rank);
    const std::span<const Stamp> stamps = trace.RankStep(rank, round);
    std::vector<std::int64_t> activations(trace.schedule().stages());
    std::int64_t total = 0;
    MemoryCurve curve;
    for (std::size_t i = 0; i < program.size(); ++i) {
      std::int64_t& of_stage = activations[program[i].part.stage];
      const std::int64_t change = stamps[i].activation_bytes - of_stage;
      if (change == 0 || program[i].position < 0) continue;
      of_stage += change;
      total += change;
      const Span& span = timeline.spans[rank][program[i].position];
      curve.push_back({change > 0 ? span.start : span.end, static_cast<double>(total)});
    }
    curves.push_back(std::move(curve));
  }
  return curves;
}

Status WriteStepTrace(const Trace& trace, std::int64_t round, const std::string& title,
                      const std::string& path) {
  const Timeline timeline = MeasuredTimeline(trace, round);
  ReportInput input;
  input.title = title;
  input.time_unit = std::string(kSeconds);
  input.memory_unit = std::string(kBytes);
  input.schedule = &trace.schedule();
  ReportRun run;
  run.label = "measured";
  run.timeline = &timeline;
  run.result.ranks.resize(trace.schedule().ranks());  // not drawn
  run.memory = MeasuredMemory(trace, timeline, round);
  input.runs.push_back(std::move(run));
  return WriteChromeTrace(input, path);
}

}  // namespace penstock
