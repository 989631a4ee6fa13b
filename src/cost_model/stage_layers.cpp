#include "cost_model/stage_layers.h"

#include <algorithm>
#include <utility>

#include "cost_model/parameters.h"
#include "cost_model/rank_sizes.h"

namespace penstock {
namespace {

// Adds up what the parts of a stage keep.
class KeptSum {
 public:
  // `checkpoint` is what a layer keeps that is computed again as a whole, `offloaded` the part of
  // what layers keep that is in the memory of the host, and `modules` those whose tensors are
  // there.
  KeptSum(const Recompute& recompute, double checkpoint, double offloaded, int modules)
      : recompute_(recompute), checkpoint_(checkpoint), offloaded_(offloaded), modules_(modules) {}

  void Add(StagePart part) {
    double again = 0;  // allocated again in the backward
    double from_forward = checkpoint_, after_input = checkpoint_;
    if (part.is_recomputed) {
      again = KeptFromForward(part.kept);
    } else {
      if (part.is_layer) again = Free(part.kept);
      from_forward = KeptFromForward(part.kept);
      after_input = KeptAfterInput(part.kept);
    }
    if (part.is_layer && !part.is_recomputed && modules_ != 0) {
      const double bytes = Remove(part.kept, modules_);
      newest_ = std::max(newest_, bytes);
      sum_.offloaded += part.count * bytes;
      from_forward = KeptFromForward(part.kept);
      after_input = KeptAfterInput(part.kept);
    }
    const double moved = part.is_layer ? offloaded_ : 0;
    sum_.offloaded += part.count * moved * from_forward;
    sum_.from_forward += part.count * (1 - moved) * from_forward;
    sum_.after_input += part.count * (1 - moved) * after_input;
    if (part.is_layer) {
      has_layers_ = true;
      of_layers_ = std::max(of_layers_, again + part.transient);
      return;
    }
    sum_.transient = std::max(sum_.transient, part.transient);
    if (has_layers_) of_head_ += part.count * from_forward;
  }
  // When the backward of a layer runs, the tensors of head and loss are gone. With offloaded
  // modules, one layer's tensors are in use while another layer's are transferred.
  KeptBytes Take() const {
    KeptBytes sum = sum_;
    sum.transient = std::max(sum.transient, of_layers_ - of_head_) + 2 * newest_;
    return sum;
  }

 private:
  // Removes the tensors that modules compute again. Returns the most that one module allocates.
  double Free(KeptTensors& tensors) const {
    if (recompute_.method != Recompute::Method::kSelective) return 0;
    double most = 0;
    for (int module = 1; module <= recompute_.modules; module *= 2) {
      if ((recompute_.modules & module) != 0) most = std::max(most, Remove(tensors, module));
    }
    return most;
  }
  // Removes the tensors of modules that F keeps. Returns their bytes.
  static double Remove(KeptTensors& tensors, int modules) {
    double bytes = 0;
    std::erase_if(tensors, [&](const KeptTensor& tensor) {
      const bool is_removed = (tensor.modules & modules) != 0 && tensor.kept != Kept::kFromInput;
      if (is_removed) bytes += tensor.bytes;
      return is_removed;
    });
    return bytes;
  }

  const Recompute& recompute_;
  double checkpoint_;
  double offloaded_;
  int modules_;
  KeptBytes sum_;
  bool has_layers_ = false;
  double of_layers_ = 0, of_head_ = 0;
  double newest_ = 0;  // of one layer's offloaded modules
};

// All that the work and the tensors of a layer depend on.
struct KindOfLayer {
  KindOfLayer(const ModelShape& shape, std::int64_t layer, bool recomputed)
      : kind(shape.kind(layer)),
        has_experts(shape.has_experts(layer)),
        has_delta(shape.has_delta(layer)),
        window(shape.window_of(layer)),
        is_recomputed(recomputed) {}
  bool operator==(const KindOfLayer&) const = default;

