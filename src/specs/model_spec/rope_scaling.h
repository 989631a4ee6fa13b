// Scaling of the frequencies of rotary position embeddings.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"

namespace penstock {

// How frequencies change for sequences that are longer than the pretraining's.
struct RopeScaling {
  std::string type = "none";  // none, linear, llama3 or yarn
  // linear: all frequencies are divided by `factor` (Chen et al., Position Interpolation, 2023).
  // llama3: frequencies with fewer than `low_frequency_factor` periods in `original_sequence`
  // tokens are divided, frequencies with more than `high_frequency_factor` periods are not, and
  // frequencies between are interpolated (the reference code of Llama 3.1).
  // yarn: frequencies that turn fewer than `slow_turns` times in `original_sequence` tokens are
  // divided, frequencies that turn more than `fast_turns` times are not, and frequencies between
  // are interpolated by their index. All cosines and sines are scaled by MagnitudeScale (Peng et
  // al., YaRN, 2023, section 3).
  double factor = 1;
  double low_frequency_factor = 1;
  double high_frequency_factor = 4;
  std::int64_t original_sequence = 8192;  // tokens
  double fast_turns = 32;
  double slow_turns = 1;
  // Only for yarn in DeepSeek's models: weights of the logarithm of `factor` in the scale of
  // cosines and sines, and in the scale of the scores. With 0, the former scale is 1 and the latter
  // unused.
  double magnitude = 0;
  double score_magnitude = 0;

  double attention_factor = 0;  // with yarn, the scale of cosines and sines; 0: as above

  // Errors: kInvalidArgument, naming the key of the model.
  Status Check() const;
  // Returns this scaling with all that its type does not use at the defaults.
  RopeScaling Used() const;
  // The scale of all cosines and sines; 1 unless the type is yarn.
  double MagnitudeScale() const;
  // The factor of the scores of attention that DeepSeek's models use; 1 unless the type is yarn.
  double ScoreScale() const;
};

}  // namespace penstock
