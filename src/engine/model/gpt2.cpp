// GPT-2 (Radford et al. 2019): learned positions, and pre-norm blocks of attention and a GELU
// feed-forward layer with LayerNorm and biases. The head is the token embedding.
#include "model_spec/models/gpt2.h"

#include <ATen/ops/dropout.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/linear.h>

#include "graph/ops/module_scope.h"
#include "graph/ops/random_ops.h"
#include "model/init.h"
#include "model/layers.h"
#include "model/model_entry.h"

namespace penstock {
namespace {

class Gpt2Block : public torch::nn::Module {
 public:
  Gpt2Block(std::int64_t dim, const Gpt2Options& options, const LayerRange& range)
      : heads_(options.heads / range.tensor_ranks),
        place_(TensorPlace::Of(range)),
        dropout_(options.dropout) {
    const auto norm = [&](const char* name) {
      return register_module(
          name, std::make_shared<LayerNorm>(dim, options.norm_epsilon, Cut::ByToken(range)));
    };
    const auto affine = [&](const char* name, std::int64_t in, std::int64_t out, const Cut& cut) {
      return register_module(name, std::make_shared<Affine>(in, out, cut));
    };
    attention_norm_ = norm("attention_norm");
    qkv_ = affine("wqkv", dim, 3 * dim, Cut::Outputs(range, options.heads, /*blocks=*/3));
    output_ = affine("wo", dim, dim, Cut::Inputs(range));
    feed_forward_norm_ = norm("ffn_norm");
    up_ = affine("w1", dim, options.HiddenOf(dim), Cut::Outputs(range));
    down_ = affine("w2", options.HiddenOf(dim), dim, Cut::Inputs(range));
  }

  torch::Tensor forward(const torch::Tensor& input, SequenceContext& context) {
    const torch::Tensor middle = input + Dropped(Attention(input, context));
    return middle + Dropped(Mlp(middle));
  }

 private:
  // The branches, each with its norm.
  torch::Tensor Attention(const torch::Tensor& input, SequenceContext& context) {
    const ModuleScope scope(ModuleKind::kAttention);
    return Attend(attention_norm_->forward(input), context);
  }
  torch::Tensor Mlp(const torch::Tensor& input) {
    const ModuleScope scope(ModuleKind::kMlp);
    const torch::Tensor up =
        up_->forward(ShareAmongRanks(feed_forward_norm_->forward(input), place_));
    return down_->forward(at::gelu(up, "tanh"));
  }

  torch::Tensor Attend(const torch::Tensor& input, SequenceContext& context) {
    const torch::Tensor all = qkv_->forward(ShareAmongRanks(input, place_));  // [B, S, 3 D]
    const std::int64_t batch = all.size(0), length = all.size(1);
    const std::int64_t dim = all.size(2) / 3;    // of the rank's heads
    const auto part = [&](std::int64_t index) {  // [B, H, S, E]
      return all.narrow(-1, index * dim, dim)
          .reshape({batch, length, heads_, dim / heads_})
          .transpose(1, 2);
    };
    const torch::Tensor query = part(0);
    const KeysValues known = context.Extend({part(1), part(2)});
    const torch::Tensor mixed = CausalAttention(query, known, context);
    return output_->forward(mixed.transpose(1, 2).reshape({batch, length, dim}));
  }

  torch::Tensor Dropped(const torch::Tensor& branch) {
    return at::dropout(branch, dropout_, is_training());
  }

  std::int64_t heads_;  // of the rank
  TensorPlace place_;
  double dropout_;
  std::shared_ptr<LayerNorm> attention_norm_, feed_forward_norm_;
  std::shared_ptr<Affine> qkv_, output_, up_, down_;
};

class Gpt2Stage : public StageModule {
 public:
  Gpt2Stage(const ModelConfig& config, const Gpt2Options& options, const LayerRange& range)
      : dropout_(options.dropout),
        is_first_(range.embedding),
        document_end_(config.document_end),
        vocabulary_(Cut::Vocabulary(range, config.vocabulary)),
        place_(ContextPlace::Of(range)) {
    const bool has_tables = !range.sharded_vocabulary;
    // A tied last stage has a copy of the embedding under the same name.
    if (has_tables && (range.embedding || (range.head && options.tied))) {
      embedding_ = register_module(
          "embedding", std::make_shared<Embedding>(config.vocabulary, config.dim, vocabulary_));
    }
    if (range.embedding) {
      positions_ = register_module(
          "positions",
          std::make_shared<Embedding>(config.sequence, config.dim, Cut::ByToken(range)));
    }
    blocks_ = RegisterLayers<Gpt2Block>(*this, range, config.dim, options, range);
    if (!range.head) return;
    norm_ = register_module(
        "norm", std::make_shared<LayerNorm>(config.dim, options.norm_epsilon, Cut::ByToken(range)));
    if (options.tied || !has_tables) return;
    head_ = register_module(
        "head", std::make_shared<Projection>(config.dim, config.vocabulary, vocabulary_));
  }