  LayerKind kind;
  bool has_experts;
  bool has_delta;
  std::int64_t window;
  bool is_recomputed;
  bool is_in_bf16 = false;
};

// Predictors come with logits of their own.
void AddPredictors(const ModelShape& shape, const LayerRange& stage, const Microbatch& batch,
                   const Recompute& recompute, std::vector<StagePart>& parts) {
  if (stage.predictors == 0) return;
  const Implementation& implementation = batch.profile.get();
  StagePart& block = parts.emplace_back(implementation.predictor(shape, batch));
  block.count = static_cast<int>(stage.predictors);
  block.is_recomputed = recompute.covers(stage.end - stage.begin);
  if (!stage.has_logits()) return;
  parts.push_back(implementation.logits(shape, batch));
  parts.back().count = static_cast<int>(stage.predictors);
}

void AddLayer(const ModelShape& shape, std::int64_t layer, double times, ParameterCount& count) {
  const double of_experts = ExpertParameters(shape, layer);
  count.others += times * (LayerParameters(shape, layer) - of_experts);
  count.of_experts += times * of_experts;
}

}  // namespace

std::vector<StagePart> PartsOfStage(const ModelShape& shape, const LayerRange& stage,
                                    const Microbatch& batch, const Recompute& recompute) {
  std::vector<StagePart> parts;
  const Implementation& implementation = batch.profile.get();
  if (stage.has_embedding()) parts.push_back(implementation.embedding(shape, batch));
  std::vector<std::pair<KindOfLayer, std::size_t>> kinds;
  for (std::int64_t layer = stage.begin; layer < stage.end; ++layer) {
    KindOfLayer kind(shape, layer, recompute.covers(layer - stage.begin));
    kind.is_in_bf16 = layer >= shape.layers - batch.profile.layers_at_end_in_bf16;
    const auto known = std::ranges::find(kinds, kind, &std::pair<KindOfLayer, std::size_t>::first);
    if (known != kinds.end()) {
      ++parts[known->second].count;
      continue;
    }
    kinds.emplace_back(kind, parts.size());
    parts.push_back(implementation.layer(shape, layer, batch));
    parts.back().is_recomputed = kind.is_recomputed;
  }
  AddPredictors(shape, stage, batch, recompute, parts);
  if (stage.head) parts.push_back(implementation.final_norm(shape, batch));
  if (stage.has_logits()) parts.push_back(implementation.logits(shape, batch));
  return parts;
}

KeptBytes KeptByStage(const ModelShape& shape, const LayerRange& stage, const Microbatch& batch,
                      const Recompute& recompute) {
  const double checkpoint = HiddenBytes(shape, batch);
  KeptSum sum(recompute, checkpoint / static_cast<double>(recompute.checkpoint_layers()),
              batch.profile.offloaded_part(shape.layers), batch.profile.offloaded_modules);
  for (StagePart& part : PartsOfStage(shape, stage, batch, recompute)) sum.Add(std::move(part));
  KeptBytes kept = sum.Take();
  if (stage.has_embedding()) {
    // W reads everything, and the gradient of the output.
    kept.after_input = kept.from_forward + (stage.has_logits() ? 0 : HiddenBytes(shape, batch));
  }
  return kept;
}

ParameterCount ParametersOfStage(const ModelShape& shape, const LayerRange& stage,
                                 const Microbatch& batch) {
  const Implementation& implementation = batch.profile.get();
  if (implementation.parameters != nullptr) return implementation.parameters(shape, stage, batch);
  ParameterCount count;
  if (stage.has_embedding()) count.others += EmbeddingParameters(shape);
  for (std::int64_t layer = stage.begin; layer < stage.end; ++layer) {
    AddLayer(shape, layer, 1, count);
  }
  const auto predictors = static_cast<double>(
      shape.shared_predictors ? std::min<std::int64_t>(stage.predictors, 1) : stage.predictors);
  for (std::int64_t i = 0; i < shape.predictor_layers(); ++i) {
    AddLayer(shape, shape.layers + i, predictors, count);
  }
  count.others += predictors * PredictorParameters(shape);
  if (stage.head) count.others += static_cast<double>(shape.dim);  // the norm
  if (stage.has_logits()) count.others += HeadParameters(shape) - static_cast<double>(shape.dim);
  const bool copies_embedding = stage.has_logits() && shape.tied && !stage.embedding;
  if (copies_embedding) {
    count.others += static_cast<double>(shape.vocabulary) * static_cast<double>(shape.dim);
  }
  // Norms and routers are on every rank, but are too few to count.
  count.others /= static_cast<double>(batch.tensor);
  count.of_experts /= static_cast<double>(batch.expert_ranks());
  return count;
}

double HiddenBytes(const ModelShape& shape, const Microbatch& batch) {
  return batch.tokens_of_rank() * static_cast<double>(shape.dim) * batch.element_bytes();
}

}  // namespace penstock
