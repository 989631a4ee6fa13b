#include "runtime/update/update_exchange.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace penstock {
namespace {

// A message of memory that the exchange owns. It is overwritten only after all receivers have read
// it.
Message Lend(std::span<double> numbers) {
  return Message(numbers.data(), numbers.size_bytes(), numbers.data(), [](void*) {});
}

std::span<const double> Numbers(const Message& message) {
  PENSTOCK_CHECK(message.bytes() % sizeof(double) == 0, "a message of norms has {} bytes",
                 message.bytes());
  return {static_cast<const double*>(message.data()), message.bytes() / sizeof(double)};
}

// Another stage of the chain that holds a copy of a parameter.
struct SharedWith {
  int parameter;
  int holder;  // its place among the holders
  int stage;

  // Returns, for each shared parameter that `stage` holds, the other holders in order.
  static std::vector<SharedWith> Of(const Schedule& schedule, int stage) {
    const Placement& placement = schedule.placement;
    const int own = placement.model_stage(stage);
    std::vector<SharedWith> all;
    for (int parameter = 0; parameter < std::ssize(schedule.shared); ++parameter) {
      const std::vector<int>& holders = schedule.shared[parameter];
      if (std::find(holders.begin(), holders.end(), own) == holders.end()) continue;
      for (int holder = 0; holder < std::ssize(holders); ++holder) {
        const int other = holders[holder];
        if (other != own) all.push_back({parameter, holder, stage - own + other});
      }
    }
    return all;
  }
};

}  // namespace

void FailOnNonFinite(const UpdateRule& rule, const std::string& parameter) {
  throw std::runtime_error(
      fmt::format("the gradient of {} is not finite: {}", parameter, rule.nonfinite_remedy));
}

Verdict Judge(const UpdateRule& rule, double squared_norm) {
  Verdict verdict;
  verdict.norm = std::sqrt(squared_norm);
  if (!std::isfinite(verdict.norm)) {
    if (!rule.skip_nonfinite) {
      throw std::runtime_error(
          fmt::format("the norm of the gradients is {}: {}", verdict.norm, rule.nonfinite_remedy));
    }
    verdict.apply = false;
  } else if (rule.clip > 0 && verdict.norm > rule.clip) {
    verdict.scale = rule.clip / verdict.norm;
  }
  return verdict;
}

UpdateExchange::UpdateExchange(const RankContext& context, const UpdateRule& rule)
    : context_(context),
      rule_(rule),
      messages_(*context.schedule),
      norms_(context.schedule->stages()) {}

template <class Share>
void UpdateExchange::SendToReplicas(int stage, std::int64_t round, ReplicaSlot slot_of,
                                    Share share) {
  for (int chain = 0; chain < context_.schedule->placement.replicas(); ++chain) {
    const int slot = (messages_.*slot_of)(stage, chain);
    if (slot >= 0) context_.transport->Send(slot, round, share(chain));
  }
}

template <class Take>
bool UpdateExchange::TakeFromReplicas(int stage, std::int64_t round, ReplicaSlot slot_of,
                                      Take take) {
  const Placement& placement = context_.schedule->placement;
  const int own_chain = stage / placement.chain_length();
  for (int chain = 0; chain < placement.replicas(); ++chain) {
    if (chain == own_chain) continue;
    const int replica = chain * placement.chain_length() + placement.model_stage(stage);
    Message message;
    if (!Receive((messages_.*slot_of)(replica, own_chain), round, message)) return false;
    take(chain, std::move(message));
  }
  return true;
}

void UpdateExchange::ShareGradients(int stage, std::int64_t round) {
  StageUpdate& own = context_.stages[stage]->update();
  SendToReplicas(stage, round, &MessageMap::GradientSlot,
                 [&](int chain) { return own.ShareGradients(chain); });
}

bool UpdateExchange::AddGradients(int stage, std::int64_t round) {
  StageUpdate& own = context_.stages[stage]->update();
  const bool taken = TakeFromReplicas(
      stage, round, &MessageMap::GradientSlot,
      [&](int chain, Message gradients) { own.TakeGradients(chain, std::move(gradients)); });
  if (taken) own.AddGradients();
  return taken;
}

void UpdateExchange::ShareParameters(int stage, std::int64_t round) {
  StageUpdate& own = context_.stages[stage]->update();
  for (const SharedWith& with : SharedWith::Of(*context_.schedule, stage)) {
    context_.transport->Send(messages_.SharedSlot(with.parameter, stage, with.stage), round,
                             own.ShareParameter(with.parameter));
  }
}

