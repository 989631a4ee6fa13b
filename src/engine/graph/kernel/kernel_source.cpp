// Generates the C++ source of kernels: plain loops that compilers vectorize, one expression per
// step.
//
// The inner loop of a row runs once per level of sums. Level 0 computes the sums that depend on no
// other sum, level 1 the sums that depend on level 0, and so on. Each level recomputes the values
// that it needs from memory that is in the L1 cache by then, which is cheaper than storing rows.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/index.h"
#include "graph/kernel/kernel.h"
#include "graph/kernel/statements.h"

namespace penstock {
namespace {

struct PointwiseOp {
  std::string_view name;
  std::string_view expression;  // in terms of %0, %1, ...
};

constexpr std::array kPointwiseOps = {
    PointwiseOp{"add", "%0 + %1"},
    PointwiseOp{"sub", "%0 - %1"},
    PointwiseOp{"mul", "%0 * %1"},
    PointwiseOp{"div", "%0 / %1"},
    PointwiseOp{"neg", "-%0"},
    PointwiseOp{"square", "%0 * %0"},
    PointwiseOp{"cube", "%0 * %0 * %0"},
    PointwiseOp{"sqrt", "__builtin_sqrtf(%0)"},
    PointwiseOp{"rsqrt", "1.0f / __builtin_sqrtf(%0)"},
    PointwiseOp{"exp", "Exp(%0)"},
    PointwiseOp{"sigmoid", "Sigmoid(%0)"},
    PointwiseOp{"silu", "%0 * Sigmoid(%0)"},
    // Gradient %0 of silu(%1).
    PointwiseOp{"silu_backward", "SiluBackward(%0, %1)"},
    PointwiseOp{"round", "RoundToBf16(%0)"},
};

constexpr std::string_view kPrelude = R"(// Written by penstock; see src/engine/graph/kernel.
static inline float FromBits(unsigned bits) { float x; __builtin_memcpy(&x, &bits, 4); return x; }
static inline unsigned ToBits(float x) { unsigned bits; __builtin_memcpy(&bits, &x, 4); return bits; }
static inline float FromBf16(unsigned short x) { return FromBits((unsigned)x << 16); }
static inline unsigned short ToBf16(float x) {
  unsigned bits = ToBits(x);
  unsigned rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  return (unsigned short)(x == x ? rounded : 0x7fc0u);
}
// FromBf16(ToBf16(x)) without 16-bit vectors.
static inline float RoundToBf16(float x) {
  unsigned bits = ToBits(x);
  unsigned rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) & 0xffff0000u;
  return FromBits(x == x ? rounded : 0x7fc00000u);
}
// Within 2 ulp: 2^n times a polynomial of the rest (Cephes, expf).
static inline float Exp(float x) {
  x = x < -104.0f ? -104.0f : x;
  x = x > 89.0f ? 89.0f : x;
  float n = __builtin_floorf(x * 1.44269504088896341f + 0.5f);
  float r = x - n * 0.693359375f;
  r = r - n * -2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  int whole = (int)n;
  int half = whole >> 1;
  return p * FromBits((unsigned)(half + 127) << 23) * FromBits((unsigned)(whole - half + 127) << 23);
}
static inline float Sigmoid(float x) { return 1.0f / (1.0f + Exp(-x)); }
static inline float SiluBackward(float gradient, float x) {
  float s = Sigmoid(x);
  return gradient * s * (1.0f + x * (1.0f - s));
}
)";

// Returns whether the source takes the step's stride along the outermost loop from `outer`. The
// loops of a row, which compilers vectorize, have constant strides.
bool HasOuterStride(const Kernel& kernel, const KernelStep& step) {
  const bool encloses_rows = std::ssize(kernel.loops) > kernel.inner;
  const bool accesses = step.kind == StepKind::kLoad || IsWrite(step);
  return encloses_rows && accesses && step.access.strides.front() != 0;
}

class Writer {
 public:
  Writer(const Kernel& kernel, std::string_view name)
      : kernel_(kernel), row_(RowSteps(kernel)), levels_(LevelsOf(kernel)) {
    text_ = fmt::format(
        "extern \"C\" void {}(const void* const* in, void* const* out, const long* outer, "
        "long begin, long end) {{\n",
        name);
  }

