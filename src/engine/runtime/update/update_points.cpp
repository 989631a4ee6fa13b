#include "runtime/update/update_points.h"

#include <algorithm>

#include "base/index.h"
#include "schedule/passes/lanes.h"
#include "schedule/text/text.h"

namespace penstock {
namespace {

using Kind = UpdatePoint::Kind;

class PointFinder {
 public:
  PointFinder(const Schedule& schedule, int rank, const Program& program, const UpdateRule& rule)
      : schedule_(schedule),
        stages_(schedule.placement.stages_of(rank)),
        rank_(rank),
        program_(program),
        rule_(rule),
        complete_(schedule.stages()),
        shares_(schedule.placement.chain_length()) {
    for (const int stage : stages_) {
      complete_[stage] = !HasGradients(schedule.backward_of(stage));
    }
    for (const std::vector<int>& holders : schedule.shared) {
      for (const int stage : holders) shares_[stage] = true;
    }
  }

  Result<std::vector<UpdatePoint>> Run() {
    GradientCounter gradients(schedule_);
    std::size_t steps = 0;
    for (std::size_t i = 0; i < program_.size(); ++i) {
      const Part& part = program_[i].part;
      if (part.op == Op::kStep) {
        if (steps++ == 0) PENSTOCK_TRY_STATUS(BeforeFirstStep(i));
        if (rule_.steps_early() || !rule_.needs_norm()) {
          if (Shares(part.stage)) PENSTOCK_TRY_STATUS(BeforeSharedStep(i));
          if (!Shares(part.stage)) Add(i, part.stage);
          Finish(i, part.stage);
        }
        if (rule_.sends_shards() && HasGradients(schedule_.backward_of(part.stage)))
          points_.push_back({i + 1, Kind::kShareShard, part.stage});
      }
      const bool complete = gradients.Note(part) > 0;
      complete_[part.stage] = complete_[part.stage] || complete;
      if (rule_.reduces() ? part.op == Op::kReduceGrad : complete) {
        if (replicas()) {
          points_.push_back({EndOfAction(i), Kind::kShare, part.stage});
        } else if (Shares(part.stage)) {
          points_.push_back({EndOfAction(i), Kind::kShareParameters, part.stage});
        }
      }
    }
    if (rule_.steps_early()) points_.push_back({program_.size(), Kind::kSend, -1});
    return std::move(points_);
  }

 private:
  bool replicas() const { return schedule_.placement.replicas() > 1; }

  std::size_t EndOfAction(std::size_t entry) const {
    while (++entry < program_.size() && program_[entry].ends_pair) {
    }
    return entry;
  }

  bool Shares(int stage) const { return shares_[schedule_.placement.model_stage(stage)]; }

  // If steps wait for the norm, it needs all gradients of the rank.
  Status BeforeFirstStep(std::size_t entry) {
    if (!rule_.needs_norm() || rule_.steps_early()) return {};
    for (const int stage : stages_) {
      if (complete_[stage]) continue;
      return InvalidArgument(
          "rank {}, action {} ({}): precedes gradients of stage {}, which the norm of all "
          "gradients needs: use post-validation, or neither clip gradients nor skip updates",
          rank_, program_[entry].position, ToText(program_[entry].part), stage);
    }
    for (const int stage : stages_) Add(entry, stage);
    for (const int stage : stages_) Finish(entry, stage);
    points_.push_back({entry, Kind::kSend, -1});
    points_.push_back({entry, Kind::kAgree, -1});
    return {};
  }

  // Everything that others wait for is sent before the rank waits for any of theirs, and no action
  // of the rank that they may need is left.
  Status BeforeSharedStep(std::size_t entry) {
    if (shared_added_) return {};
    shared_added_ = true;
    for (std::size_t i = entry; i < program_.size(); ++i) {
      if (program_[i].part.op == Op::kStep) continue;
      return InvalidArgument(
          "rank {}, action {} ({}): the stage shares a parameter with another one, so it steps "
          "after all other actions of its rank, and {} follows",
          rank_, program_[entry].position, ToText(program_[entry].part), ToText(program_[i].part));
    }
    for (const int stage : stages_) {
      if (Shares(stage)) Add(entry, stage);
    }
    return {};
  }

