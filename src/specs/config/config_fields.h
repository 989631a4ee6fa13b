// The table of a training configuration's keys. Private to train/config*.
#pragma once

#include <memory>
#include <vector>

#include "base/text/fields.h"
#include "config/train_config.h"

namespace penstock {

// All keys in printing order, with the keys of a section together. The keys that the model declares
// follow the common keys of models, and `options` has their values.
struct ConfigFields {
  std::unique_ptr<ModelOptions> options;  // null for an unknown model
  std::vector<Field> all;
  std::size_t first_of_model = 0, end_of_model = 0;  // range of the model's own keys
};

// Returns the fields of `config`, which must outlive them. The model's own fields start with the
// values of config.model.options; StoreOptions writes them back.
ConfigFields FieldsOf(TrainConfig& config);
void StoreOptions(const ConfigFields& fields, TrainConfig& config);

}  // namespace penstock
