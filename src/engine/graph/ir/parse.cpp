#include "graph/ir/parse.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "base/index.h"
#include "graph/ir/print.h"
#include "graph/ir/text_cursor.h"
#include "graph/ir/verify.h"

namespace penstock {
namespace {

using c10::IValue;

constexpr double kMaxElements = 1e15;  // strides of larger tensors could overflow

c10::TypePtr WithoutOptional(const c10::TypePtr& type) {
  if (const auto optional = type->cast<c10::OptionalType>()) return optional->getElementType();
  return type;
}

IValue ParseNumber(std::string_view word, bool whole) {
  const std::string text(word);
  char* end = nullptr;
  IValue value = whole ? IValue(static_cast<std::int64_t>(std::strtoll(text.c_str(), &end, 10)))
                       : IValue(std::strtod(text.c_str(), &end));
  if (*end != '\0') throw TextError(fmt::format("'{}' is not a number", word));
  return value;
}

// Parses a constant of a type in an op's schema.
IValue ParseConstant(TextCursor& cursor, const c10::TypePtr& optional) {
  if (cursor.Accept("None")) return {};
  if (cursor.Accept("undefined")) return at::Tensor();
  const c10::TypePtr type = WithoutOptional(optional);
  if (const auto list = type->cast<c10::ListType>()) {
    c10::impl::GenericList values(list->getElementType());
    cursor.Expect("[");
    if (cursor.Accept("]")) return values;
    do values.push_back(ParseConstant(cursor, list->getElementType()));
    while (cursor.Accept(","));
    cursor.Expect("]");
    return values;
  }
  if (type->kind() == c10::TypeKind::StringType) return cursor.Quoted();
  const std::string_view word = cursor.Constant();
  if (word == "True" || word == "False") return word == "True";
  if (type->kind() == c10::TypeKind::DeviceObjType) return c10::Device(std::string(word));
  const bool decimal = word.find_first_of(".en") != std::string_view::npos;  // "1e5", "inf", "nan"
  return ParseNumber(word, /*whole=*/!decimal && type->kind() != c10::TypeKind::FloatType);
}

class Parser {
 public:
  explicit Parser(const std::map<ValueId, at::Tensor>& constants) : constants_(constants) {}

  // Parses one line, which may be empty.
  void Line(std::string_view line) {
    TextCursor cursor(line);
    if (cursor.AtEnd()) return;
    if (cursor.Accept("graph ")) {
      Head(cursor);
    } else if (cursor.Accept("bound ")) {
      BoundLine(cursor);
    } else if (cursor.Accept("-- backward")) {
      phase_ = Phase::kBackward;
    } else if (cursor.Accept("-- forward")) {
      phase_ = Phase::kForward;
    } else if (line.find(" = view %") != std::string_view::npos) {
      View(cursor);
    } else {
      Call(cursor);
    }
    if (!cursor.AtEnd()) cursor.Fail("the end of the line");
  }

  Graph Take() && { return std::move(graph_); }

 private:
  TensorValue& At(ValueId id) {
    if (id < 0) throw TextError("a value number is negative");
    if (Index(id) >= graph_.values.size()) {
      graph_.values.resize(Index(id) + 1);
    }
    return graph_.values[id];
  }

  // "%5: f32[2,3]", or "none".
  ValueId TypedValue(TextCursor& cursor) {
    const ValueId id = cursor.Value();
    if (id == kNoValue) return id;
    cursor.Expect(":");
    At(id).type = ParseType(cursor);
    return id;
  }

  void Head(TextCursor& cursor) {
    graph_.name = cursor.Word();
    cursor.Expect("(");
    while (!cursor.Accept(")")) {
      graph_.inputs.push_back(TypedValue(cursor));
      cursor.Accept(",");
    }
    cursor.Expect("->");
    cursor.Expect("(");
    while (!cursor.Accept(")")) {
      graph_.outputs.push_back(cursor.Value());
      cursor.Accept(",");
    }
  }

  void BoundLine(TextCursor& cursor) {
    Bound bound;
    bound.value = TypedValue(cursor);
    cursor.SkipPast("= ");
    const std::string_view word = cursor.Word();
    const std::optional<BoundKind> kind = KindFor(word);
    if (!kind) throw TextError(fmt::format("'{}' is not a kind of bound value", word));
    bound.kind = *kind;
    if (HasTensor(bound.kind)) {
      const auto found = constants_.find(bound.value);
      if (found == constants_.end()) {
        throw TextError(
            fmt::format("constant %{} has no tensor; pass one in `constants`", bound.value));
      }
      bound.tensor = found->second;
    } else {
      bound.index = static_cast<int>(cursor.Integer());
    }
    bound.name = cursor.TakeRest();
    graph_.bound.push_back(std::move(bound));
  }