bool UpdateExchange::AddParameters(int stage, std::int64_t round) {
  StageUpdate& own = context_.stages[stage]->update();
  const std::vector<SharedWith> all = SharedWith::Of(*context_.schedule, stage);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const SharedWith& with = all[i];
    Message message;
    if (!Receive(messages_.SharedSlot(with.parameter, with.stage, stage), round, message)) {
      return false;
    }
    own.TakeParameter(with.parameter, with.holder, std::move(message));
    const bool last = i + 1 == all.size() || all[i + 1].parameter != with.parameter;
    if (last) own.AddParameter(with.parameter);
  }
  return true;
}

void UpdateExchange::ShareShard(int stage, std::int64_t round) {
  StageUpdate& own = context_.stages[stage]->update();
  SendToReplicas(stage, round, &MessageMap::ShardSlot, [&](int) { return own.ShareShard(); });
}

bool UpdateExchange::TakeShards(int stage, std::int64_t round) {
  StageUpdate& own = context_.stages[stage]->update();
  return TakeFromReplicas(stage, round, &MessageMap::ShardSlot, [&](int chain, Message shard) {
    own.TakeShard(chain, std::move(shard));
  });
}

void UpdateExchange::Measure(int stage) {
  if (!counts(stage)) return;
  StageUpdate& measured = context_.stages[stage]->update();
  const std::span<const double> norms = measured.SquaredNorms();
  for (std::size_t i = 0; i < norms.size() && !rule_.skip_nonfinite; ++i) {
    if (!std::isfinite(norms[i])) FailOnNonFinite(rule_, measured.ParameterName(i));
  }
  own_norms_.push_back(static_cast<double>(stage));
  own_norms_.push_back(static_cast<double>(norms.size()));
  own_norms_.insert(own_norms_.end(), norms.begin(), norms.end());
}

void UpdateExchange::SendNorms(std::int64_t round) {
  if (context_.rank == messages_.root()) return;
  context_.transport->Send(messages_.NormSlot(context_.rank), round, Lend(own_norms_));
}

bool UpdateExchange::Agree(std::int64_t round, Verdict& verdict) {
  if (context_.rank == messages_.root()) {
    if (!GatherNorms(round, squared_norm_)) return false;
    verdict = Judge(rule_, squared_norm_);
    for (int rank = 0; rank < context_.schedule->ranks(); ++rank) {
      if (rank == context_.rank) continue;
      context_.transport->Send(messages_.VerdictSlot(rank), round, Lend({&squared_norm_, 1}));
    }
  } else {
    Message message;
    if (!Receive(messages_.VerdictSlot(context_.rank), round, message)) return false;
    verdict = Judge(rule_, Numbers(message).front());
  }
  own_norms_.clear();
  return true;
}

bool UpdateExchange::GatherNorms(std::int64_t round, double& squared_norm) {
  for (int rank = 0; rank < context_.schedule->ranks(); ++rank) {
    if (rank == context_.rank) {
      TakeNorms(own_norms_);
      continue;
    }
    Message message;
    if (!Receive(messages_.NormSlot(rank), round, message)) return false;
    TakeNorms(Numbers(message));
  }
  squared_norm = 0;
  const int length = context_.schedule->placement.chain_length();
  for (int stage = 0; stage < length; ++stage) {
    for (std::size_t parameter = 0; parameter < norms_[stage].size(); ++parameter) {
      double norm = 0;
      for (std::size_t shard = stage; shard < norms_.size(); shard += length) {
        if (parameter < norms_[shard].size()) norm += norms_[shard][parameter];
      }
      squared_norm += norm;
    }
  }
  return true;
}

void UpdateExchange::TakeNorms(std::span<const double> packed) {
  while (!packed.empty()) {
    const std::size_t stage = packed[0];
    const std::size_t count = packed[1];
    PENSTOCK_CHECK(stage < norms_.size() && count <= packed.size() - 2, "norms of stage {}", stage);
    norms_[stage].assign(packed.begin() + 2,
                         packed.begin() + 2 + static_cast<std::ptrdiff_t>(count));
    packed = packed.subspan(2 + count);
  }
}

bool UpdateExchange::Receive(int slot, std::int64_t round, Message& message) {
  waits_for_.store(slot, std::memory_order_relaxed);
  const bool received = context_.transport->Receive(slot, round, message);
  waits_for_.store(-1, std::memory_order_relaxed);
  return received;
}

}  // namespace penstock
