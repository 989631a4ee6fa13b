// Which passes of a sharded vocabulary have run, and what they wait for. Private to validate/.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/index.h"
#include "schedule/text/text.h"
#include "schedule/validate/state.h"
#include "schedule/vocabulary.h"

namespace penstock::validation {

class VocabularyPasses {
 public:
  // Requires: CheckShape has accepted the schedule.
  VocabularyPasses(const Schedule& schedule, std::size_t indices)
      : indices_(indices), ends_(VocabularyEnds::Of(schedule)) {
    if (!schedule.vocabulary) return;
    stages_ = VocabularyStages(schedule);
    rank_of_.assign(Index(schedule.stages()), -1);
    for (std::size_t rank = 0; rank < stages_.size(); ++rank) {
      rank_of_[Index(stages_[rank])] = static_cast<int>(rank);
    }
    passes_.resize(stages_.size() * indices);
  }

  // The stage whose number the passes of a rank have; -1 if the vocabulary is not sharded.
  int StageOf(int rank) const { return stages_.empty() ? -1 : stages_[Index(rank)]; }
  // The passes that have run, one bit each in the upper byte.
  unsigned Bits(int stage, int microbatch) const {
    if (stages_.empty() || rank_of_[Index(stage)] < 0) return 0;
    return passes_[Key(stage, microbatch)];
  }
  bool Ran(const Part& part) const {
    return (Bits(part.stage, part.microbatch) & Bit(part.op)) != 0;
  }
  void Note(const Part& part) { passes_[Key(part.stage, part.microbatch)] |= Bit(part.op); }
  // Whether passes wait for what the compute part produces.
  bool IsRead(const Part& part) const {
    if (stages_.empty()) return false;
    return part.op == Op::kForward ? part.stage == ends_.last
                                   : MakesInputGradient(part.op) && part.stage == ends_.first;
  }

  // Calls visit(stage, bits) for each (stage, the part's microbatch) that one of these bits must
  // have run on, as far as the vocabulary is concerned.
  template <class Visit>
  void ForEachNeed(const Part& part, Visit&& visit) const {
    ForEachVocabularyDependency(
        ends_, part,
        [&](const Value& value) {
          const bool activation = value.kind == ValueKind::kActivation;
          visit(value.stage,
                static_cast<std::uint16_t>(activation ? kForwardBit : kInputGradientBits));
        },
        [&](SharedValue value) {
          const Op op = value == SharedValue::kEmbedding ? Op::kEmbed : Op::kVocabularyInput;
          for (const int stage : stages_) visit(stage, Bit(op));
        });
  }

  // Calls visit(rank, Part) for every pass that has not run, until it returns false.
  template <class Visit>
  void ForEachMissing(Visit&& visit) const {
    for (std::size_t rank = 0; rank < stages_.size(); ++rank) {
      for (std::size_t n = 0; n < indices_; ++n) {
        for (const Op op : kPasses) {
          if ((passes_[rank * indices_ + n] & Bit(op)) != 0) continue;
          const Part part = MakeAction(op, stages_[rank], static_cast<int>(n)).first;
          if (!visit(static_cast<int>(rank), part)) return;
        }
      }
    }
  }

  // "2S5", or an empty string if no pass is among the bits.
  static std::string TextOf(int stage, int microbatch, unsigned bits) {
    for (const Op op : kPasses) {
      if ((bits & Bit(op)) != 0) return ToText(MakeAction(op, stage, microbatch).first);
    }
    return "";
  }

 private:
  static constexpr Op kPasses[] = {Op::kEmbed, Op::kVocabularyInput, Op::kVocabularyWeight,
                                   Op::kEmbedGradient};
  static constexpr std::uint16_t Bit(Op op) {
    return static_cast<std::uint16_t>(0x100U
                                      << (static_cast<int>(op) - static_cast<int>(Op::kEmbed)));
  }
  std::size_t Key(int stage, int microbatch) const {
    return Index(rank_of_[Index(stage)]) * indices_ + Index(microbatch);
  }

  std::size_t indices_;
  VocabularyEnds ends_;
  std::vector<int> stages_;            // by rank; empty if the vocabulary is not sharded
  std::vector<int> rank_of_;           // by stage: its rank if it is the rank's first; else -1
  std::vector<std::uint16_t> passes_;  // by (rank, microbatch)
};

}  // namespace penstock::validation
