#include "train/stage/torch_vocabulary.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/nonzero.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <utility>

#include "base/index.h"
#include "train/memory_of.h"
#include "train/message/tensor_message.h"

namespace penstock {
namespace {

// A message with a tensor that the sender keeps.
Message CopyOf(const at::Tensor& tensor) {
  std::array<at::Tensor, 1> one = {tensor.detach()};
  return ToMessage(one);
}

ConstBytes BytesOfTensor(const at::Tensor& tensor) {
  return {static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes()};
}

template <class T>
T OrThrow(Result<T> result) {
  if (!result) throw std::runtime_error(result.error().line());
  return *std::move(result);
}

}  // namespace

TorchVocabulary::TorchVocabulary(const VocabularyOptions& options, std::vector<NamedTensor> tables,
                                 BatchSource source, std::unique_ptr<RankGroup> group)
    : options_(options),
      rows_(RowsOfRank(options.vocabulary, options.ranks, options.rank)),
      masters_(std::move(tables)),
      working_(masters_),
      source_(std::move(source)),
      microbatches_(Index(options.microbatches)),
      losses_(microbatches_.size(), options.device),
      group_(std::move(group)) {
  for (NamedTensor& table : working_) table.tensor = table.tensor.to(options.dtype);
  for (Microbatch& each : microbatches_) {
    each.embeddings.resize(Index(options.ranks));
    each.parts.resize(Index(options.ranks));
  }
  const auto type = [](at::IntArrayRef sizes, at::ScalarType dtype) {
    return TypeOf(at::empty(sizes, dtype));
  };
  hidden_type_ = {type({options.batch, options.length, options.dim}, options.dtype)};
  softmax_types_ = {type({kStatistics, tokens()}, at::kFloat)};
  if (has_loss()) softmax_types_.push_back(type({2, tokens(), options.dim}, options.dtype));
}

void TorchVocabulary::Describe(NamedParameter& parameter) const {
  if (std::ranges::find(masters_, parameter.name, &NamedTensor::name) == masters_.end()) return;
  parameter.layout = Layout({options_.vocabulary, options_.dim}, {0, rows_.begin, rows_.count()});
}

void TorchVocabulary::Bind(std::span<const at::Tensor> gradients) {
  embedding_gradient_ = gradients[gradients.size() - masters_.size()];
  head_gradient_ = gradients.back();
}

void TorchVocabulary::Run(Op op, int microbatch) {
  const at::NoGradGuard no_gradients;
  Microbatch& of = microbatches_[Index(microbatch)];
  if (op == Op::kEmbed) Embed(microbatch);
  if (op == Op::kVocabularyInput) ComputeSoftmax(microbatch);
  if (op == Op::kVocabularyWeight) AddHeadGradient(of);
  if (op == Op::kEmbedGradient) AddEmbeddingGradient(of);
}

at::Tensor TorchVocabulary::Zeros(at::IntArrayRef sizes, at::ScalarType dtype) const {
  return at::zeros(sizes, at::TensorOptions().dtype(dtype).device(options_.device));
}

TorchVocabulary::OwnTokens TorchVocabulary::FindOwn(const at::Tensor& ids) const {
  const at::Tensor flat = ids.reshape({-1});
  const at::Tensor is_own = flat.ge(rows_.begin).logical_and_(flat.lt(rows_.end));
  const at::Tensor positions = at::nonzero(is_own).view({-1});
  const at::Tensor rows = flat.index_select(0, positions).sub_(rows_.begin);
  return {positions.to(options_.device), rows.to(options_.device)};
}

// Tokens of other ranks are zeros.
void TorchVocabulary::Embed(int index) {
  Microbatch& microbatch = microbatches_[Index(index)];
  microbatch.tokens = FindOwn(source_.tokens(step_, index));
  at::Tensor own = Zeros({tokens(), options_.dim}, options_.dtype);
  own.index_copy_(0, microbatch.tokens.positions,
                  embedding().index_select(0, microbatch.tokens.rows));
  microbatch.embeddings[Index(options_.rank)] =
      own.view({options_.batch, options_.length, options_.dim});
}

void TorchVocabulary::ComputeSoftmax(int index) {
  Microbatch& microbatch = microbatches_[Index(index)];
  microbatch.targets = FindOwn(source_.targets(step_, index));
  const OwnTokens& own = microbatch.targets;
  const at::Tensor hidden = microbatch.hidden.reshape({tokens(), options_.dim});
  const at::Tensor logits = at::linear(hidden, head()).to(at::kFloat);
  const at::Tensor softmax = at::softmax(logits, 1);
  const at::Tensor statistics = Zeros({kStatistics, tokens()}, at::kFloat);
  const at::Tensor in_logits = own.positions.mul(rows_.count()).add_(own.rows);
  statistics.select(0, kTarget)
      .index_copy_(0, own.positions, logits.view({-1}).index_select(0, in_logits));
  statistics.select(0, kMaximum).copy_(logits.amax(1));
  // The largest exponential is 1.
  statistics.select(0, kSum).copy_(softmax.amax(1).reciprocal_());
  const at::Tensor gradients = Zeros({2, tokens(), options_.dim}, options_.dtype);
  at::Tensor of_softmax = gradients.select(0, 0);
  at::mm_out(of_softmax, softmax.to(options_.dtype), head());
  gradients.select(0, 1).index_copy_(0, own.positions, head().index_select(0, own.rows));
  microbatch.softmax = softmax;
  bytes_ += static_cast<std::int64_t>(softmax.nbytes());
  Own(microbatch) = {statistics, gradients};
}

void TorchVocabulary::Combine(Microbatch& microbatch) const {
  if (microbatch.maximum.defined()) return;
  const std::vector<SoftmaxPart>& parts = microbatch.parts;
  microbatch.maximum = parts.front().statistics.select(0, kMaximum).clone();
  for (const SoftmaxPart& part : parts) {
    at::maximum_out(microbatch.maximum, microbatch.maximum, part.statistics.select(0, kMaximum));
  }
  microbatch.sum = Zeros({tokens()}, at::kFloat);
  for (const SoftmaxPart& part : parts) {
    microbatch.sum.add_(part.statistics.select(0, kMaximum)
                            .sub(microbatch.maximum)
                            .exp_()
                            .mul_(part.statistics.select(0, kSum)));
  }
}

at::Tensor TorchVocabulary::ScaleOf(const Microbatch& microbatch, const SoftmaxPart& part) {
  return part.statistics.select(0, kMaximum)
      .sub(microbatch.maximum)
      .exp_()
      .mul_(part.statistics.select(0, kSum))
      .div_(microbatch.sum)
      .unsqueeze(1);
}

// Calls `add` with the sum of gradients, or if it has 16 bits, with an fp32 sum of one microbatch
// that is then added to it.
template <class Add>
void InFloat(const at::Tensor& sum, const Add& add) {
  if (sum.scalar_type() == at::kFloat) return add(sum);
  const at::Tensor of_microbatch = at::zeros_like(sum, sum.options().dtype(at::kFloat));
  add(of_microbatch);
  sum.add_(of_microbatch);
}

void TorchVocabulary::AddHeadGradient(Microbatch& microbatch) {
  Combine(microbatch);
  at::Tensor& softmax = microbatch.softmax;
  const at::Tensor hidden =
      microbatch.hidden.reshape({tokens(), options_.dim}).to(at::kFloat).mul(loss_gradient());
  // Scales the hidden states, which are smaller than the softmax.
  const at::Tensor scaled = hidden.mul(ScaleOf(microbatch, Own(microbatch)));
  const OwnTokens own = std::exchange(microbatch.targets, {});
  InFloat(head_gradient_, [&](const at::Tensor& sum) {
    if (options_.dtype == at::kFloat) {
      sum.addmm_(softmax.t(), scaled);
    } else {
      sum.add_(at::mm(softmax.to(options_.dtype).t(), scaled.to(options_.dtype)));
    }
    sum.index_add_(0, own.rows, hidden.index_select(0, own.positions), /*alpha=*/-1);
  });
  bytes_ -= static_cast<std::int64_t>(softmax.nbytes());
  softmax.reset();
  microbatch.hidden.reset();
  EndReading(microbatch);
}

// On the last stage's rank, T and I or B read the statistics, in any order.
void TorchVocabulary::EndReading(Microbatch& microbatch) const {
  if (++microbatch.readers < (has_loss() ? 2 : 1)) return;
  microbatch.readers = 0;
  for (SoftmaxPart& part : microbatch.parts) part = {};
  microbatch.maximum.reset();
  microbatch.sum.reset();
}

void TorchVocabulary::AddEmbeddingGradient(Microbatch& microbatch) {
  const at::Tensor gradient = microbatch.gradient.reshape({tokens(), options_.dim});
  const OwnTokens own = std::exchange(microbatch.tokens, {});
  InFloat(embedding_gradient_, [&](const at::Tensor& sum) {
    sum.index_add_(0, own.rows, gradient.index_select(0, own.positions).to(at::kFloat));
  });
  microbatch.gradient.reset();
}

at::Tensor TorchVocabulary::HiddenGradient(int index) {
  Microbatch& microbatch = microbatches_[Index(index)];
  Combine(microbatch);
  const at::Tensor gradient = Zeros({tokens(), options_.dim}, at::kFloat);
  const at::Tensor target = Zeros({tokens()}, at::kFloat);
  for (SoftmaxPart& part : microbatch.parts) {
    gradient.addcmul_(part.gradients.select(0, 0).to(at::kFloat), ScaleOf(microbatch, part));
    gradient.sub_(part.gradients.select(0, 1));
    target.add_(part.statistics.select(0, kTarget));
    part.gradients.reset();
  }
  losses_.Set(Index(index), /*share=*/1,
              microbatch.sum.log().add_(microbatch.maximum).sub_(target).mean());
  EndReading(microbatch);
  return gradient.mul_(loss_gradient())
      .to(options_.dtype)
      .view({options_.batch, options_.length, options_.dim});
}

at::Tensor TorchVocabulary::Embedded(Microbatch& microbatch) const {
  at::Tensor sum = std::move(microbatch.embeddings[Index(options_.rank)]);
  for (at::Tensor& other : microbatch.embeddings) {
    if (!other.defined()) continue;
    sum.add_(other);  // only one of them is not zero
    other.reset();
  }
  return sum;
}

Message TorchVocabulary::InputOf(Op op, int microbatch) {
  const at::NoGradGuard no_gradients;
  std::array<at::Tensor, 1> input = {op == Op::kForward ? Embedded(microbatches_[Index(microbatch)])
                                                        : HiddenGradient(microbatch)};
  return ToMessage(input);
}

void TorchVocabulary::Take(VocabularyValue value, int from, int microbatch, Message message) {
  Microbatch& to = microbatches_[Index(microbatch)];
  if (value == VocabularyValue::kSoftmax) {
    std::array<at::Tensor, 2> tensors;
    FromMessage(std::move(message), softmax_types_, std::span(tensors).first(softmax_types_.size()),
                options_.device);
    to.parts[Index(from)] = {std::move(tensors[0]), std::move(tensors[1])};
    return;
  }
  at::Tensor& kept = value == VocabularyValue::kEmbedding ? to.embeddings[Index(from)]
                     : value == VocabularyValue::kHidden  ? to.hidden
                                                          : to.gradient;
  FromMessage(std::move(message), hidden_type_, {&kept, 1}, options_.device);
}

Message TorchVocabulary::Share(VocabularyValue value, int to, int microbatch) {
  Microbatch& from = microbatches_[Index(microbatch)];
  switch (value) {
    case VocabularyValue::kEmbedding: {
      std::array<at::Tensor, 1> own = {std::move(from.embeddings[Index(options_.rank)])};
      return ToMessage(own);
    }
    case VocabularyValue::kHidden:
      return CopyOf(from.hidden);
    case VocabularyValue::kGradient:
      return CopyOf(from.gradient);
    case VocabularyValue::kSoftmax:
      break;
  }
  SoftmaxPart& own = Own(from);
  if (to != options_.last_rank) return CopyOf(own.statistics);
  std::array<at::Tensor, 2> both = {own.statistics.detach(), std::move(own.gradients)};
  return ToMessage(both);
}

double TorchVocabulary::StepLoss() const {
  const std::span<const float> losses = losses_.Read();
  const double sum = std::accumulate(losses.begin(), losses.end(), 0.0);
  return sum / static_cast<double>(losses.size());
}

void TorchVocabulary::StartGather() {
  StartGatherOf(masters_.front(), options_.first_rank);
  StartGatherOf(masters_.back(), options_.last_rank);
}

// Every rank sends its rows to one.
void TorchVocabulary::StartGatherOf(const NamedTensor& table, int to_rank) {
  const std::size_t row = Index(options_.dim) * sizeof(float);
  const bool receives = options_.rank == to_rank;
  Gather& gather = gathers_.emplace_back();
  gather.name = table.name;
  gather.own = table.tensor.detach();
  gather.whole =
      at::empty({receives ? options_.vocabulary : 0, options_.dim}, gather.own.options());
  std::vector<std::size_t> sent(Index(options_.ranks)), received(Index(options_.ranks));
  sent[Index(to_rank)] = gather.own.nbytes();
  for (int rank = 0; rank < options_.ranks && receives; ++rank) {
    const RowRange rows = RowsOfRank(options_.vocabulary, options_.ranks, rank);
    received[Index(rank)] = Index(rows.count()) * row;
  }
  gather.ticket = OrThrow(group_->AllToAll(BytesOfTensor(gather.own), std::move(sent),
                                           MemoryOf(gather.whole), std::move(received)));
}

std::vector<NamedTensor> TorchVocabulary::FinishGather() {
  std::vector<NamedTensor> tables;
  for (Gather& gather : gathers_) {
    const Status status = group_->Wait(gather.ticket);
    if (!status) throw std::runtime_error(status.error().line());
    if (gather.whole.numel() > 0) tables.push_back({gather.name, gather.whole});
  }
  gathers_.clear();
  return tables;
}

}  // namespace penstock
