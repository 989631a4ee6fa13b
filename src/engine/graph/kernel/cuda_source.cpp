#include "graph/kernel/cuda_source.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/index.h"
#include "graph/kernel/statements.h"

namespace penstock {
namespace {

constexpr unsigned kThreads = 256;  // of a block without sums
constexpr unsigned kPoints = 4;     // vectors per thread without sums
constexpr std::int64_t kMostThreads = 512, kWarp = 32;

constexpr std::string_view kCudaPrelude = R"(// Written by penstock; see src/engine/graph/kernel.
#define __builtin_sqrtf sqrtf
struct alignas(8) Half4 { unsigned short x[4]; };
struct alignas(16) Float4 { float x[4]; };
static __device__ inline float FromBf16(unsigned short x) { return __uint_as_float((unsigned)x << 16); }
static __device__ inline unsigned short ToBf16(float x) {
  unsigned bits = __float_as_uint(x);
  unsigned rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  return (unsigned short)(x == x ? rounded : 0x7fc0u);
}
static __device__ inline float RoundToBf16(float x) { return FromBf16(ToBf16(x)); }
static __device__ inline float Exp(float x) { return expf(x); }
static __device__ inline float Sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }
static __device__ inline float SiluBackward(float gradient, float x) {
  float s = Sigmoid(x);
  return gradient * s * (1.0f + x * (1.0f - s));
}
// The sum of a block's values, on all of its threads, which are whole warps.
static __device__ inline float BlockSum(float x) {
  __shared__ float parts[32];
  for (int offset = 16; offset > 0; offset /= 2) x += __shfl_xor_sync(0xffffffffu, x, offset);
  __syncthreads();
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = x;
  __syncthreads();
  x = threadIdx.x % 32 < blockDim.x / 32 ? parts[threadIdx.x % 32] : 0.0f;
  for (int offset = 16; offset > 0; offset /= 2) x += __shfl_xor_sync(0xffffffffu, x, offset);
  return x;
}
)";

bool HasSums(const Kernel& kernel) {
  return std::ranges::any_of(kernel.steps,
                             [](const KernelStep& step) { return step.kind == StepKind::kSum; });
}

std::int64_t CountOf(const std::vector<std::int64_t>& sizes, std::size_t begin, std::size_t end) {
  std::int64_t product = 1;
  for (std::size_t i = begin; i < end; ++i) product *= sizes[i];
  return product;
}

bool Accesses(const KernelStep& step) { return step.kind == StepKind::kLoad || IsWrite(step); }

class CudaWriter {
 public:
  CudaWriter(const Kernel& kernel, int vector)
      : kernel_(kernel),
        vector_(vector),
        outer_(kernel.loops.size() - Index(kernel.inner)),
        row_(RowSteps(kernel)),
        levels_(LevelsOf(kernel)) {}

  std::string Write(std::string_view name) {
    Head(name);
    if (HasSums(kernel_)) {
      Row();
    } else {
      Points();
    }
    return text_ + "}\n";
  }

 private:
  void Head(std::string_view name) {
    std::vector<std::string> in, out;
    for (const KernelStep& step : kernel_.steps) {
      if (!Accesses(step)) continue;
      std::vector<std::string>& of = step.kind == StepKind::kLoad ? in : out;
      if (Index(step.tensor) >= of.size()) of.resize(Index(step.tensor) + 1, "const void* unused");
      of[Index(step.tensor)] =
          step.kind == StepKind::kLoad
              ? fmt::format("const {}* __restrict__ in{}", CType(step.dtype), step.tensor)
              : fmt::format("{}* __restrict__ out{}", CType(step.dtype), step.tensor);
    }
    in.insert(in.end(), out.begin(), out.end());
    text_ = fmt::format("extern \"C\" __global__ void {}({}) {{\n", name, fmt::join(in, ", "));
  }

