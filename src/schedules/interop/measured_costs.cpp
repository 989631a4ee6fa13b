#include "interop/measured_costs.h"

#include <array>
#include <vector>

#include "base/index.h"
#include "base/median.h"

namespace penstock {
namespace {

// Durations of one stage's actions of one kind. Overlapped pairs count only if there are
// no others.
struct Samples {
  std::vector<double> alone, paired;

  bool empty() const { return alone.empty() && paired.empty(); }
  double Middle() const { return Median(alone.empty() ? paired : alone); }
};

}  // namespace

Costs MedianCosts(const Schedule& schedule, const Timeline& timeline) {
  std::vector<std::array<Samples, kOpCount>> samples(Index(schedule.stages()));
  for (std::size_t r = 0; r < schedule.lanes.size(); ++r) {
    for (std::size_t i = 0; i < schedule.lanes[r].size(); ++i) {
      const Action& action = schedule.lanes[r][i];
      const double time = timeline.spans[r][i].end - timeline.spans[r][i].start;
      ForEachPart(action, [&](const Part& part) {
        Samples& of = samples[part.stage][Index(part.op)];
        (action.is_pair() ? of.paired : of.alone).push_back(time);
      });
    }
  }
  Costs costs;
  for (auto& of : samples) {
    const auto median = [&](Op op) { return of[Index(op)].Middle(); };
    StageCosts& stage = costs.stages.emplace_back();
    stage.forward = median(Op::kForward);
    const bool recomputed = !of[Index(Op::kRecompute)].empty();
    stage.recompute = median(recomputed ? Op::kRecompute : Op::kForward);
    const bool split = !of[Index(Op::kBackwardInput)].empty();
    stage.backward_input = median(split ? Op::kBackwardInput : Op::kBackward);
    stage.backward_weight = median(Op::kBackwardWeight);
    stage.step = median(Op::kStep);
    stage.embed = median(Op::kEmbed);
    stage.vocabulary_input = median(Op::kVocabularyInput);
    stage.vocabulary_weight = median(Op::kVocabularyWeight);
    stage.embed_gradient = median(Op::kEmbedGradient);
    stage.activation = stage.activation_after_i = 1.0 / schedule.placement.chunks();
  }
  return costs;
}

}  // namespace penstock
