// Weights in Hugging Face's format: safetensors files of a folder, with a config.json.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "checkpoint/layout.h"
#include "checkpoint/readable_file.h"
#include "checkpoint/safetensors_header.h"
#include "model_spec/huggingface_config.h"
#include "model_spec/model_config.h"

namespace penstock {

// Threads: any, at the same time.
class HuggingFaceWeights {
 public:
  // Reads the headers of all files. Errors: kNotFound for a missing file, kInvalidArgument for an
  // invalid one.
  static Result<HuggingFaceWeights> Open(const std::string& folder);

  // Sets `value` to the first elements that a layout has of the model's parameter, and reads only
  // these, or for a box the whole parameter. Converts F32, F16, BF16 and F64 to the dtype of
  // `value`. Errors: kInvalidArgument, naming the tensor, if it is missing or has another shape or
  // dtype.
  Status Read(const ModelConfig& config, const std::string& parameter, const Layout& layout,
              const at::Tensor& value) const;

  // Whether the model's embedding is also its head, but the files have a head of other values.
  Result<bool> HasUntiedHead(const ModelConfig& config) const;
  // Returns the rows of the table of learned positions; nothing if the model has none.
  std::optional<std::int64_t> Positions(const ModelConfig& config) const;
  // Returns the tensors that the model does not read, except buffers that follow from its
  // configuration. Errors: as CheckModel.
  Result<std::vector<std::string>> Unread(const ModelConfig& config) const;

 private:
  struct StoredTensor {
    std::size_t file = 0;
    std::uint64_t data_begin = 0;  // of the file's tensors
    HeaderTensor tensor;
  };
  explicit HuggingFaceWeights(std::string folder) : folder_(std::move(folder)) {}
  Status AddFile(const std::string& name);
  void AddTensor(const std::string& name, StoredTensor tensor);
  // Returns the name in the files of a tensor; empty if there is none.
  std::string NameInFiles(const std::string& name) const;
  // Returns the tensor; null if there is none.
  const StoredTensor* Find(const std::string& name) const;
  // Returns the name of a parameter. A file may have a tied embedding only as the head.
  Result<HuggingFaceName> NameOf(const ModelConfig& config, const std::string& parameter) const;
  // Sets `value` to elements of a tensor from `begin` on. `rows_may_differ`: theirs may have more.
  Status ReadTensor(const std::string& name, std::span<const std::int64_t> shape,
                    bool rows_may_differ, std::int64_t begin, const at::Tensor& value) const;
  Status ReadExperts(const HuggingFaceName& name, std::span<const std::int64_t> shape,
                     std::int64_t begin, const at::Tensor& value) const;
  Status ReadTransposed(const std::string& name, std::span<const std::int64_t> shape,
                        std::int64_t begin, const at::Tensor& value) const;

  std::string folder_;
  std::vector<ReadableFile> files_;
  // By name there; of each expert, where the experts of a layer are one tensor.
  std::map<std::string, StoredTensor> tensors_;
};

}  // namespace penstock
