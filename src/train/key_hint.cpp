#include "train/key_hint.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <iterator>

#include "base/nearest.h"

namespace penstock {
namespace {

struct KnownName {
  std::string_view name;
  std::string_view key;
};

// Names of Hugging Face's TrainingArguments and model configurations, of Megatron-LM's arguments
// and of torchtitan's configuration, where they differ from ours.
constexpr std::array kKnownNames = {
    KnownName{"learning_rate", "optimizer.lr"},
    KnownName{"max_lr", "optimizer.lr"},
    KnownName{"min_lr", "optimizer.lr_end"},
    KnownName{"min_lr_factor", "optimizer.lr_end"},
    KnownName{"warmup_steps", "optimizer.warmup"},
    KnownName{"lr_warmup_steps", "optimizer.warmup"},
    KnownName{"lr_warmup_iters", "optimizer.warmup"},
    KnownName{"adam_beta1", "optimizer.beta1"},
    KnownName{"adam_beta2", "optimizer.beta2"},
    KnownName{"eps", "optimizer.epsilon"},
    KnownName{"adam_eps", "optimizer.epsilon"},
    KnownName{"adam_epsilon", "optimizer.epsilon"},
    KnownName{"clip_grad", "optimizer.clip"},
    KnownName{"grad_clip", "optimizer.clip"},
    KnownName{"max_norm", "optimizer.clip"},
    KnownName{"max_grad_norm", "optimizer.clip"},
    KnownName{"batch_size", "batch"},
    KnownName{"micro_batch_size", "batch"},
    KnownName{"microbatch_size", "batch"},
    KnownName{"local_batch_size", "batch"},
    KnownName{"per_device_train_batch_size", "batch"},
    KnownName{"global_batch_size", "pipeline.microbatches"},
    KnownName{"num_microbatches", "pipeline.microbatches"},
    KnownName{"gradient_accumulation_steps", "pipeline.microbatches"},
    KnownName{"max_steps", "steps"},
    KnownName{"num_steps", "steps"},
    KnownName{"training_steps", "steps"},
    KnownName{"train_iters", "steps"},
    KnownName{"max_iters", "steps"},
    KnownName{"seq_len", "model.sequence"},
    KnownName{"seq_length", "model.sequence"},
    KnownName{"max_seq_len", "model.sequence"},
    KnownName{"sequence_length", "model.sequence"},
    KnownName{"context_length", "model.sequence"},
    KnownName{"block_size", "model.sequence"},
    KnownName{"max_position_embeddings", "model.sequence"},
    KnownName{"n_layers", "model.layers"},
    KnownName{"n_layer", "model.layers"},
    KnownName{"num_layers", "model.layers"},
    KnownName{"num_hidden_layers", "model.layers"},
    KnownName{"d_model", "model.dim"},
    KnownName{"n_embd", "model.dim"},
    KnownName{"hidden_size", "model.dim"},
    KnownName{"n_heads", "model.heads"},
    KnownName{"n_head", "model.heads"},
    KnownName{"num_heads", "model.heads"},
    KnownName{"num_attention_heads", "model.heads"},
    KnownName{"n_kv_heads", "model.kv_heads"},
    KnownName{"num_key_value_heads", "model.kv_heads"},
    KnownName{"num_query_groups", "model.kv_heads"},
    KnownName{"hidden_dim", "model.hidden"},
    KnownName{"intermediate_size", "model.hidden"},
    KnownName{"ffn_hidden_size", "model.hidden"},
    KnownName{"vocab_size", "model.vocabulary"},
    KnownName{"rotary_base", "model.rope_theta"},
    KnownName{"norm_eps", "model.norm_epsilon"},
    KnownName{"rms_norm_eps", "model.norm_epsilon"},
    KnownName{"norm_epsilon", "model.norm_epsilon"},
    KnownName{"pp", "pipeline.ranks"},
    KnownName{"world_size", "pipeline.ranks"},
    KnownName{"pipeline_parallel_degree", "pipeline.ranks"},
    KnownName{"pipeline_model_parallel_size", "pipeline.ranks"},
    KnownName{"num_virtual_stages_per_pipeline_rank", "pipeline.chunks"},
    KnownName{"pipeline_parallel_schedule", "pipeline.schedule"},
    KnownName{"pipeline_parallel_schedule_csv", "pipeline.csv"},
    KnownName{"num_splits", "pipeline.slices"},
    KnownName{"dtype", "precision"},
    KnownName{"torch_dtype", "precision"},
    KnownName{"dataset", "data.path"},
    KnownName{"dataset_path", "data.path"},
    KnownName{"train_file", "data.path"},
    KnownName{"output_dir", "folder"},
    KnownName{"run_name", "name"},
    KnownName{"save_steps", "checkpoint.every"},
    KnownName{"save_interval", "checkpoint.every"},
    KnownName{"save_total_limit", "checkpoint.keep"},
    KnownName{"keep_latest_k", "checkpoint.keep"},
    KnownName{"load", "resume"},
    KnownName{"resume_from_checkpoint", "resume"},
};

std::string_view LastWord(std::string_view key) { return key.substr(key.rfind('.') + 1); }

// With its dot; empty at the top level.
std::string_view SectionOf(std::string_view key) { return key.substr(0, key.rfind('.') + 1); }

std::string_view NameElsewhere(std::string_view word) {
  std::string name(word);
  for (char& c : name) {
    c = c == '-' ? '_' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  const auto known = std::find_if(kKnownNames.begin(), kKnownNames.end(),
                                  [&](const KnownName& entry) { return entry.name == name; });
  return known == kKnownNames.end() ? std::string_view() : known->key;
}

// The key of `section` whose last word is the most similar.
std::string_view NearestIn(std::string_view section, std::string_view word,
                           const std::vector<std::string_view>& keys) {
  std::vector<std::string_view> words;
  for (const std::string_view key : keys) {
    if (SectionOf(key) == section) words.push_back(LastWord(key));
  }
  const std::string_view nearest = Nearest(word, words);
  const auto found = std::find_if(keys.begin(), keys.end(), [&](std::string_view key) {
    return SectionOf(key) == section && LastWord(key) == nearest;
  });
  return found == keys.end() ? std::string_view() : *found;
}

std::string_view MeantKey(std::string_view unknown, const std::vector<std::string_view>& keys) {
  const std::string_view word = LastWord(unknown);
  std::vector<std::string_view> same_word;
  std::copy_if(keys.begin(), keys.end(), std::back_inserter(same_word),
               [&](std::string_view key) { return LastWord(key) == word; });
  if (!same_word.empty()) {
    const std::string_view nearest = Nearest(unknown, same_word);
    return nearest.empty() ? same_word.front() : nearest;
  }
  for (const std::string_view meant :
       {NameElsewhere(word), NearestIn(SectionOf(unknown), word, keys), Nearest(unknown, keys)}) {
    if (std::find(keys.begin(), keys.end(), meant) != keys.end()) return meant;
  }
  std::vector<std::string_view> words;
  for (const std::string_view key : keys) words.push_back(LastWord(key));
  const std::string_view nearest = Nearest(word, words);
  return nearest.empty() ? nearest
                         : keys[std::find(words.begin(), words.end(), nearest) - words.begin()];
}

}  // namespace

std::string KeyHint(std::string_view unknown, const std::vector<std::string_view>& keys) {
  const std::string_view meant = MeantKey(unknown, keys);
  if (!meant.empty()) return fmt::format("did you mean '{}'?", meant);
  std::vector<std::string_view> section;
  for (const std::string_view key : keys) {
    if (SectionOf(key) == SectionOf(unknown)) section.push_back(key);
  }
  return fmt::format("the keys are {}", fmt::join(section.empty() ? keys : section, ", "));
}

}  // namespace penstock
