#include "train/run/batch_source.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "base/index.h"
#include "config/sequence_lengths.h"

namespace penstock {
namespace {

// The tensors of either the tokens or the targets, one per microbatch index. Threads: one at a
// time. The first and the last stage may run on two threads, so each of them needs its own object.
class BatchBuffers {
 public:
  BatchBuffers(std::shared_ptr<const SampleSource> samples, const TrainConfig& config,
               std::size_t shift)
      : samples_(std::move(samples)), batch_(config.batch), shift_(shift) {
    const std::vector<std::int64_t> lengths = SliceLengths(config);
    starts_.resize(lengths.size());
    std::exclusive_scan(lengths.begin(), lengths.end(), starts_.begin(), std::int64_t{0});
    const std::vector<std::int64_t> of_microbatches = MicrobatchLengths(config);
    for (int microbatch = 0; microbatch < config.pipeline.microbatches; ++microbatch) {
      if (!of_microbatches.empty()) {
        tensors_.push_back(
            at::empty({config.batch, of_microbatches[Index(microbatch)]}, at::kLong));
        continue;
      }
      for (const std::int64_t length : lengths) {
        tensors_.push_back(at::empty({config.batch, length}, at::kLong));
      }
    }
  }

  at::Tensor Fill(std::int64_t step, int microbatch) {
    at::Tensor& tensor = tensors_[microbatch];
    // Without a flush, the same microbatch index of the previous step may still be in flight.
    if (tensor.use_count() > 1) tensor = at::empty_like(tensor);
    auto* to = tensor.mutable_data_ptr<std::int64_t>();
    const std::size_t length = tensor.size(1);
    const std::size_t index = microbatch;
    const std::size_t begin = Index(starts_[index % starts_.size()]) + shift_;
    const auto first =
        static_cast<std::int64_t>(index / starts_.size()) * static_cast<std::int64_t>(batch_);
    for (int i = 0; i < batch_; ++i) {
      samples_->Copy(step, first + i, begin, {to, length});
      // Any token serves as padding, because no token before it attends to it.
      if (shift_ == 0) std::replace(to, to + length, kNoToken, std::int64_t{0});
      to += length;
    }
    return tensor;
  }

 private:
  std::shared_ptr<const SampleSource> samples_;
  int batch_;
  std::vector<std::int64_t> starts_;  // by slice: the index of its first token
  std::size_t shift_;                 // 0: tokens; 1: targets
  std::vector<at::Tensor> tensors_;   // by microbatch index
};

}  // namespace

BatchSource MakeBatchSource(const Sampler& sampler, const TrainConfig& config) {
  return MakeBatchSource(std::make_shared<const Sampler>(sampler), config);
}

BatchSource MakeBatchSource(std::shared_ptr<const SampleSource> samples,
                            const TrainConfig& config) {
  const auto read = [&](std::size_t shift) {
    const auto buffers = std::make_shared<BatchBuffers>(samples, config, shift);
    return [buffers](std::int64_t step, int microbatch) { return buffers->Fill(step, microbatch); };
  };
  return {read(0), read(1), [samples, config] { return MakeBatchSource(samples, config); }};
}

BatchSource MakeBatchSource(std::shared_ptr<const SampleSource> samples, const RunContext& run) {
  const Placement& placement = run.schedule.placement;
  bool has_first = false;
  bool has_last = false;
  for (const int mesh_rank : run.ranks.here()) {
    for (const int stage : placement.stages_of(mesh_rank / run.planes())) {
      has_first = has_first || placement.previous(stage) < 0;
      has_last = has_last || placement.next(stage) < 0;
    }
  }
  BatchSource source = MakeBatchSource(std::move(samples), run.config);
  if (!has_first) source.tokens = nullptr;
  if (!has_last) source.targets = nullptr;
  return source;
}

BatchSource OfContextRank(const BatchSource& whole, const ContextPlace& place) {
  if (place.ranks == 1) return whole;
  const auto divide = [place](const auto& read, std::int64_t padding) {
    return [=](std::int64_t step, int microbatch) {
      return TokensOf(place, read(step, microbatch), 1, padding);
    };
  };
  BatchSource divided = whole;
  if (whole.tokens) divided.tokens = divide(whole.tokens, 0);
  if (whole.targets) divided.targets = divide(whole.targets, kNoToken);
  return divided;
}

}  // namespace penstock
