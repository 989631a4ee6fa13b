#include "runtime/executor/vocabulary_exchange.h"

#include <utility>

#include "base/index.h"
#include "schedule/vocabulary.h"

namespace penstock {

VocabularyExchange::VocabularyExchange(const Schedule& schedule, int rank, const Program& program,
                                       const MessageMap& messages, VocabularyShard& shard,
                                       Transport& transport)
    : rank_(rank), shard_(shard), transport_(transport) {
  std::vector<bool> has_softmax(Index(schedule.indices()));
  for (const ProgramEntry& each : program) {
    Entry& entry = entries_.emplace_back();
    entry.part = each.part;
    BindInputs(schedule, messages, entry, has_softmax);
    BindOutputs(schedule, messages, entry);
  }
}

// On the rank of the last stage, T and I or B both need the softmax; the first of them receives it.
void VocabularyExchange::BindInputs(const Schedule& schedule, const MessageMap& messages,
                                    Entry& entry, std::vector<bool>& has_softmax) {
  const auto add = [&](VocabularyValue value, int from) {
    if (from == rank_) return;
    const int slot = messages.VocabularySlot(value, from, rank_, entry.part.microbatch);
    entry.in.push_back({value, from, slot});
  };
  const auto on_value = [&](const Value& value) {
    const bool hidden = value.kind == ValueKind::kActivation;
    add(hidden ? VocabularyValue::kHidden : VocabularyValue::kGradient,
        schedule.placement.rank_of(value.stage));
  };
  const auto on_shared = [&](SharedValue value) {
    entry.has_input = IsCompute(entry.part.op);
    const bool softmax = value == SharedValue::kSoftmax;
    if (softmax) {
      if (has_softmax[Index(entry.part.microbatch)]) return;
      has_softmax[Index(entry.part.microbatch)] = true;
    }
    for (int rank = 0; rank < schedule.ranks(); ++rank) {
      add(softmax ? VocabularyValue::kSoftmax : VocabularyValue::kEmbedding, rank);
    }
  };
  ForEachVocabularyDependency(VocabularyEnds::Of(schedule), entry.part, on_value, on_shared);
}

void VocabularyExchange::BindOutputs(const Schedule& schedule, const MessageMap& messages,
                                     Entry& entry) {
  const VocabularyEnds ends = VocabularyEnds::Of(schedule);
  const Part& part = entry.part;
  const auto add = [&](VocabularyValue value, int to) {
    if (to == rank_) return;
    entry.out.push_back({value, to, messages.VocabularySlot(value, rank_, to, part.microbatch)});
  };
  const auto add_all = [&](VocabularyValue value) {
    for (int rank = 0; rank < schedule.ranks(); ++rank) add(value, rank);
  };
  if (part.op == Op::kEmbed) {
    add(VocabularyValue::kEmbedding, schedule.placement.rank_of(ends.first));
  } else if (part.op == Op::kVocabularyInput) {
    add_all(VocabularyValue::kSoftmax);
  } else if (part.op == Op::kForward && part.stage == ends.last) {
    entry.takes_output = true;
    add_all(VocabularyValue::kHidden);
  } else if (MakesInputGradient(part.op) && part.stage == ends.first) {
    entry.takes_output = true;
    add_all(VocabularyValue::kGradient);
  }
}

bool VocabularyExchange::Receive(std::size_t entry, std::int64_t round) {
  for (const auto& [value, from, slot] : entries_[entry].in) {
    Message message;
    waits_for_.store(slot, std::memory_order_relaxed);
    const bool received = transport_.Receive(slot, round, message);
    waits_for_.store(-1, std::memory_order_relaxed);
    if (!received) return false;
    shard_.Take(value, from, entries_[entry].part.microbatch, std::move(message));
  }
  return true;
}

Message VocabularyExchange::Input(std::size_t entry) {
  const Part& part = entries_[entry].part;
  return shard_.InputOf(part.op, part.microbatch);
}

void VocabularyExchange::TakeOutput(std::size_t entry, std::int64_t round, Message output) {
  const Part& part = entries_[entry].part;
  const auto value =
      part.op == Op::kForward ? VocabularyValue::kHidden : VocabularyValue::kGradient;
  shard_.Take(value, rank_, part.microbatch, std::move(output));
  Send(entry, round);
}

void VocabularyExchange::Send(std::size_t entry, std::int64_t round) {
  for (const auto& [value, to, slot] : entries_[entry].out) {
    transport_.Send(slot, round, shard_.Share(value, to, entries_[entry].part.microbatch));
  }
}

}  // namespace penstock
