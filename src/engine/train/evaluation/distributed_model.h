// DistributedModel: the forward pass of a model whose stages may be on several processes, for
// evaluation and text generation.
//
// Every process calls the same functions in the same order and runs its own stages. A channel
// carries values between stages on different processes. The results do not depend on the processes.
// Errors: throws std::runtime_error with the reason if the group is aborted.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/byte_stream.h"
#include "base/mutex.h"
#include "model/sequence_context.h"
#include "runtime/processes/process_group.h"
#include "train/evaluation/language_model.h"

namespace penstock {

class DistributedModel {
 public:
  // For one process, which has all stages of `model`. `stop` may be null. Both must outlive the
  // object.
  explicit DistributedModel(const LanguageModel& model, const std::atomic<bool>* stop = nullptr);
  // For several processes. `process_of` has the process of each stage; stages of other processes
  // are null. `group` may be null: this process has all stages.
  DistributedModel(const LanguageModel& model, std::vector<int> process_of, ProcessGroup* group,
                   const std::atomic<bool>* stop);

  const ModelConfig& config() const { return model_.config; }
  bool has_last() const { return model_.stages.back() != nullptr; }
  StageModule& last() const { return *model_.stages.back(); }
  // Returns whether the model can run with caches. The same on all processes.
  bool HasForwardSlice() const;
  int stages() const { return static_cast<int>(model_.stages.size()); }

  // Returns whether `stop` was set on any process. Results are meaningless from then on.
  // Thread-safe.
  bool stopped();

  // Reserves `count` consecutive numbers for calls of Forward and FromLast, and returns the first.
  // Not thread-safe.
  std::int64_t Reserve(std::int64_t count);
  // Runs this process's part of forward `number`, which every process calls once. Only the process
  // of the first stage reads `tokens`. Returns the outputs of the last stage on this process, or
  // nothing after a stop. Thread-safe for different numbers.
  std::optional<std::vector<at::Tensor>> Forward(std::int64_t number, const at::Tensor& tokens) {
    return Forward(number, tokens, {});
  }
  // Computes tokens that follow the tokens in the caches, one per stage of this model, to which it
  // appends them. Requires: HasForwardSlice() of all stages. Empty `caches`: whole sequences.
  std::optional<std::vector<at::Tensor>> Forward(std::int64_t number, const at::Tensor& tokens,
                                                 std::span<KeyValueCache> caches);

  // Returns the values of the process of the last stage, on all processes. `number` must differ
  // from the numbers that Forward gets. Returns nothing after a stop.
  template <class T>
  std::optional<std::vector<T>> FromLast(std::int64_t number, std::vector<T> own);
  // Aborts the work of all processes.
  void Abort(const Error& reason);

 private:
  enum Kind : std::int32_t { kValues, kStopped };
  static constexpr int kToAll = -1;  // in place of a stage's index

  void OnFrame(const FrameTag& tag, Message message);
  // Waits for the message to the stage. Returns an empty message after a stop.
  Message Take(std::int64_t number, int stage);

  const LanguageModel& model_;
  const c10::Device device_;  // of this process's stages
  const std::vector<int> process_of_;
  const std::atomic<bool>* stop_;
  std::int64_t numbers_ = 0;  // reserved so far
  Mutex mutex_;
  CondVar changed_;
  // By number and stage.
  std::map<std::pair<std::int64_t, int>, Message> arrived_ PENSTOCK_GUARDED_BY(mutex_);
  std::atomic<bool> stopped_{false};  // OnFrame sets it with the lock, so that no wait misses it
  std::unique_ptr<Channel> channel_;  // null for one process
};

template <class T>
std::optional<std::vector<T>> DistributedModel::FromLast(std::int64_t number, std::vector<T> own) {
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
