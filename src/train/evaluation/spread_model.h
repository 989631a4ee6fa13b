// SpreadModel: the forward pass of a model whose stages may be on several hosts, for evaluation and
// text generation.
//
// Every host calls the same functions in the same order and runs its own stages. A channel carries
// values between stages on different hosts. The results do not depend on the hosts. Errors: throws
// std::runtime_error with the reason if the group is aborted.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/byte_stream.h"
#include "base/mutex.h"
#include "model/sequence_context.h"
#include "runtime/hosts/host_group.h"
#include "train/evaluation/language_model.h"

namespace penstock {

class SpreadModel {
 public:
  // For one host, which has all stages of `model`. `stop` may be null. Both must outlive the
  // object.
  explicit SpreadModel(const LanguageModel& model, const std::atomic<bool>* stop = nullptr);
  // For several hosts. `host_of` has the host of each stage; stages of other hosts are null.
  // `group` may be null: this host has all stages.
  SpreadModel(const LanguageModel& model, std::vector<int> host_of, HostGroup* group,
              const std::atomic<bool>* stop);

  const ModelConfig& config() const { return model_.config; }
  bool has_first() const { return model_.stages.front() != nullptr; }
  bool has_last() const { return model_.stages.back() != nullptr; }
  StageModule& last() const { return *model_.stages.back(); }
  // Returns whether the model can run with caches. The same on all hosts.
  bool HasForwardSlice() const;
  int stages() const { return static_cast<int>(model_.stages.size()); }

  // Returns whether `stop` was set on any host. Results are meaningless from then on. Thread-safe.
  bool stopped();

  // Reserves `count` consecutive numbers for calls of Forward and FromLast, and returns the first.
  // Not thread-safe.
  std::int64_t Reserve(std::int64_t count);
  // Runs this host's part of forward `number`, which every host calls once. Only the host of the
  // first stage reads `tokens`. Returns the outputs of the last stage on this host, or nothing
  // after a stop. Thread-safe for different numbers.
  std::optional<std::vector<at::Tensor>> Forward(std::int64_t number, const at::Tensor& tokens) {
    return Forward(number, tokens, {});
  }
  // Computes tokens that follow the tokens in the caches, one per stage of this model, to which it
  // appends them. Requires: HasForwardSlice() of all stages. Empty `caches`: whole sequences.
  std::optional<std::vector<at::Tensor>> Forward(std::int64_t number, const at::Tensor& tokens,
                                                 std::span<KeyValueCache> caches);

  // Returns the values of the host of the last stage, on all hosts. `number` must differ from those
  // of Forward. Returns nothing after a stop.
  template <class T>
  std::optional<std::vector<T>> FromLast(std::int64_t number, std::vector<T> own);
  // Aborts the work of all hosts.
  void Abort(const Error& reason);

 private:
  enum Kind : std::int32_t { kValues, kStopped };
  static constexpr int kToAll = -1;  // in place of a stage's index

  void OnFrame(const FrameTag& tag, Message message);
  // Waits for the message to the stage. Returns an empty message after a stop.
  Message Take(std::int64_t number, int stage);

  const LanguageModel& model_;
  const std::vector<int> host_of_;
  const std::atomic<bool>* stop_;
  std::int64_t numbers_ = 0;  // reserved so far
  Mutex mutex_;
  CondVar changed_;
  // By number and stage.
  std::map<std::pair<std::int64_t, int>, Message> arrived_ PENSTOCK_GUARDED_BY(mutex_);
  std::atomic<bool> stopped_{false};  // OnFrame sets it with the lock, so that no wait misses it
  std::unique_ptr<Channel> channel_;  // null for one host
};

template <class T>
std::optional<std::vector<T>> SpreadModel::FromLast(std::int64_t number, std::vector<T> own) {
  if (!channel_) return own;
  if (has_last()) {
    ByteWriter writer;
    writer.PutAll(std::span<const T>(own));
    channel_->SendToOthers({kValues, kToAll, number}, writer.bytes());
    return own;
  }
  const Message message = Take(number, kToAll);
  if (message.empty()) return {};
  return ByteReader(TextOf(message)).GetAll<T>();
}

}  // namespace penstock
