// Weights in Hugging Face's format: ranges, dtypes, several files, and files that do not fit.
#include "train/huggingface/weights.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "base/files.h"
#include "model_spec/huggingface_config.h"
#include "tests/engine/train/temp_folder.h"
#include "train/checkpoint/safetensors.h"

namespace penstock {
namespace {

constexpr const char* kOurs = "layers.1.wq.weight";
constexpr const char* kTheirs = "model.layers.1.self_attn.q_proj.weight";
const std::vector<std::int64_t> kShape = {4, 6};

at::Tensor Values(c10::ScalarType dtype = at::kFloat) {
  return at::arange(24).view({4, 6}).to(dtype);
}

void Write(const std::string& path, const std::string& name, const at::Tensor& value) {
  Safetensors content;
  content.tensors.emplace(name, value);
  ASSERT_TRUE(WriteSafetensors(path, content));
}

// Returns the first error of opening the folder and reading all of the tensor.
std::string ErrorOf(const TempFolder& folder) {
  const auto weights = HuggingFaceWeights::Open(folder.path());
  if (!weights) return weights.error().line();
  const Status read = weights->Read(ModelConfig(), kOurs, Layout(kShape), at::zeros(kShape));
  return read ? "no error" : read.error().line();
}

TEST(HuggingFaceWeights, ReadsRangesOfAnyDtype) {
  for (const auto dtype : {at::kFloat, at::kBFloat16, at::kHalf, at::kDouble}) {
    const TempFolder folder;
    Write(folder / kHuggingFaceWeights, kTheirs, Values(dtype));
    const HuggingFaceWeights weights = HuggingFaceWeights::Open(folder.path()).value();
    const at::Tensor whole = at::zeros(kShape), part = at::zeros({5}, at::kBFloat16);
    const at::Tensor of_columns = at::zeros({5});
    const Layout columns(kShape, {.dimension = 1, .first = 2, .count = 3});
    ASSERT_TRUE(weights.Read(ModelConfig(), kOurs, Layout(kShape), whole));
    ASSERT_TRUE(weights.Read(ModelConfig(), kOurs, Layout(kShape).From(7), part));
    ASSERT_TRUE(weights.Read(ModelConfig(), kOurs, columns.From(1), of_columns));
    EXPECT_TRUE(at::equal(whole, Values()));
    EXPECT_TRUE(at::equal(part, (at::arange(5) + 7).to(at::kBFloat16)));
    EXPECT_TRUE(at::equal(of_columns, at::tensor({3, 4, 8, 9, 10}).to(at::kFloat)));
  }
}

TEST(HuggingFaceWeights, ReadsTheFilesOfAnIndex) {
  const TempFolder folder;
  Write(folder / "a.safetensors", kTheirs, Values());
  Write(folder / "b.safetensors", "other", Values());
  ASSERT_TRUE(WriteFileAtomically(folder / kHuggingFaceIndex,
                                  std::string(R"({"weight_map": {"other": "b.safetensors", ")") +
                                      kTheirs + R"(": "a.safetensors"}})"));
  EXPECT_TRUE(HasHuggingFaceWeights(folder.path()));
  EXPECT_EQ(ErrorOf(folder), "no error");
}

TEST(HuggingFaceWeights, NamesWhatDoesNotFit) {
  const auto expect = [](const TempFolder& folder, const std::string& part) {
    const std::string message = ErrorOf(folder);
    EXPECT_NE(message.find(part), std::string::npos) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  };
  const TempFolder folder;
  EXPECT_FALSE(HasHuggingFaceWeights(folder.path()));
  expect(folder, "has no weights");
  Write(folder / kHuggingFaceWeights, "other", Values());
  expect(folder, "lacks the tensor model.layers.1.self_attn.q_proj.weight");
  Write(folder / kHuggingFaceWeights, kTheirs, Values().t().contiguous());
  expect(folder, "is F32 [6, 4], not a real [4, 6]");
  Write(folder / kHuggingFaceWeights, kTheirs, Values(at::kLong));
  expect(folder, "is I64 [4, 6], not a real [4, 6]");
  Write(folder / kHuggingFaceWeights, kTheirs, Values());
  const std::string file = ReadFile(folder / kHuggingFaceWeights).value();
  for (std::size_t length = 0; length < file.size(); length += 7) {
    ASSERT_TRUE(WriteFileAtomically(folder / kHuggingFaceWeights, file.substr(0, length)));
    expect(folder, kHuggingFaceWeights);
  }
}

TEST(HuggingFaceWeights, StaysInTheFolder) {
  for (const char* const index :
       {R"({"weight_map": {"a": "../b.safetensors"}})", R"({"weight_map": {"a": "/etc/passwd"}})",
        R"({"weight_map": {"a": 3}})", R"({"weight_map": {"a": ""}})", R"({"weight_map": []})",
        "{"}) {
    const TempFolder folder;
    ASSERT_TRUE(WriteFileAtomically(folder / kHuggingFaceIndex, index));
    const std::string message = ErrorOf(folder);
    EXPECT_NE(message.find("index.json: "), std::string::npos) << message;
  }
}

}  // namespace
}  // namespace penstock
