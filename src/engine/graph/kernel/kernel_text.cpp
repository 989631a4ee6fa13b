#include <fmt/format.h>

#include "graph/ir/print.h"
#include "graph/ir/text_cursor.h"
#include "graph/kernel/kernel.h"

namespace penstock {
namespace {

std::string AccessText(const KernelAccess& access) {
  return fmt::format("{} [{}]", access.offset, fmt::join(access.strides, ","));
}

std::string StepText(const KernelStep& step, std::size_t number) {
  const TensorType scalar{step.dtype, {}, {}};
  const std::string type = PrintType(scalar);
  const std::string dtype = type.substr(0, type.find('['));
  switch (step.kind) {
    case StepKind::kLoad:
      return fmt::format("%{} load {} in{} {}", number, dtype, step.tensor,
                         AccessText(step.access));
    case StepKind::kNumber:
      return fmt::format("%{} number {}", number, step.number);
    case StepKind::kSum:
      return fmt::format("%{} sum %{}", number, step.arguments[0]);
    case StepKind::kStore:
    case StepKind::kAccumulate:
      return fmt::format("{} %{} {} out{} {}", step.kind == StepKind::kStore ? "store" : "gather",
                         step.arguments[0], dtype, step.tensor, AccessText(step.access));
    case StepKind::kPointwise:
      return fmt::format("%{} {} %{}", number, step.op, fmt::join(step.arguments, " %"));
  }
  return "";
}

class KernelParser {
 public:
  explicit KernelParser(std::string_view text) : cursor_(text) {}

  Kernel Parse() {
    Loops();
    while (!cursor_.AtEnd()) {
      cursor_.Expect(";");
      if (cursor_.Accept("out ")) {
        kernel_.outputs.push_back(ParseType(cursor_));
      } else if (cursor_.Accept("store ")) {
        Written(StepKind::kStore);
      } else if (cursor_.Accept("gather ")) {
        Written(StepKind::kAccumulate);
      } else {
        Made();
      }
    }
    return std::move(kernel_);
  }

 private:
  void Loops() {
    cursor_.Expect("loops");
    kernel_.inner = 0;
    bool inner = false;
    while (!cursor_.AtEnd() && !cursor_.rest().starts_with(';')) {
      if (!inner && cursor_.Accept("|")) inner = true;
      const std::int64_t size = cursor_.Integer();
      if (size < 1) cursor_.FailBefore("a size of 1 or more");
      kernel_.loops.push_back(size);
      kernel_.inner += inner ? 1 : 0;
    }
    if (kernel_.inner == 0) cursor_.Fail("'|' and an inner loop");
  }

  void Written(StepKind kind) {
    KernelStep step{.kind = kind};
    Value(step);
    Tensor(step, "out");
    kernel_.steps.push_back(std::move(step));
  }

  void Made() {
    if (cursor_.Value() != static_cast<ValueId>(kernel_.steps.size())) {
      cursor_.FailBefore("the number of the next step");
    }
    KernelStep step;
    const std::string_view name = cursor_.Word();
    if (name == "load") {
      step.kind = StepKind::kLoad;
      Tensor(step, "in");
    } else if (name == "number") {
      step.kind = StepKind::kNumber;
      step.number = std::strtod(std::string(cursor_.Constant()).c_str(), nullptr);
    } else if (name == "sum") {
      step.kind = StepKind::kSum;
      Value(step);
    } else {
      step.op = name;
      const std::string_view expression = ExpressionOf(name);
      if (expression.empty()) cursor_.FailBefore(fmt::format("an op for '{}'", name));
      for (char number = '0'; expression.find(std::string{'%', number}) != std::string_view::npos;
           ++number) {
        Value(step);
      }
    }
    kernel_.steps.push_back(std::move(step));
  }

  void Value(KernelStep& step) {
    const ValueId value = cursor_.Value();
    const auto known = static_cast<ValueId>(kernel_.steps.size());
    if (value < 0 || value >= known || kernel_.steps[value].kind == StepKind::kStore ||
        kernel_.steps[value].kind == StepKind::kAccumulate) {
      cursor_.FailBefore("an earlier value");
    }
    step.arguments.push_back(value);
  }

  void Tensor(KernelStep& step, std::string_view prefix) {
    step.dtype = DtypeOf(cursor_.Word());
    const bool known = step.dtype == c10::kFloat || step.dtype == c10::kBFloat16;
    if (!known) cursor_.FailBefore("f32 or bf16");
    cursor_.Expect(prefix);
    step.tensor = static_cast<int>(cursor_.Integer());
    const std::ptrdiff_t outputs = std::ssize(kernel_.outputs);
    const bool there = step.kind == StepKind::kLoad ? step.tensor >= 0
                       : step.kind == StepKind::kAccumulate
                           ? step.tensor == outputs
                           : step.tensor >= 0 && step.tensor < outputs;
    if (!there) cursor_.FailBefore("an existing tensor");
    Access(step);
  }

  void Access(KernelStep& step) {
    step.access.offset = cursor_.Integer();
    step.access.strides = cursor_.Integers();
    if (step.access.strides.size() != kernel_.loops.size()) {
      cursor_.FailBefore("a stride for every loop");
    }
  }

  TextCursor cursor_;
  Kernel kernel_;
};

}  // namespace

std::string TextOf(const Kernel& kernel) {
  const auto outer = std::ssize(kernel.loops) - kernel.inner;
  const auto begin = kernel.loops.begin();
  std::string text = "loops";
  for (auto i = begin; i < begin + outer; ++i) text += fmt::format(" {}", *i);
  text += fmt::format(" | {}", fmt::join(begin + outer, kernel.loops.end(), " "));
  for (const TensorType& output : kernel.outputs) text += "; out " + PrintType(output);
  for (std::size_t i = 0; i < kernel.steps.size(); ++i) {
    text += "; " + StepText(kernel.steps[i], i);
  }
  return text;
}

Result<Kernel> KernelOf(std::string_view text) {
  try {
    return KernelParser(text).Parse();
  } catch (const TextError& error) {
    return InvalidArgument("kernel text: {}", error.what());
  }
}

}  // namespace penstock
