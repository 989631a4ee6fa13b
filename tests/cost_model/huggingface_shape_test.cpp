// config.json files give the shapes of published models; faults name the key.
#include <gtest/gtest.h>

#include "cost_model/parameters.h"
#include "cost_model/published_models.h"
#include "model_spec/huggingface_config.h"
#include "tests/results.h"

namespace penstock {
namespace {

void ExpectShapeOf(std::string_view published, std::string_view text) {
  const auto shape = ParseHuggingFaceShape(text);
  ASSERT_TRUE(shape) << shape.error().line();
  const ModelShape expected = FindPublishedModel(published).value();
  EXPECT_EQ(ModelParameters(*shape), ModelParameters(expected)) << published;
  EXPECT_EQ(shape->experts.has_value(), expected.experts.has_value());
  if (!shape->experts || !expected.experts) return;
  EXPECT_EQ(shape->experts->top_k, expected.experts->top_k);
  EXPECT_EQ(shape->experts->normalizes, expected.experts->normalizes);
  EXPECT_EQ(shape->experts->scales, expected.experts->scales);
  EXPECT_EQ(shape->experts->balance, expected.experts->balance);
}

TEST(HuggingFaceShape, ReadsThePublishedFiles) {
  ExpectShapeOf("llama-3-8b", R"({"model_type": "llama", "vocab_size": 128256,
      "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
      "num_key_value_heads": 8, "intermediate_size": 14336, "attention_bias": false,
      "tie_word_embeddings": false, "rope_theta": 500000.0})");
  ExpectShapeOf("qwen3-30b-a3b", R"({"model_type": "qwen3_moe", "vocab_size": 151936,
      "hidden_size": 2048, "num_hidden_layers": 48, "num_attention_heads": 32,
      "num_key_value_heads": 4, "head_dim": 128, "intermediate_size": 6144, "num_experts": 128,
      "num_experts_per_tok": 8, "moe_intermediate_size": 768, "norm_topk_prob": true,
      "decoder_sparse_step": 1, "mlp_only_layers": []})");
  ExpectShapeOf("deepseek-v3", R"({"model_type": "deepseek_v3", "vocab_size": 129280,
      "hidden_size": 7168, "num_hidden_layers": 61, "num_attention_heads": 128,
      "num_key_value_heads": 128, "intermediate_size": 18432, "q_lora_rank": 1536,
      "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
      "n_routed_experts": 256, "num_experts_per_tok": 8, "moe_intermediate_size": 2048,
      "n_shared_experts": 1, "first_k_dense_replace": 3, "norm_topk_prob": true,
      "routed_scaling_factor": 2.5, "moe_layer_freq": 1, "num_nextn_predict_layers": 1})");
  ExpectShapeOf("mixtral-8x7b", R"({"model_type": "mixtral", "vocab_size": 32000,
      "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
      "num_key_value_heads": 8, "intermediate_size": 14336, "num_local_experts": 8,
      "num_experts_per_tok": 2})");
  ExpectShapeOf("gpt2", R"({"model_type": "gpt2", "vocab_size": 50257, "n_embd": 768,
      "n_layer": 12, "n_head": 12, "n_positions": 1024})");
}

TEST(HuggingFaceShape, ReadsModelsThatAreOnlyPriced) {
  ExpectShapeOf("gpt-oss-20b", R"({"model_type": "gpt_oss", "vocab_size": 201088,
      "hidden_size": 2880, "num_hidden_layers": 24, "num_attention_heads": 64,
      "num_key_value_heads": 8, "head_dim": 64, "intermediate_size": 2880, "sliding_window": 128,
      "num_local_experts": 32, "num_experts_per_tok": 4, "tie_word_embeddings": false,
      "layer_types": ["sliding_attention", "full_attention", "sliding_attention",
                      "full_attention"]})");
  ExpectShapeOf("qwen2.5-7b", R"({"model_type": "qwen2", "vocab_size": 152064, "hidden_size": 3584,
      "num_hidden_layers": 28, "num_attention_heads": 28, "num_key_value_heads": 4,
      "intermediate_size": 18944, "use_sliding_window": false, "sliding_window": 131072})");
  ExpectShapeOf("qwen3-next-80b-a3b", R"({"model_type": "qwen3_next", "vocab_size": 151936,
      "hidden_size": 2048, "num_hidden_layers": 48, "num_attention_heads": 16,
      "num_key_value_heads": 2, "head_dim": 256, "intermediate_size": 5120,
      "full_attention_interval": 4, "linear_num_key_heads": 16, "linear_num_value_heads": 32,
      "linear_key_head_dim": 128, "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4,
      "num_experts": 512, "num_experts_per_tok": 10, "moe_intermediate_size": 512,
      "shared_expert_intermediate_size": 512, "norm_topk_prob": true})");
  ExpectShapeOf("gemma-3-4b", R"({"model_type": "gemma3", "text_config": {"hidden_size": 2560,
      "intermediate_size": 10240, "model_type": "gemma3_text", "num_hidden_layers": 34,
      "sliding_window": 1024}, "vision_config": {"hidden_size": 1152}})");
  ExpectShapeOf("mistral-nemo-12b", R"({"model_type": "mistral", "vocab_size": 131072,
      "hidden_size": 5120, "num_hidden_layers": 40, "num_attention_heads": 32,
      "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 14336,
      "sliding_window": null})");
  ExpectShapeOf("kimi-k2", R"({"model_type": "kimi_k2", "vocab_size": 163840, "hidden_size": 7168,
      "num_hidden_layers": 61, "num_attention_heads": 64, "num_key_value_heads": 64,
      "intermediate_size": 18432, "q_lora_rank": 1536, "kv_lora_rank": 512,
      "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "n_routed_experts": 384,
      "num_experts_per_tok": 8, "moe_intermediate_size": 2048, "n_shared_experts": 1,
      "first_k_dense_replace": 1, "norm_topk_prob": true, "routed_scaling_factor": 2.827,
      "n_group": 1, "topk_group": 1})");
  ExpectShapeOf("nemotron-3-nano", R"({"model_type": "nemotron_h", "vocab_size": 131072,
      "hidden_size": 2688, "num_hidden_layers": 52, "num_attention_heads": 32,
      "num_key_value_heads": 2, "head_dim": 128, "intermediate_size": 1856,
      "hybrid_override_pattern": "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME",
      "mamba_num_heads": 64, "mamba_head_dim": 64, "ssm_state_size": 128, "n_groups": 8,
      "n_routed_experts": 128, "num_experts_per_tok": 6, "moe_intermediate_size": 1856,
      "moe_shared_expert_intermediate_size": 3712, "n_shared_experts": 1})");
}

