#include "plan/export/known_models.h"

#include "cost_model/published_models.h"

namespace penstock {
namespace {

// torchtitan 0.3: torchtitan/models/*/__init__.py. Megatron-Bridge: the exports of
// src/megatron/bridge/recipes/*/*.py. The recipe of DeepSeek-V3 keeps its optimizer's states in
// bf16, so it is left out.
constexpr KnownModel kModels[] = {
    {"llama-2-7b", "", "", "llama2_7b_pretrain_config", true},
    {"llama-3.2-1b", "", "", "llama32_1b_pretrain_config"},
    {"llama-3.2-3b", "", "", "llama32_3b_pretrain_config"},
    {"llama-3-8b", "llama3", "8B", "llama3_8b_pretrain_config"},
    {"llama-3-70b", "llama3", "70B", "llama3_70b_pretrain_config", true, true},
    {"llama-3-405b", "llama3", "405B", "llama31_405b_pretrain_config", true, true},
    {"qwen2.5-0.5b", "", "", "qwen25_500m_pretrain_config"},
    {"qwen2.5-1.5b", "", "", "qwen25_1p5b_pretrain_config"},
    {"qwen2.5-7b", "", "", "qwen25_7b_pretrain_config"},
    {"qwen2.5-14b", "", "", "qwen25_14b_pretrain_config"},
    {"qwen2.5-32b", "", "", "qwen25_32b_pretrain_config"},
    {"qwen2.5-72b", "", "", "qwen25_72b_pretrain_config"},
    {"qwen3-0.6b", "qwen3", "0.6B", "qwen3_600m_pretrain_config"},
    {"qwen3-1.7b", "qwen3", "1.7B", "qwen3_1p7b_pretrain_config"},
    {"qwen3-4b", "qwen3", "4B", "qwen3_4b_pretrain_config"},
    {"qwen3-8b", "qwen3", "8B", "qwen3_8b_pretrain_config", false, true},
    {"qwen3-14b", "qwen3", "14B", "qwen3_14b_pretrain_config"},
    {"qwen3-32b", "qwen3", "32B", "qwen3_32b_pretrain_config"},
    {"qwen3-30b-a3b", "qwen3", "30B-A3B", "qwen3_30b_a3b_pretrain_config", true, true},
    {"qwen3-235b-a22b", "qwen3", "235B-A22B", "qwen3_235b_a22b_pretrain_config"},
    {"deepseek-v2-lite", "deepseek_v3", "16B", "deepseek_v2_lite_pretrain_config", true},
    {"deepseek-v2", "deepseek_v3", "236B", "deepseek_v2_pretrain_config", true},
    {"deepseek-v3", "deepseek_v3", "671B"},
};

}  // namespace

const KnownModel* FindKnownModel(const ModelShape& shape) {
  ModelShape wanted = shape;
  wanted.predictors = 0;
  for (const KnownModel& model : kModels) {
    auto published = FindPublishedModel(model.published);
    if (!published) continue;
    published->predictors = 0;
    published->name = wanted.name;
    if (*published == wanted) return &model;
  }
  return nullptr;
}

}  // namespace penstock
