#include "scenario/scenario.h"

#include <algorithm>

namespace penstock {

bool Scenario::in_bytes() const {
  return prices_model() || profiled || file_in_bytes || (file_costs && file_costs->in_bytes) ||
         (stage_costs && stage_costs->in_bytes) || (layer_costs && layer_costs->in_bytes);
}

bool Scenario::shards_vocabulary() const {
  return vocabulary_is_sharded || std::ranges::find(pass, "vocabulary") != pass.end();
}

}  // namespace penstock