  void View(TextCursor& cursor) {
    const ValueId id = TypedValue(cursor);
    cursor.Expect("= view");
    const ValueId root = cursor.Value();
    const std::int64_t offset = cursor.Accept("+") ? cursor.Integer() : 0;
    At(id).view_of = root;
    At(id).view_offset = offset;
  }

  void Call(TextCursor& cursor) {
    std::vector<ValueId> outputs;
    if (cursor.rest().find(" = ") < cursor.rest().find('(')) {
      do outputs.push_back(TypedValue(cursor));
      while (cursor.Accept(","));
      cursor.SkipPast("= ");
    }
    Node node{Op(cursor), {}, std::move(outputs), phase_};
    const c10::FunctionSchema& schema = node.op.schema();
    if (node.outputs.empty()) node.outputs.assign(schema.returns().size(), kNoValue);
    for (const c10::Argument& argument : schema.arguments()) {
      node.arguments.emplace_back(argument.default_value().value_or(IValue()));
    }
    cursor.Expect("(");
    std::size_t next = 0;
    while (!cursor.Accept(")")) {
      const std::size_t index = ArgumentIndex(cursor, schema, next);
      node.arguments[index] = OneArgument(cursor, schema.arguments()[index].type());
      cursor.Accept(",");
    }
    graph_.nodes.push_back(std::move(node));
  }

  static c10::OperatorHandle Op(TextCursor& cursor) {
    const std::string_view name = cursor.Word();
    const std::size_t dot = name.find('.');
    const std::string base(name.substr(0, dot));
    const std::string overload(dot == std::string_view::npos ? "" : name.substr(dot + 1));
    const auto op = c10::Dispatcher::singleton().findSchema({base, overload});
    if (!op) throw TextError(fmt::format("'{}' is not a registered op", name));
    return *op;
  }

  // Returns the index of the argument that the text continues with, positional or named.
  static std::size_t ArgumentIndex(TextCursor& cursor, const c10::FunctionSchema& schema,
                                   std::size_t& next) {
    const std::string_view rest = cursor.rest();
    if (cursor.Accept("%") || cursor.Accept("[")) {
      cursor = TextCursor(rest);
      if (next == schema.arguments().size()) cursor.Fail("')'");
      return next++;
    }
    const std::string name(cursor.Word());
    cursor.Expect("=");
    const auto index = schema.argumentIndexWithName(name);
    if (!index) throw TextError(fmt::format("the op has no argument '{}'", name));
    return Index(*index);
  }

  static Argument OneArgument(TextCursor& cursor, const c10::TypePtr& type) {
    const std::string_view rest = cursor.rest();
    if (cursor.Accept("%")) {
      cursor = TextCursor(rest);
      return cursor.Value();
    }
    const bool tensors = type->isSubtypeOf(*c10::ListType::ofTensors()) ||
                         type->isSubtypeOf(*c10::ListType::ofOptionalTensors());
    if (!tensors || !cursor.Accept("[")) return ParseConstant(cursor, type);
    std::vector<ValueId> ids;
    while (!cursor.Accept("]")) {
      ids.push_back(cursor.Value());
      cursor.Accept(",");
    }
    return ids;
  }

  const std::map<ValueId, at::Tensor>& constants_;
  Graph graph_;
  Phase phase_ = Phase::kForward;
};

}  // namespace

TensorType ParseType(TextCursor& cursor) {
  const c10::ScalarType dtype = DtypeOf(cursor.Word());
  if (dtype == c10::ScalarType::Undefined) cursor.FailBefore("a dtype");
  std::vector<std::int64_t> sizes = cursor.Integers();
  double elements = 1;
  for (const std::int64_t size : sizes) {
    if (size < 0) cursor.FailBefore("sizes of at least 0");
    elements *= static_cast<double>(std::max<std::int64_t>(size, 1));
  }
  if (elements > kMaxElements) cursor.FailBefore("sizes that fit in memory");
  TensorType type = ContiguousType(dtype, std::move(sizes));
  if (cursor.Accept("/")) {
    type.strides = cursor.Integers();
    if (type.strides.size() != type.sizes.size()) cursor.FailBefore("a stride for each size");
  }
  type.rows_vary = cursor.Accept("~");
  if (type.rows_vary && type.sizes.empty()) cursor.FailBefore("rows that vary");
  return type;
}

Result<Graph> ParseGraph(std::string_view text, const std::map<ValueId, at::Tensor>& constants) {
  Parser parser(constants);
  for (int number = 1; !text.empty(); ++number) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    try {
      parser.Line(text.substr(0, end));
    } catch (const TextError& error) {
      return InvalidArgument("graph text, line {}: {}", number, error.what());
    } catch (const c10::Error& error) {
      return InvalidArgument("graph text, line {}: {}", number, error.what_without_backtrace());
    }
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  Graph graph = std::move(parser).Take();
  if (const Status status = VerifyGraph(graph); !status) {
    return InvalidArgument("graph text: {}", status.error().line());
  }
  return graph;
}

}  // namespace penstock