  // The indices of loops `begin` to `end` - 1 from a number, whose last loop counts vectors.
  void Indices(std::size_t begin, std::size_t end, std::string_view number) {
    text_ += fmt::format("unsigned rest = {};\n", number);
    for (std::size_t i = end; i-- > begin;) {
      const bool last = i + 1 == kernel_.loops.size();
      const std::int64_t size = last ? kernel_.loops[i] / vector_ : kernel_.loops[i];
      const std::string scale = last && vector_ > 1 ? fmt::format(" * {}u", vector_) : "";
      if (i == begin) {
        text_ += fmt::format("const int i{} = rest{};\n", i, scale);
      } else {
        text_ += fmt::format("const int i{} = rest % {}u{}; rest /= {}u;\n", i, size, scale, size);
      }
    }
  }

  // Each thread computes kPoints vectors, as far apart as a block has threads.
  void Points() {
    const std::int64_t vectors = CountOf(kernel_.loops, 0, kernel_.loops.size()) / vector_;
    text_ += fmt::format(
        "#pragma unroll\nfor (unsigned k = 0; k < {0}u; ++k) {{\n"
        "const unsigned point = blockIdx.x * {1}u + k * {2}u + threadIdx.x;\n",
        kPoints, kPoints * kThreads, kThreads);
    if (vectors % (kPoints * kThreads) != 0) {
      text_ += fmt::format("if (point >= {}u) return;\n", vectors);
    }
    Indices(0, kernel_.loops.size(), "point");
    const std::vector<bool> all(kernel_.steps.size(), true);
    Steps(all, /*of_row=*/false);
    text_ += "}\n";
  }

  void Row() {
    text_ += "{\n";
    Indices(0, outer_, "blockIdx.x");
    const int last = *std::ranges::max_element(levels_);
    for (int level = 0; level <= last; ++level) {
      for (std::size_t i = 0; i < row_.size(); ++i) {
        const bool is_sum = kernel_.steps[i].kind == StepKind::kSum;
        if (row_[i] && levels_[i] == level && !is_sum) StepOfRow(i);
      }
      Inner(level);
    }
    text_ += "}\n";
  }

  void StepOfRow(std::size_t i) {
    if (IsWrite(kernel_.steps[i])) text_ += "if (threadIdx.x == 0) ";
    Scalar(i, "");
  }

  void Inner(int level) {
    const std::vector<bool> needed = StepsOfLevel(kernel_, levels_, level);
    if (std::ranges::find(needed, true) == needed.end()) return;
    std::vector<std::size_t> sums;
    for (std::size_t i = 0; i < needed.size(); ++i) {
      if (needed[i] && kernel_.steps[i].kind == StepKind::kSum) sums.push_back(i);
    }
    for (const std::size_t i : sums) text_ += fmt::format("float t{} = 0;\n", i);
    const std::int64_t vectors = CountOf(kernel_.loops, outer_, kernel_.loops.size()) / vector_;
    text_ += fmt::format("for (unsigned j = threadIdx.x; j < {}u; j += blockDim.x) {{\n", vectors);
    Indices(outer_, kernel_.loops.size(), "j");
    Steps(needed, /*of_row=*/true);
    text_ += "}\n";
    for (const std::size_t i : sums) text_ += fmt::format("t{0} = BlockSum(t{0});\n", i);
  }

  std::string IndexText(const KernelStep& step) const {
    std::string text = fmt::format("{}", step.access.offset);
    for (std::size_t loop = 0; loop < step.access.strides.size(); ++loop) {
      const std::int64_t stride = step.access.strides[loop];
      if (stride != 0) text += fmt::format(" + i{} * {}ll", loop, stride);
    }
    return text;
  }

  bool IsVector(const KernelStep& step) const {
    return vector_ > 1 && Accesses(step) && step.access.strides.back() == 1;
  }

  static const char* VectorType(c10::ScalarType dtype) {
    return dtype == c10::kBFloat16 ? "Half4" : "Float4";
  }