  // The stage's own gradients are complete.
  void Add(std::size_t entry, int stage) {
    if (!replicas() || !HasGradients(schedule_.backward_of(stage))) return;
    points_.push_back({entry, Kind::kAdd, stage});
    if (Shares(stage)) points_.push_back({entry, Kind::kShareParameters, stage});
  }

  // Gradients of shared parameters are, too.
  void Finish(std::size_t entry, int stage) {
    if (Shares(stage)) points_.push_back({entry, Kind::kAddParameters, stage});
    if (rule_.needs_norm()) points_.push_back({entry, Kind::kMeasure, stage});
  }

  const Schedule& schedule_;
  const std::vector<int>& stages_;
  int rank_;
  const Program& program_;
  const UpdateRule& rule_;
  std::vector<bool> complete_;  // by stage: whether its gradients are complete
  std::vector<bool> shares_;    // by stage of the model: whether it holds a shared parameter
  bool shared_added_ = false;
  std::vector<UpdatePoint> points_;
};

}  // namespace

Result<std::vector<UpdatePoint>> FindUpdatePoints(const Schedule& schedule, int rank,
                                                  const Program& program, const UpdateRule& rule) {
  if (schedule.placement.replicas() == 1 && schedule.shared.empty() && !rule.needs_norm()) {
    return std::vector<UpdatePoint>();
  }
  if (schedule.weights != WeightPolicy::kFlush || schedule.steps != 1) {
    return InvalidArgument(
        "schedule '{}' does not flush, so its stages cannot exchange gradients or their norm: "
        "neither "
        "clip gradients nor skip updates, and use a model without shared parameters",
        schedule.algorithm);
  }
  return PointFinder(schedule, rank, program, rule).Run();
}

Result<std::vector<std::size_t>> FindCheckPoints(const Schedule& schedule) {
  const ChainShape shape = ChainShape::Of(schedule);
  std::vector<Program> programs;
  std::vector<std::size_t> ends;
  const std::size_t microbatches = schedule.indices();
  std::vector<bool> early(Index(schedule.stages()) * microbatches);
  const auto key = [microbatches](int stage, int microbatch) {
    return Index(stage) * microbatches + Index(microbatch);
  };
  for (int rank = 0; rank < schedule.ranks(); ++rank) {
    PENSTOCK_TRY(Program program, MakeProgram(schedule, rank));
    auto other = std::find_if(program.begin(), program.end(), [](const ProgramEntry& entry) {
      return entry.part.op != Op::kForward && entry.part.op != Op::kUnshard &&
             entry.part.op != Op::kReshard;
    });
    if (other != program.end() && other->ends_pair) --other;
    ends.push_back(Index(other - program.begin()));
    for (auto entry = program.begin(); entry != other; ++entry) {
      if (entry->part.op != Op::kForward) continue;
      early[key(entry->part.stage, entry->part.microbatch)] = true;
    }
    programs.push_back(std::move(program));
  }
  // Shortens the lists until nothing in them waits for anything later.
  for (bool changed = true; changed;) {
    changed = false;
    for (std::size_t rank = 0; rank < programs.size(); ++rank) {
      const auto waits = [&](const ProgramEntry& entry) {
        bool late = false;
        ForEachDependency(shape, entry.part, [&](const Value& value) {
          late = late || !early[key(value.stage, value.microbatch)];
        });
        return late;
      };
      const auto begin = programs[rank].begin();
      const auto end = begin + static_cast<std::ptrdiff_t>(ends[rank]);
      const auto first_late = std::find_if(begin, end, waits);
      changed = changed || first_late != end;
      for (auto entry = first_late; entry != end; ++entry) {
        if (entry->part.op != Op::kForward) continue;
        early[key(entry->part.stage, entry->part.microbatch)] = false;
      }
      ends[rank] = Index(first_late - begin);
    }
  }
  return ends;
}

}  // namespace penstock
