// Weights in Hugging Face's format: safetensors files of a folder, with a config.json.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "checkpoint/readable_file.h"
#include "checkpoint/safetensors_header.h"
#include "model/huggingface.h"
#include "model/model_config.h"

namespace penstock {

// Threads: any, at the same time.
class HuggingFaceWeights {
 public:
  // Reads the headers of all files. Errors: kNotFound for a missing file, kInvalidArgument for an
  // invalid one.
  static Result<HuggingFaceWeights> Open(const std::string& folder);

  // Sets `value` to elements of the model's parameter, from `begin` on in the order of memory, and
  // reads only these. `shape` is that of the whole parameter. Converts F32, F16, BF16 and F64 to
  // the dtype of `value`. Errors: kInvalidArgument, naming the tensor, if it is missing or has
  // another shape or dtype.
  Status Read(const ModelConfig& config, const std::string& parameter,
              std::span<const std::int64_t> shape, std::int64_t begin,
              const at::Tensor& value) const;

 private:
  struct Place {
    std::size_t file = 0;
    std::uint64_t data_begin = 0;  // of the file's tensors
    HeaderTensor tensor;
  };
  explicit HuggingFaceWeights(std::string folder) : folder_(std::move(folder)) {}
  Status AddFile(const std::string& name);
  // Returns the tensor's place; null if there is none.
  const Place* Find(const std::string& name) const;
  // Sets `value` to elements of a tensor from `begin` on. `rows_may_differ`: theirs may have more.
  Status ReadTensor(const std::string& name, std::span<const std::int64_t> shape,
                    bool rows_may_differ, std::int64_t begin, const at::Tensor& value) const;
  Status ReadExperts(const HuggingFaceName& name, std::span<const std::int64_t> shape,
                     std::int64_t begin, const at::Tensor& value) const;
  Status ReadTransposed(const std::string& name, std::span<const std::int64_t> shape,
                        std::int64_t begin, const at::Tensor& value) const;

  std::string folder_;
  std::vector<ReadableFile> files_;
  std::map<std::string, Place> places_;  // by name there
};

}  // namespace penstock