  // Writes the steps for each element of a vector. `of_row`: without steps that belong to the row.
  void Steps(const std::vector<bool>& needed, bool of_row) {
    const auto written = [&](std::size_t i) { return needed[i] && !(of_row && IsRowValue(i)); };
    for (std::size_t i = 0; i < needed.size(); ++i) {
      const KernelStep& step = kernel_.steps[i];
      if (!written(i) || !IsVector(step)) continue;
      if (step.kind == StepKind::kLoad) {
        text_ += fmt::format("const {0} v{1} = *(const {0}*)(in{2} + {3});\n",
                             VectorType(step.dtype), i, step.tensor, IndexText(step));
      } else {
        text_ += fmt::format("{} v{};\n", VectorType(step.dtype), i);
      }
    }
    for (int lane = 0; lane < vector_; ++lane) {
      text_ += "{\n";
      for (std::size_t i = 0; i < needed.size(); ++i) {
        if (written(i)) Element(i, lane);
      }
      text_ += "}\n";
    }
    for (std::size_t i = 0; i < needed.size(); ++i) {
      const KernelStep& step = kernel_.steps[i];
      if (!written(i) || !IsVector(step) || !IsWrite(step)) continue;
      text_ += fmt::format("*({}*)(out{} + {}) = v{};\n", VectorType(step.dtype), step.tensor,
                           IndexText(step), i);
    }
  }

  bool IsRowValue(std::size_t i) const {
    return row_[i] && kernel_.steps[i].kind != StepKind::kSum;
  }

  void Element(std::size_t i, int lane) {
    const KernelStep& step = kernel_.steps[i];
    const bool half = step.dtype == c10::kBFloat16;
    if (!IsVector(step)) {
      // A value without a stride along the vector is stored by its first element.
      const bool again = IsWrite(step) && lane > 0 && step.access.strides.back() == 0;
      if (!again) Scalar(i, Shift(step, lane));
    } else if (step.kind == StepKind::kLoad) {
      text_ +=
          fmt::format("const float t{0} = {1}(v{0}.x[{2}]);\n", i, half ? "FromBf16" : "", lane);
    } else {
      text_ +=
          fmt::format("v{}.x[{}] = {}(t{});\n", i, lane, half ? "ToBf16" : "", step.arguments[0]);
    }
  }

  static std::string Shift(const KernelStep& step, int lane) {
    if (lane == 0 || !Accesses(step) || step.access.strides.back() == 0) return "";
    return fmt::format(" + {}", lane * step.access.strides.back());
  }

  void Scalar(std::size_t i, const std::string& shift) {
    const KernelStep& step = kernel_.steps[i];
    text_ += Statement(step, i, Accesses(step) ? IndexText(step) + shift : "");
  }

  const Kernel& kernel_;
  const int vector_;
  const std::size_t outer_;  // loops around a row
  const std::vector<bool> row_;
  const std::vector<int> levels_;
  std::string text_;
};

}  // namespace

int VectorOf(const Kernel& kernel) {
  const auto fits = [](std::int64_t number) { return number % kCudaVector == 0; };
  if (!fits(kernel.loops.back())) return 1;
  for (const KernelStep& step : kernel.steps) {
    if (!Accesses(step) || step.access.strides.back() != 1) continue;
    const auto& strides = step.access.strides;
    if (!fits(step.access.offset) || !std::all_of(strides.begin(), strides.end() - 1, fits)) {
      return 1;
    }
  }
  return kCudaVector;
}

CudaGrid GridOf(const Kernel& kernel, int vector) {
  const std::size_t outer = kernel.loops.size() - Index(kernel.inner);
  if (HasSums(kernel)) {
    const std::int64_t vectors = CountOf(kernel.loops, outer, kernel.loops.size()) / vector;
    const std::int64_t threads = std::clamp(vectors / kWarp * kWarp, kWarp, kMostThreads);
    return {static_cast<unsigned>(CountOf(kernel.loops, 0, outer)), static_cast<unsigned>(threads)};
  }
  const std::int64_t vectors = CountOf(kernel.loops, 0, kernel.loops.size()) / vector;
  constexpr std::int64_t kPerBlock = kPoints * kThreads;
  return {static_cast<unsigned>((vectors + kPerBlock - 1) / kPerBlock), kThreads};
}

std::string CudaSourceOf(const Kernel& kernel, std::string_view name, int vector) {
  return CudaWriter(kernel, vector).Write(name);
}

std::string_view CudaPrelude() { return kCudaPrelude; }

}  // namespace penstock