  std::string Write() {
    Pointers();
    for (std::size_t i = 0; i < kernel_.steps.size(); ++i) {
      if (HasOuterStride(kernel_, kernel_.steps[i])) {
        text_ += fmt::format("const long s{0} = outer[{0}];\n", i);
      }
    }
    const std::size_t outer = kernel_.loops.size() - Index(kernel_.inner);
    for (std::size_t i = 0; i < outer; ++i) Loop(i, "");
    text_ += "{\n";
    const int last = *std::ranges::max_element(levels_);
    for (int level = 0; level <= last; ++level) {
      for (std::size_t i = 0; i < row_.size(); ++i) {
        if (row_[i] && levels_[i] == level && kernel_.steps[i].kind != StepKind::kSum) Step(i);
      }
      Inner(level, outer);
    }
    text_ += "}\n}\n";
    return std::move(text_);
  }

 private:
  void Pointers() {
    std::vector<bool> inputs(kernel_.steps.size());
    for (const KernelStep& step : kernel_.steps) {
      const std::size_t tensor = step.tensor;
      if (IsWrite(step)) {
        text_ += fmt::format("{0}* __restrict__ out{1} = ({0}*)out[{1}];\n", CType(step.dtype),
                             step.tensor);
      } else if (step.kind == StepKind::kLoad) {
        if (tensor >= inputs.size()) inputs.resize(tensor + 1);
        if (inputs[tensor]) continue;
        inputs[tensor] = true;
        text_ += fmt::format("const {0}* __restrict__ in{1} = (const {0}*)in[{1}];\n",
                             CType(step.dtype), step.tensor);
      }
    }
  }

  void Loop(std::size_t loop, std::string_view pragma) {
    text_ += pragma;
    text_ += loop == 0 ? "for (long i0 = begin; i0 < end; ++i0)\n"
                       : fmt::format("for (long i{0} = 0; i{0} < {1}; ++i{0})\n", loop,
                                     kernel_.loops[loop]);
  }

  // Writes the inner loops of a level: its sums and stores, and the steps that they depend on.
  void Inner(int level, std::size_t outer) {
    const std::vector<bool> needed = StepsOfLevel(kernel_, levels_, level);
    if (std::ranges::find(needed, true) == needed.end()) return;
    std::string sums;
    for (std::size_t i = row_.size(); i-- > 0;) {
      if (!needed[i] || kernel_.steps[i].kind != StepKind::kSum) continue;
      text_ += fmt::format("float t{} = 0;\n", i);
      sums += fmt::format("{}t{}", sums.empty() ? "" : ", ", i);
    }
    for (std::size_t i = outer; i < kernel_.loops.size(); ++i) {
      const bool last = i + 1 == kernel_.loops.size();
      Loop(i, !last          ? ""
              : sums.empty() ? "#pragma omp simd\n"
                             : fmt::format("#pragma omp simd reduction(+:{})\n", sums));
    }
    text_ += "{\n";
    for (std::size_t i = 0; i < row_.size(); ++i) {
      if (needed[i]) Step(i);
    }
    text_ += "}\n";
  }

  std::string IndexText(std::size_t i) const {
    const KernelStep& step = kernel_.steps[i];
    const KernelAccess& access = step.access;
    std::string text = fmt::format("{}", access.offset);
    if (HasOuterStride(kernel_, step)) text += fmt::format(" + i0 * s{}", i);
    for (std::size_t loop = 0; loop < access.strides.size(); ++loop) {
      if (access.strides[loop] == 0 || (loop == 0 && HasOuterStride(kernel_, step))) continue;
      text += fmt::format(" + i{} * {}", loop, access.strides[loop]);
    }
    return text;
  }

  void Step(std::size_t i) {
    const KernelStep& step = kernel_.steps[i];
    const bool accesses = step.kind == StepKind::kLoad || IsWrite(step);
    text_ += Statement(step, i, accesses ? IndexText(i) : "");
  }

  const Kernel& kernel_;
  std::vector<bool> row_;
  std::vector<int> levels_;  // by step: depth of the sums that it depends on
  std::string text_;
};

}  // namespace

std::string_view ExpressionOf(std::string_view op) {
  for (const PointwiseOp& known : kPointwiseOps) {
    if (known.name == op) return known.expression;
  }
  return "";
}