  torch::Tensor forward(torch::Tensor input) override { return ForwardAll({&input, 1}).front(); }

  std::vector<torch::Tensor> ForwardAll(std::span<const torch::Tensor> inputs) override {
    if (document_end_ < 0) {
      SequenceContext whole;
      return {ForwardSlice(inputs[0], whole)};
    }
    TORCH_CHECK(is_first_ || inputs.size() == 2,
                "a stage that separates documents also needs their starts");
    const torch::Tensor starts =
        is_first_ ? DocumentStartsOf(inputs[0], document_end_, place_) : inputs[1];
    SequenceContext documents = SequenceContext::OfDocuments(starts);
    documents.Divide(place_);
    torch::Tensor output = inputs[0];
    if (is_first_) {
      const std::int64_t rows = positions_->weight().size(0);
      output = Embed(output, positions_->forward(documents.PositionsInDocuments(rows)));
    }
    output = Blocks(output, documents);
    if (norm_) return {output};
    return {output, starts};
  }

  torch::Tensor Loss(std::span<const torch::Tensor> outputs,
                     const torch::Tensor& targets) override {
    return vocabulary_.place.ranks * place_.ranks == 1
               ? StageModule::Loss(outputs, targets)
               : DividedCrossEntropy(outputs.front(), targets, vocabulary_, place_);
  }

  bool HasForwardSlice() const override { return true; }
  torch::Tensor ForwardSlice(torch::Tensor input, SequenceContext& context) override {
    context.Divide(place_);
    if (!is_first_) return Blocks(std::move(input), context);
    return Blocks(Embed(input, context.Rows(positions_->weight(), input.size(1))), context);
  }

 private:
  // Returns the output of the stage for hidden states.
  torch::Tensor Blocks(torch::Tensor hidden, SequenceContext& context) {
    for (const auto& block : blocks_) {
      BeginLayer();
      hidden = block->forward(hidden, context);
    }
    if (!norm_) return hidden;
    hidden = ShareAmongRanks(norm_->forward(hidden), vocabulary_.place);
    if (head_) return head_->forward(hidden);
    return embedding_ ? at::linear(hidden, embedding_->weight()) : hidden;
  }

  // The input are tokens, or embedded ones if the stage has no embedding. `positions` are the
  // embeddings [S, D] or [B, S, D] of their positions.
  torch::Tensor Embed(const torch::Tensor& input, const torch::Tensor& positions) {
    const torch::Tensor embedded = embedding_ ? embedding_->forward(input) : input;
    const torch::Tensor own = OwnTokens(positions, positions.dim() - 2, vocabulary_.place);
    return at::dropout(embedded + own, dropout_, is_training());
  }

  double dropout_;
  bool is_first_;
  std::int64_t document_end_;
  Cut vocabulary_;
  ContextPlace place_;
  std::shared_ptr<Embedding> embedding_, positions_;
  std::vector<std::shared_ptr<Gpt2Block>> blocks_;
  std::shared_ptr<LayerNorm> norm_;
  std::shared_ptr<Projection> head_;  // null if tied
};

std::shared_ptr<StageModule> BuildGpt2(const ModelConfig& config, const LayerRange& range) {
  return std::make_shared<Gpt2Stage>(config, OptionsOf<Gpt2Options>(config), range);
}

}  // namespace

ModelEntry Gpt2Entry(ModelSpec spec) { return {std::move(spec), BuildGpt2, InitializeTransformer}; }

}  // namespace penstock
