#include "train/evaluation/distributed_model.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <stdexcept>

#include "train/message/tensor_message.h"

namespace penstock {
namespace {

// Runs the stage on hidden states or tokens [batch, tokens, ..] that follow the cached ones.
std::vector<at::Tensor> ForwardCached(StageModule& stage, const at::Tensor& input,
                                      KeyValueCache& cache) {
  SequenceContext context(cache);
  at::Tensor output = stage.ForwardSlice(input, context);
  cache.Advance(input.size(1));
  return {std::move(output)};
}

// All stages of a process are on one device.
c10::Device DeviceOfStages(const LanguageModel& model) {
  const auto here =
      std::ranges::find_if(model.stages, [](const auto& each) { return each != nullptr; });
  return here == model.stages.end() ? c10::Device(c10::kCPU) : DeviceOf(**here);
}

}  // namespace

DistributedModel::DistributedModel(const LanguageModel& model, const std::atomic<bool>* stop)
    : DistributedModel(model, {}, nullptr, stop) {}

DistributedModel::DistributedModel(const LanguageModel& model, std::vector<int> process_of,
                                   ProcessGroup* group, const std::atomic<bool>* stop)
    : model_(model),
      device_(DeviceOfStages(model)),
      process_of_(std::move(process_of)),
      stop_(stop) {
  if (group == nullptr || group->processes() == 1) return;
  channel_ = std::make_unique<Channel>(*group);
  channel_->Open(
      [this](int, const FrameTag& tag, Message message) { OnFrame(tag, std::move(message)); },
      [this](const Error&) {
        const MutexLock lock(mutex_);  // so that no wait misses it
        changed_.NotifyAll();
      });
}

bool DistributedModel::stopped() {
  if (stopped_.load()) return true;
  if (stop_ == nullptr || !stop_->load()) return false;
  if (!stopped_.exchange(true) && channel_) channel_->SendToOthers({kStopped, 0, 0});
  return true;
}

bool DistributedModel::HasForwardSlice() const {
  return std::ranges::all_of(model_.stages, [](const auto& stage) {
    return stage == nullptr || stage->HasForwardSlice();
  });
}

std::optional<std::vector<at::Tensor>> DistributedModel::Forward(std::int64_t number,
                                                                 const at::Tensor& tokens,
                                                                 std::span<KeyValueCache> caches) {
  const at::NoGradGuard no_grad;
  if (stopped()) return {};
  std::vector<at::Tensor> values = {tokens};
  const int stages = static_cast<int>(model_.stages.size());
  for (int stage = 0; stage < stages; ++stage) {
    if (model_.stages[stage] == nullptr) continue;
    if (stage > 0 && model_.stages[stage - 1] == nullptr) {
      Message received = Take(number, stage);
      if (received.empty()) return {};
      values = FromTypedMessage(std::move(received));
    }
    for (at::Tensor& value : values) value = value.to(device_);
    values = caches.empty() ? model_.stages[stage]->ForwardAll(values)
                            : ForwardCached(*model_.stages[stage], values[0], caches[stage]);
    if (stage + 1 < stages && model_.stages[stage + 1] == nullptr) {
      channel_->Send(process_of_[stage + 1], {kValues, stage + 1, number}, ToTypedMessage(values));
    }
  }
  return values;
}

std::int64_t DistributedModel::Reserve(std::int64_t count) {
  numbers_ += count;
  return numbers_ - count;
}

Message DistributedModel::Take(std::int64_t number, int stage) {
  const auto key = std::pair(number, stage);
  const ProcessGroup& group = channel_->group();
  MutexLock lock(mutex_);
  while (!arrived_.contains(key) && !stopped_.load() && !group.aborted()) changed_.Wait(lock);
  if (arrived_.contains(key)) return std::move(arrived_.extract(key).mapped());
  if (group.aborted()) throw std::runtime_error(group.reason().message);
  return {};
}

void DistributedModel::OnFrame(const FrameTag& tag, Message message) {
  const MutexLock lock(mutex_);
  if (tag.kind == kStopped) {
    stopped_.store(true);
  } else {
    arrived_.emplace(std::pair(tag.number, tag.index), std::move(message));
  }
  changed_.NotifyAll();
}

void DistributedModel::Abort(const Error& reason) {
  if (channel_) channel_->group().Abort(reason);
}

}  // namespace penstock