namespace {

std::string Expression(const KernelStep& step) {
  std::string text;
  const std::string_view pattern = ExpressionOf(step.op);
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] == '%') {
      text += fmt::format("t{}", step.arguments[pattern[++i] - '0']);
    } else {
      text += pattern[i];
    }
  }
  return text;
}

}  // namespace

std::string Statement(const KernelStep& step, std::size_t number, const std::string& index) {
  const bool half = step.dtype == c10::kBFloat16;
  switch (step.kind) {
    case StepKind::kLoad:
      return fmt::format("float t{} = {}(in{}[{}]);\n", number, half ? "FromBf16" : "", step.tensor,
                         index);
    case StepKind::kNumber:
      return fmt::format("float t{} = {:a}f;\n", number, static_cast<float>(step.number));
    case StepKind::kSum:
      return fmt::format("t{} += t{};\n", number, step.arguments[0]);
    case StepKind::kStore:
      return fmt::format("out{}[{}] = {}(t{});\n", step.tensor, index, half ? "ToBf16" : "",
                         step.arguments[0]);
    case StepKind::kAccumulate:
      return fmt::format("out{}[{}] += t{};\n", step.tensor, index, step.arguments[0]);
    case StepKind::kPointwise:
      break;
  }
  return fmt::format("float t{} = {};\n", number, Expression(step));
}

const char* CType(c10::ScalarType dtype) {
  return dtype == c10::kBFloat16 ? "unsigned short" : "float";
}

bool IsWrite(const KernelStep& step) {
  return step.kind == StepKind::kStore || step.kind == StepKind::kAccumulate;
}

std::vector<int> LevelsOf(const Kernel& kernel) {
  std::vector<int> levels(kernel.steps.size());
  for (std::size_t i = 0; i < levels.size(); ++i) {
    const KernelStep& step = kernel.steps[i];
    for (const int argument : step.arguments) levels[i] = std::max(levels[i], levels[argument]);
    if (step.kind == StepKind::kSum) ++levels[i];
  }
  return levels;
}

std::vector<bool> StepsOfLevel(const Kernel& kernel, const std::vector<int>& levels, int level) {
  const std::vector<bool> row = RowSteps(kernel);
  std::vector<bool> needed(row.size());
  for (std::size_t i = row.size(); i-- > 0;) {
    const KernelStep& step = kernel.steps[i];
    const bool ends = step.kind == StepKind::kSum && levels[i] == level + 1;
    const bool writes = IsWrite(step) && !row[i] && levels[i] == level;
    needed[i] = needed[i] || ends || writes;
    if (!needed[i]) continue;
    for (const int argument : step.arguments) {
      const std::size_t at = argument;
      needed[at] = needed[at] || !row[at];
    }
  }
  return needed;
}

std::string_view KernelPrelude() { return kPrelude; }

std::vector<bool> RowSteps(const Kernel& kernel) {
  std::vector<bool> row(kernel.steps.size());
  for (std::size_t i = 0; i < row.size(); ++i) {
    const KernelStep& step = kernel.steps[i];
    if (step.kind == StepKind::kSum) {
      row[i] = true;
      continue;
    }
    const auto& strides = step.access.strides;
    row[i] = std::all_of(strides.end() - (strides.empty() ? 0 : kernel.inner), strides.end(),
                         [](std::int64_t stride) { return stride == 0; });
    for (const int argument : step.arguments) {
      row[i] = row[i] && row[argument];
    }
  }
  return row;
}

bool CanSplit(const Kernel& kernel) {
  const bool one_row = std::ssize(kernel.loops) == kernel.inner;
  return std::none_of(kernel.steps.begin(), kernel.steps.end(), [&](const KernelStep& step) {
    return (step.kind == StepKind::kSum && one_row) ||
           (step.kind == StepKind::kAccumulate && step.access.strides.front() == 0);
  });
}

std::vector<long> OuterStrides(const Kernel& kernel) {
  std::vector<long> strides(kernel.steps.size());
  for (std::size_t i = 0; i < strides.size(); ++i) {
    const KernelStep& step = kernel.steps[i];
    if (HasOuterStride(kernel, step)) strides[i] = step.access.strides.front();
  }
  return strides;
}

std::string SourceOf(const Kernel& kernel, std::string_view name) {
  return Writer(kernel, name).Write();
}

}  // namespace penstock
