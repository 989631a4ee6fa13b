// Llama 1 to 3 (Touvron et al. 2023, section 2.2; Grattafiori et al. 2024, section 3.2).
#include "model_spec/models/decoder_options.h"

namespace penstock {

ModelSpec Llama() {
  ModelSpec model = DecoderSpec<DecoderOptions>();
  model.name = "llama";
  model.summary = "rotary positions, RMSNorm, SwiGLU, grouped key and value heads";
  model.huggingface.model_type = "llama";
  model.huggingface.architecture = "LlamaForCausalLM";
  model.huggingface.read = ReadDecoderConfig;
  return model;
}

}  // namespace penstock
