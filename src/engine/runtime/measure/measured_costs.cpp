// Derives the costs of the stages from a trace, so that the simulator can predict the run from
// them.
#include <algorithm>
#include <array>
#include <span>

#include "base/index.h"
#include "base/median.h"
#include "runtime/measure/measure.h"
#include "runtime/measure/trace.h"

namespace penstock {
namespace {

// Samples of one stage, or of one slice or microbatch of it: times in seconds, sizes in bytes.
struct StageSamples {
  std::array<std::vector<double>, kOpCount> time;          // by op, of parts that ran alone
  std::array<std::vector<double>, kOpCount> half_of_pair;  // likewise, of parts that ran in a pair
  std::vector<double> until_sent;                          // of a B, to its input gradient
  std::vector<double> activation;                          // of an F
  std::vector<double> input_activation;                    // of an F whose microbatch is recomputed
  std::vector<double> recomputed;                          // by RECOMPUTE
  std::vector<double> freed_by_i;
  std::vector<double> freed_by_rest;  // W or B
  std::vector<double> softmax;        // of an S
};

class CostCollector {
 public:
  CostCollector(const Trace& trace, bool by_microbatch)
      : trace_(trace),
        messages_(trace.schedule()),
        kinds_(by_microbatch ? trace.schedule().indices() / trace.schedule().steps
                             : trace.schedule().slices),
        samples_(Index(trace.schedule().stages()) * kinds_),
        sent_ns_(messages_.slots()),
        recomputed_(Index(trace.schedule().stages()) * Index(trace.schedule().indices())) {
    for (int rank = 0; rank < trace.schedule().ranks(); ++rank) {
      for (const ProgramEntry& entry : trace.program(rank)) {
        if (entry.part.op == Op::kRecompute) recomputed_[IndexOf(entry.part)] = true;
      }
    }
  }

  void AddRound(std::int64_t round) {
    for (int rank = 0; rank < trace_.schedule().ranks(); ++rank) AddStages(rank, round);
    for (int rank = 0; rank < trace_.schedule().ranks(); ++rank) AddTransfers(rank, round);
  }

  Costs Medians() {
    Costs costs;
    for (StageSamples& samples : samples_) costs.by_slice.push_back(MedianOf(samples));
    if (kinds_ == 1) {
      costs.stages = std::move(costs.by_slice);
      costs.by_slice.clear();
    } else {
      for (std::size_t i = 0; i < costs.by_slice.size(); i += kinds_) {
        costs.stages.push_back(MeanOf(std::span(costs.by_slice).subspan(i, kinds_)));
      }
    }
    costs.comm = Median(transfers_);
    costs.exchange = costs.comm;
    costs.early_gradients = sends_early_;
    std::vector<double> shares;
    for (const Pair& pair : pairs_) {
      const double alone = costs.Duration(pair.first) + costs.Duration(pair.second);
      if (alone > 0) shares.push_back(pair.seconds / alone);
    }
    if (!shares.empty()) costs.overlap = {OverlapRule::Kind::kFactor, Median(shares)};
    return costs;
  }

 private:
  struct Pair {
    Part first, second;
    double seconds;
  };

  std::size_t IndexOf(const Part& part) const {
    return part.stage * Index(trace_.schedule().indices()) + Index(part.microbatch);
  }
  bool IsRecomputed(const Part& part) const { return recomputed_[IndexOf(part)]; }

  void AddStages(int rank, std::int64_t round) {
    const Program& program = trace_.program(rank);
    const std::span<const Stamp> stamps = trace_.RankStep(rank, round);
    std::vector<std::int64_t> allocated_by(samples_.size() / kinds_);
    for (std::size_t i = 0; i < program.size(); ++i) {
      const Part& part = program[i].part;
      const std::int64_t allocated = stamps[i].activation_bytes + stamps[i].offloaded_bytes;
      const auto change = static_cast<double>(allocated - allocated_by[part.stage]);
      allocated_by[part.stage] = allocated;
      if (!OccupiesRank(part.op)) continue;
      StageSamples& stage = samples_[part.stage * kinds_ + Index(part.microbatch) % kinds_];
      const double seconds =
          static_cast<double>(stamps[i].end_ns - stamps[i].start_ns) * kSecondsPerNs;
      const bool begins_pair = i + 1 < program.size() && program[i + 1].ends_pair;
      if (begins_pair) pairs_.push_back({part, program[i + 1].part, seconds});
      if (begins_pair || program[i].ends_pair) {
        stage.half_of_pair[Index(part.op)].push_back(seconds / 2);
      } else {
        stage.time[Index(part.op)].push_back(seconds);
      }
      if (part.op == Op::kForward) {
        (IsRecomputed(part) ? stage.input_activation : stage.activation).push_back(change);
      }
      if (part.op == Op::kRecompute) stage.recomputed.push_back(change);
      if (part.op == Op::kVocabularyInput) stage.softmax.push_back(change);
      if (part.op == Op::kBackwardInput) stage.freed_by_i.push_back(-change);
      if (part.op == Op::kBackward || part.op == Op::kBackwardWeight) {
        stage.freed_by_rest.push_back(-change);
      }
      const int slot = messages_.OutSlot(part);
      if (slot < 0) continue;
      const bool early = stamps[i].sent_ns != 0;
      sent_ns_[slot] = early ? stamps[i].sent_ns : stamps[i].end_ns;
      if (!early) continue;
      sends_early_ = true;
      stage.until_sent.push_back(static_cast<double>(stamps[i].sent_ns - stamps[i].start_ns) *
                                 kSecondsPerNs);
    }
  }

