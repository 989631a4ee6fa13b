// Qwen3, dense (Qwen3 Technical Report, 2025, section 2): Llama's blocks with a norm of the queries
// and keys of each head.
#include "model_spec/models/decoder_options.h"

namespace penstock {
namespace {

struct Qwen3Options : DecoderOptions {
  Qwen3Options() {
    rope_theta = 1e6;
    norm_epsilon = 1e-6;
    qk_norm = true;
  }
};

}  // namespace

ModelSpec Qwen3() {
  ModelSpec model = DecoderSpec<Qwen3Options>();
  model.name = "qwen3";
  model.summary = "as llama, with RMSNorm of each head's queries and keys";
  model.huggingface.model_type = "qwen3";
  model.huggingface.architecture = "Qwen3ForCausalLM";
  model.huggingface.read = ReadDecoderConfig;
  return model;
}

}  // namespace penstock
