// Template: the tokens that a tokenizer puts before and after every text.
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "base/result.h"
#include "tokens/tokenizer.h"

namespace penstock {

struct Template {
  std::vector<TokenId> before;
  std::vector<TokenId> after;

  // Reads the member "post_processor" of the file. Errors: kInvalidArgument for what is not
  // supported.
  static Result<Template> Read(const nlohmann::json& file);
};

}  // namespace penstock
