#include "model_spec/rope_scaling.h"

#include <cmath>

namespace penstock {
namespace {

double LogarithmicScale(double factor, double weight) {
  return factor <= 1 ? 1 : 0.1 * weight * std::log(factor) + 1;
}

}  // namespace

Status RopeScaling::Check() const {
  if (type == "llama3" && low_frequency_factor >= high_frequency_factor) {
    return InvalidParameter("model.rope_low_frequency_factor",
                            "{} is not below `model.rope_high_frequency_factor` {}",
                            low_frequency_factor, high_frequency_factor);
  }
  if (type == "yarn" && slow_turns >= fast_turns) {
    return InvalidParameter("model.rope_slow_turns", "{} is not below `model.rope_fast_turns` {}",
                            slow_turns, fast_turns);
  }
  return {};
}

RopeScaling RopeScaling::Used() const {
  if (type == "yarn") {
    RopeScaling used = *this;
    used.low_frequency_factor = RopeScaling().low_frequency_factor;
    used.high_frequency_factor = RopeScaling().high_frequency_factor;
    return used;
  }
  RopeScaling used{.type = type};
  if (type == "linear" || type == "llama3") used.factor = factor;
  if (type != "llama3") return used;
  used.low_frequency_factor = low_frequency_factor;
  used.high_frequency_factor = high_frequency_factor;
  used.original_sequence = original_sequence;
  return used;
}

double RopeScaling::MagnitudeScale() const {
  if (type != "yarn") return 1;
  if (attention_factor > 0) return attention_factor;
  if (magnitude == 0 || score_magnitude == 0) return LogarithmicScale(factor, 1);
  return LogarithmicScale(factor, magnitude) / LogarithmicScale(factor, score_magnitude);
}

double RopeScaling::ScoreScale() const {
  if (type != "yarn" || score_magnitude == 0) return 1;
  const double scale = LogarithmicScale(factor, score_magnitude);
  return scale * scale;
}

}  // namespace penstock