  // Returns when the message from another rank that the part waits for was produced; 0 if there is
  // none.
  std::int64_t Sent(const Part& part, int rank) const {
    const int slot = messages_.InSlot(part);
    if (slot < 0 || messages_.from_rank(slot) == rank) return 0;
    return sent_ns_[slot];
  }

  // A transfer is visible only if its receiver was idle before the message was produced.
  void AddTransfers(int rank, std::int64_t round) {
    const Program& program = trace_.program(rank);
    const std::span<const Stamp> stamps = trace_.RankStep(rank, round);
    for (std::size_t i = 1; i < program.size(); ++i) {
      if (program[i].ends_pair) continue;
      std::int64_t sent = Sent(program[i].part, rank);
      if (i + 1 < program.size() && program[i + 1].ends_pair) {
        sent = std::max(sent, Sent(program[i + 1].part, rank));
      }
      if (stamps[i - 1].end_ns >= sent) continue;
      transfers_.push_back(
          static_cast<double>(std::max<std::int64_t>(0, stamps[i].start_ns - sent)) *
          kSecondsPerNs);
    }
  }

  StageCosts MedianOf(StageSamples& samples) const {
    const auto time = [&samples](Op op) {
      const std::size_t i = Index(op);
      return Median(samples.time[i].empty() ? samples.half_of_pair[i] : samples.time[i]);
    };
    StageCosts costs;
    costs.forward = time(Op::kForward);
    costs.backward_input = time(Op::kBackwardInput);
    costs.backward_weight = time(Op::kBackwardWeight);
    const std::size_t split = Index(Op::kBackwardInput);
    if (samples.time[split].empty() && samples.half_of_pair[split].empty()) {
      const double whole = time(Op::kBackward);
      costs.backward_input = samples.until_sent.empty() ? whole : Median(samples.until_sent);
      costs.backward_weight = std::max(0.0, whole - costs.backward_input);
    }
    const bool recomputes = !samples.time[Index(Op::kRecompute)].empty();
    costs.recompute = recomputes ? time(Op::kRecompute) : costs.forward;
    costs.step = time(Op::kStep);
    costs.embed = time(Op::kEmbed);
    costs.vocabulary_input = time(Op::kVocabularyInput);
    costs.vocabulary_weight = time(Op::kVocabularyWeight);
    costs.embed_gradient = time(Op::kEmbedGradient);
    costs.softmax = Median(samples.softmax);
    costs.input_activation = Median(samples.input_activation);
    costs.activation = samples.activation.empty()
                           ? costs.input_activation + Median(samples.recomputed)
                           : Median(samples.activation);
    const double freed_by_i = Median(samples.freed_by_i);
    costs.activation_after_i = costs.activation - freed_by_i;
    if (trace_.schedule().slices == 1) return costs;
    const double freed_by_rest = Median(samples.freed_by_rest);
    costs.gradients_of_others = costs.activation - freed_by_i - freed_by_rest;
    if (!samples.freed_by_i.empty()) costs.activation_after_i = freed_by_rest;
    return costs;
  }

  // For readers that ask by stage only.
  static StageCosts MeanOf(std::span<const StageCosts> kinds) {
    StageCosts mean = kinds.front();
    const auto count = static_cast<double>(kinds.size());
    for (const StageCost& cost : kStageCosts) {
      double sum = 0;
      for (const StageCosts& kind : kinds) sum += kind.*cost.value;
      mean.*cost.value = sum / count;
    }
    return mean;
  }

  const Trace& trace_;
  MessageMap messages_;
  std::size_t kinds_;                  // of microbatch indices, with costs of their own
  std::vector<StageSamples> samples_;  // by stage, then by kind
  std::vector<std::int64_t> sent_ns_;  // by slot: when the message was produced
  std::vector<bool> recomputed_;       // by stage and microbatch index
  std::vector<double> transfers_;      // seconds
  bool sends_early_ = false;
  std::vector<Pair> pairs_;
};

}  // namespace

Costs MeasuredCosts(const Trace& trace, int skip, bool by_microbatch) {
  CostCollector collector(trace, by_microbatch);
  for (std::int64_t r = FirstMeasuredRound(trace, skip); r < trace.last_round(); ++r) {
    collector.AddRound(r);
  }
  return collector.Medians();
}

}  // namespace penstock
