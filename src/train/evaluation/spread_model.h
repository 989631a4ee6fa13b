// SpreadModel: the forward pass of a model whose stages may be on several hosts, for evaluation and
// for writing text.
//
// Every host calls the same functions in the same order, and runs the stages that it has; what goes
// from stage to stage crosses hosts over a channel. Whichever hosts there are, the numbers are the
// same. Errors: throws std::runtime_error with the reason of an abort of the group.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/byte_stream.h"
#include "runtime/hosts/host_group.h"
#include "train/evaluation/language_model.h"

namespace penstock {

class SpreadModel {
 public:
  // Of one host. `model`, which has all stages, outlives the object, and so does `stop`; it may be
  // null.
  explicit SpreadModel(const LanguageModel& model, const std::atomic<bool>* stop = nullptr);
  // `host_of` by stage; the stages of other hosts are null. `group` may be null: one host has all.
  SpreadModel(const LanguageModel& model, std::vector<int> host_of, HostGroup* group,
              const std::atomic<bool>* stop);

  const ModelConfig& config() const { return model_.config; }
  bool has_first() const { return model_.stages.front() != nullptr; }
  bool has_last() const { return model_.stages.back() != nullptr; }
  StageModule& last() const { return *model_.stages.back(); }

  // Once `stop` is set on any host: what is computed from then on means nothing. Any thread.
  bool stopped();

  // The first of `count` numbers that are not in use yet. One thread.
  std::int64_t Reserve(std::int64_t count);
  // This host's part of forward `number`, which every host runs once. `tokens` counts where the
  // first stage is here. Returns what the last stage returns, where it is here; else what the last
  // stage here has sent. None once it is stopped. Any number of threads at a time, for other
  // numbers.
  std::optional<std::vector<at::Tensor>> Forward(std::int64_t number, const at::Tensor& tokens);

  // What the host of the last stage has, on all hosts; `number` as for Forward, but another one.
  // None once it is stopped.
  template <class T>
  std::optional<std::vector<T>> FromLast(std::int64_t number, std::vector<T> own);
  // Ends the work of all hosts where one of them cannot go on.
  void Abort(const Error& reason);

 private:
  enum Kind : std::int32_t { kValues, kStopped };
  static constexpr int kToAll = -1;  // in place of a stage

  void OnFrame(const FrameTag& tag, Message message);
  // Waits for what is sent to the stage; an empty message once it is stopped.
  Message Take(std::int64_t number, int stage);

  const LanguageModel& model_;
  const std::vector<int> host_of_;
  const std::atomic<bool>* stop_;
  std::int64_t numbers_ = 0;  // in use
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::pair<std::int64_t, int>, Message> arrived_;  // by number and stage; guarded
  std::atomic<bool> stopped_{false};
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
