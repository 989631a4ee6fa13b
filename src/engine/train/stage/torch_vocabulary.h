// TorchVocabulary: one rank's rows of the embedding and the head, and the passes on them
// (schedule/vocabulary.h). Private to train/.
//
// Shapes: T tokens of a microbatch, D = dim, V rows of this rank. The algorithm is Vocab-2 (Yeung
// et al., MLSys 2025, section 4): S computes with the maximum and the sum of its own rows, and
// sends both with its part of the input gradient. With all ranks' maxima and sums, T rescales the
// softmax, and the last stage's rank rescales and adds the parts. Sums are in the order of the
// ranks, so the results do not depend on time.
// Threads: created on any thread, then used by the rank's.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "collective/rank_group.h"
#include "config/shard_vocabulary.h"
#include "graph/capture/capture.h"
#include "graph/ir/ir.h"
#include "runtime/vocabulary_shard.h"
#include "train/stage/torch_stage.h"
#include "train/weights/step_losses.h"

namespace penstock {

struct VocabularyOptions {
  int rank = 0, ranks = 1;
  int first_rank = 0, last_rank = 0;  // of the first and the last stage
  int microbatches = 1;               // per step
  std::int64_t vocabulary = 0, dim = 0;
  std::int64_t batch = 1, length = 1;            // samples, and tokens of each
  at::ScalarType dtype = at::ScalarType::Float;  // of the computation
  c10::Device device = c10::kCPU;
};

class TorchVocabulary final : public VocabularyShard {
 public:
  // `tables` are the rank's rows in fp32, [V, D], on the device: of the embedding and the head, or
  // of both at once if they are tied. The rank alone uses `source`. `group` has all ranks in their
  // order.
  TorchVocabulary(const VocabularyOptions& options, std::vector<NamedTensor> tables,
                  BatchSource source, std::unique_ptr<RankGroup> group);

  // What the stage that holds the tables trains, and what the passes compute with: the same tensors
  // or casts of them.
  const std::vector<NamedTensor>& masters() const { return masters_; }
  const std::vector<NamedTensor>& working() const { return working_; }
  // If the parameter is one of the tables, marks it as a range of the whole one.
  void Describe(NamedParameter& parameter) const;
  // Accumulates in these gradients, which end with the tables'.
  void Bind(std::span<const at::Tensor> gradients);

  void BeginStep(std::int64_t step) { step_ = step; }
  // Runs a pass.
  void Run(Op op, int microbatch);
  void Take(VocabularyValue value, int from, int microbatch, Message message) override;
  Message Share(VocabularyValue value, int to, int microbatch) override;
  Message InputOf(Op op, int microbatch) override;

  // Returns the bytes of the softmaxes between S and T.
  std::int64_t bytes() const { return bytes_; }
  bool has_loss() const { return options_.rank == options_.last_rank; }
  // Returns the mean loss of the last step's microbatches. Requires: has_loss().
  double StepLoss() const;

  // Gather the whole tables in the masters' dtype: FinishGather returns the embedding on the first
  // stage's rank and the head on the last stage's. Called on all ranks while none runs: first
  // StartGather, then FinishGather. Throws std::runtime_error if another process is lost.
  void StartGather();
  std::vector<NamedTensor> FinishGather();

 private:
  // The tokens of a microbatch that are among the rank's rows.
  struct OwnTokens {
    at::Tensor positions;  // among the T tokens
    at::Tensor rows;       // of the tables
  };
  // What S of one rank computes.
  struct SoftmaxPart {
    at::Tensor statistics;  // [3, T]: see Statistic
    at::Tensor gradients;   // [2, T, D]: softmax * head, and the target's row of the head
  };
  enum Statistic : std::int64_t { kMaximum, kSum, kTarget, kStatistics };
  struct Microbatch {
    OwnTokens tokens, targets;
    std::vector<at::Tensor> embeddings;  // by rank, [batch, length, D]
    at::Tensor hidden, gradient;         // [batch, length, D]
    at::Tensor softmax;                  // [T, V], of the own rows alone
    std::vector<SoftmaxPart> parts;      // by rank
    at::Tensor maximum, sum;             // [T], over all ranks; undefined before they are known
    int readers = 0;                     // of the statistics, so far
  };
  struct Gather {
    std::string name;
    at::Tensor own, whole;
    RankGroup::Ticket ticket = 0;
  };

  const at::Tensor& embedding() const { return working_.front().tensor; }
  const at::Tensor& head() const { return working_.back().tensor; }
  std::int64_t tokens() const { return options_.batch * options_.length; }
  double loss_gradient() const {
    return 1.0 / static_cast<double>(options_.microbatches * tokens());
  }
  at::Tensor Zeros(at::IntArrayRef sizes, at::ScalarType dtype) const;
  OwnTokens FindOwn(const at::Tensor& ids) const;
  SoftmaxPart& Own(Microbatch& microbatch) const {
    return microbatch.parts[static_cast<std::size_t>(options_.rank)];
  }
  void Embed(int index);
  void ComputeSoftmax(int index);
  void AddHeadGradient(Microbatch& microbatch);
  void AddEmbeddingGradient(Microbatch& microbatch);
  void Combine(Microbatch& microbatch) const;
  // Frees the statistics after their last reader.
  void EndReading(Microbatch& microbatch) const;
  // Returns the factor of a rank's softmax, [T, 1].
  static at::Tensor ScaleOf(const Microbatch& microbatch, const SoftmaxPart& part);
  at::Tensor HiddenGradient(int index);
  at::Tensor Embedded(Microbatch& microbatch) const;
  void StartGatherOf(const NamedTensor& table, int to_rank);

  VocabularyOptions options_;
  RowRange rows_;
  std::vector<NamedTensor> masters_, working_;
  at::Tensor embedding_gradient_, head_gradient_;
  BatchSource source_;
  std::vector<TensorType> hidden_type_;  // of messages, by tensor
  std::vector<TensorType> softmax_types_;
  std::vector<Microbatch> microbatches_;
  StepLosses losses_;  // by microbatch
  std::int64_t step_ = 0;
  std::int64_t bytes_ = 0;
  std::vector<Gather> gathers_;
  // The last member, because its destructor waits until no other rank uses the tensors.
  std::unique_ptr<RankGroup> group_;
};

}  // namespace penstock
