// The table of a training configuration's keys. Private to train/config*.
#pragma once

#include <memory>
#include <vector>

#include "base/text/fields.h"
#include "train/config.h"

namespace penstock {

// Every key in the order in which they are printed; keys of one section stand together. Behind the
// common keys of the model come its own, whose values are in `options`.
struct ConfigFields {
  std::unique_ptr<ModelOptions> options;  // null for an unknown model
  std::vector<Field> all;
  std::size_t first_of_model = 0, end_of_model = 0;  // the model's own among them
};

// The fields of `config`, which must outlive them. The model's own have the values of
// config.model.options; StoreOptions writes them back.
ConfigFields FieldsOf(TrainConfig& config);
void StoreOptions(const ConfigFields& fields, TrainConfig& config);

}  // namespace penstock