TEST(HuggingFaceShape, OfModelsThatAreOnlyPricedNamesTheFaultyKey) {
  const auto message = [](const std::string& rest) {
    return LineOf(ParseHuggingFaceShape(
        R"({"vocab_size": 8, "hidden_size": 8, "num_hidden_layers": 4, "num_attention_heads": 4, )"
        R"("intermediate_size": 9, )" +
        rest + "}"));
  };
  EXPECT_EQ(message(R"("model_type": "gpt_oss")"), "num_local_experts: the key is missing");
  EXPECT_EQ(message(R"("model_type": "mistral", "sliding_window": 0)"),
            "sliding_window: a whole number from 1 to 1000000000 is needed");
  EXPECT_EQ(message(R"("model_type": "qwen2", "use_sliding_window": true)"),
            "use_sliding_window: only false is supported");
  EXPECT_EQ(message(R"("model_type": "gemma3_text", "layer_types": ["sliding_attention",
                       "full_attention", "full_attention"])"),
            "layer_types: only sliding_attention with full attention in every nth layer is "
            "supported");
}

TEST(HuggingFaceShape, NamesTheFaultyKey) {
  const auto message = [](std::string_view text) { return LineOf(ParseHuggingFaceShape(text)); };
  const std::string llama = R"("model_type": "llama", "vocab_size": 10, "hidden_size": 8,
      "num_hidden_layers": 2, "intermediate_size": 9)";
  EXPECT_EQ(message("[]"), "it is not a JSON object");
  EXPECT_EQ(message("{}"), "model_type is missing");
  EXPECT_EQ(message(R"({"model_type": "lama"})"),
            "model_type: no model has the type 'lama'; did you mean 'llama'?");
  EXPECT_EQ(message("{" + llama + R"(, "num_attention_heads": -1})"),
            "num_attention_heads: a whole number from 1 to 1000000000 is needed");
  EXPECT_EQ(message("{" + llama + R"(, "num_attention_heads": "4"})"),
            "num_attention_heads: a whole number from 1 to 1000000000 is needed");
  EXPECT_EQ(message("{" + llama + R"(, "num_attention_heads": 4, "num_key_value_heads": 3})"),
            "num_key_value_heads 3 does not divide num_attention_heads 4");
  EXPECT_EQ(message("{" + llama + R"(, "num_attention_heads": 4, "attention_bias": true})"),
            "attention_bias: 'true' is not supported, only false");
}

TEST(HuggingFaceShape, MissingKeysHaveTheDefaultsOfTheClass) {
  ModelShape shape = ParseHuggingFaceShape(R"({"model_type": "mixtral"})").value();
  EXPECT_EQ(ModelParameters(shape), ModelParameters(FindPublishedModel("mixtral-8x7b").value()));
  shape = ParseHuggingFaceShape(R"({"model_type": "deepseek_v3"})").value();
  EXPECT_EQ(ModelParameters(shape), ModelParameters(FindPublishedModel("deepseek-v3").value()));
  EXPECT_TRUE(shape.experts->normalizes && shape.experts->scales);
  shape =
      ParseHuggingFaceShape(R"({"model_type": "qwen3_moe", "mlp_only_layers": [1, 0]})").value();
  EXPECT_EQ(shape.experts->dense_layers, 2);
}

}  // namespace
}  // namespace penstock
