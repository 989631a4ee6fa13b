#include "schedule/text/text.h"

#include <algorithm>
#include <array>
#include <cstdint>

#include "base/index.h"
#include "base/quote.h"

namespace penstock {
namespace {

constexpr std::array<std::string_view, kOpCount> kOpTexts = {
    "F",       "I",       "W",           "B",       "SEND_F", "RECV_F",    "SEND_B", "RECV_B",
    "UNSHARD", "RESHARD", "REDUCE_GRAD", "OFFLOAD", "RELOAD", "RECOMPUTE", "STEP"};
constexpr std::string_view kOverlap = "OVERLAP_F_B";

constexpr bool IsSpace(char c) {
  return c == ' ' || c == '\t' || c == '\r' || c == '\n' || c == '\v' || c == '\f';
}
constexpr bool IsDigit(char c) { return c >= '0' && c <= '9'; }

std::string_view Trim(std::string_view text) {
  while (!text.empty() && IsSpace(text.front())) text.remove_prefix(1);
  while (!text.empty() && IsSpace(text.back())) text.remove_suffix(1);
  return text;
}

// Takes a number off the front; -1 where there is none, more than kMaxNumber where it is too large.
constexpr std::int64_t kMaxNumber = (1 << 30) - 1;
std::int64_t TakeNumber(std::string_view& text) {
  if (text.empty() || !IsDigit(text.front())) return -1;
  std::int64_t number = 0;
  std::size_t length = 0;
  for (; length < text.size() && IsDigit(text[length]); ++length) {
    if (number <= kMaxNumber) number = number * 10 + (text[length] - '0');
  }
  text.remove_prefix(length);
  return number;
}

Op FindOp(std::string_view letters) {
  for (int op = 0; op < kOpCount; ++op) {
    if (kOpTexts[op] == letters) return static_cast<Op>(op);
  }
  return Op::kNone;
}

// "3F1", "1UNSHARD". Null, or what is wrong with it.
const char* ParsePart(std::string_view text, Part& part) {
  const std::int64_t stage = TakeNumber(text);
  if (stage < 0) return "it does not start with a stage number";
  if (stage >= kMaxStages) return "the stage number is above 65535";
  std::size_t length = 0;
  while (length < text.size() && !IsDigit(text[length])) ++length;
  const Op op = FindOp(text.substr(0, length));
  if (op == Op::kNone) return "its letters are no action (F, I, W, B, SEND_F, RECV_F, ...)";
  text.remove_prefix(length);
  const std::int64_t microbatch = TakeNumber(text);
  if (!text.empty()) return "something stands behind the microbatch number";
  if (microbatch > kMaxNumber) return "the microbatch number is too large";
  if (HasMicrobatch(op) && microbatch < 0) return "it has no microbatch number";
  if (!HasMicrobatch(op) && microbatch >= 0) return "this action takes no microbatch number";
  part = {op, static_cast<std::uint16_t>(stage), static_cast<std::int32_t>(microbatch)};
  return nullptr;
}

// "(0F0;1B1)OVERLAP_F_B": a forward and a backward, in either order.
const char* ParsePair(std::string_view text, Action& action) {
  const std::size_t close = text.find(')');
  if (close == std::string_view::npos || Trim(text.substr(close + 1)) != kOverlap) {
    return "an overlapped pair is written (0F0;1B1)OVERLAP_F_B";
  }
  const std::string_view body = text.substr(1, close - 1);
  const std::size_t middle = body.find(';');
  if (middle == std::string_view::npos) return "an overlapped pair has two actions";
  if (const char* error = ParsePart(Trim(body.substr(0, middle)), action.first)) return error;
  if (const char* error = ParsePart(Trim(body.substr(middle + 1)), action.second)) return error;
  if (!IsCompute(action.first.op) || !IsCompute(action.second.op) ||
      (action.first.op == Op::kForward) == (action.second.op == Op::kForward)) {
    return "an overlapped pair is one forward and one backward";
  }
  return nullptr;
}

const char* Parse(std::string_view cell, Action& action) {
  if (!cell.empty() && cell.front() == '(') return ParsePair(cell, action);
  action.second = {};
  return ParsePart(cell, action.first);
}

void AppendNumber(std::string& out, std::int32_t number) {
  std::array<char, 16> digits;
  std::size_t begin = digits.size();
  auto rest = static_cast<std::uint32_t>(std::max(number, 0));
  do {
    digits[--begin] = static_cast<char>('0' + rest % 10);
    rest /= 10;
  } while (rest != 0);
  out.append(digits.data() + begin, digits.size() - begin);
}

void AppendPart(std::string& out, const Part& part) {
  AppendNumber(out, part.stage);
  out += OpText(part.op);
  if (part.microbatch >= 0) AppendNumber(out, part.microbatch);
}

void AppendAction(std::string& out, const Action& action) {
  if (!action.is_pair()) return AppendPart(out, action.first);
  out += '(';
  AppendPart(out, action.first);
  out += ';';
  AppendPart(out, action.second);
  out += ')';
  out += kOverlap;
}

// The rank of every stage by majority of its compute actions, so that one stray cell is one fault
// and not a whole rank of them (Boyer and Moore's vote: one counter a stage).
class StageVotes {
 public:
  void Add(const Part& part, int rank) {
    const std::size_t stage = part.stage;
    if (stage >= votes_.size()) votes_.resize(stage + 1);
    if (!IsCompute(part.op)) return;
    Vote& vote = votes_[stage];
    if (vote.count == 0) vote.rank = rank;
    vote.count += vote.rank == rank ? 1 : -1;
  }
  // A stage that no rank computes counts as rank 0's; the validator names it.
  std::vector<int> Ranks() const {
    std::vector<int> ranks;
    for (const Vote& vote : votes_) ranks.push_back(vote.rank);
    return ranks;
  }

 private:
  struct Vote {
    int rank = 0;
    int count = 0;
  };
  std::vector<Vote> votes_;
};

// At least as many as the line has cells with an action: these take three bytes and a comma, and
// blank ones take no memory.
std::size_t MostCells(std::string_view line) {
  std::size_t cells = 1;
  for (std::size_t i = 1; i < line.size(); ++i) cells += line[i] == ',' && line[i - 1] != ',';
  return std::min(cells, line.size() / 4 + 1);
}

// Reads rows of cells as Python's csv module does, but for quotes inside a cell.
class RowReader {
 public:
  explicit RowReader(std::string_view text) : text_(text) {
    constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
    if (text_.starts_with(kByteOrderMark)) text_.remove_prefix(kByteOrderMark.size());
  }
  bool AtEnd() const { return text_.empty(); }

  Result<Lane> NextRow(std::size_t row) {
    const std::size_t end = std::min(text_.find('\n'), text_.size());
    std::string_view line = text_.substr(0, end);
    text_.remove_prefix(std::min(end + 1, text_.size()));
    Lane lane;
    if (Trim(line).empty()) return lane;
    lane.reserve(MostCells(line));
    for (int column = 1;; ++column) {
      const std::size_t comma = line.find(',');
      std::string_view cell = Trim(line.substr(0, comma));
      if (cell.size() >= 2 && cell.front() == '"' && cell.back() == '"') {
        cell = Trim(cell.substr(1, cell.size() - 2));
      }
      if (!cell.empty()) {
        Action action;
        if (const char* error = Parse(cell, action)) {
          return InvalidArgument("row {}, column {}: {} is not an action: {}", row + 1, column,
                                 Quote(cell), error);
        }
        lane.push_back(action);
      }
      if (comma == std::string_view::npos) return lane;
      line.remove_prefix(comma + 1);
    }
  }

 private:
  std::string_view text_;
};

// Sets what the cells cannot say; `rows` is 1 + the largest row number seen.
Status ApplyOptions(const CsvOptions& options, std::int64_t rows, Schedule& schedule) {
  schedule.slices = options.slices.value_or(1);
  schedule.steps = options.steps.value_or(1);
  schedule.weights = options.weights.value_or(WeightPolicy::kFlush);
  if (schedule.slices < 1) return InvalidArgument("slices {}: must be at least 1", schedule.slices);
  if (schedule.steps < 1) return InvalidArgument("steps {}: must be at least 1", schedule.steps);
  const std::int64_t replicas = schedule.placement.replicas();
  const std::int64_t rows_a_microbatch = std::int64_t{schedule.slices} * schedule.steps;
  std::int64_t microbatches =
      (rows + rows_a_microbatch - 1) / rows_a_microbatch * replicas;  // all chains alike
  if (options.microbatches) microbatches = *options.microbatches;
  if (microbatches < 1) return InvalidArgument("microbatches {}: must be at least 1", microbatches);
  if (rows_a_microbatch > kMaxNumber || microbatches > kMaxNumber / rows_a_microbatch) {
    return InvalidArgument("{} microbatches x {} slices x {} steps: at most {} row numbers",
                           microbatches, schedule.slices, schedule.steps, kMaxNumber);
  }
  schedule.microbatches = static_cast<int>(microbatches);
  return {};
}

}  // namespace

std::string_view OpText(Op op) {
  const std::size_t index = Index(op);
  return index < kOpTexts.size() ? kOpTexts[index] : std::string_view("?");
}

std::string ToText(const Part& part) {
  std::string text;
  AppendPart(text, part);
  return text;
}

std::string ToText(const Action& action) {
  std::string text;
  AppendAction(text, action);
  return text;
}

Result<Action> ParseAction(std::string_view cell) {
  Action action;
  if (const char* error = Parse(Trim(cell), action)) {
    return InvalidArgument("{} is not an action: {}", Quote(cell), error);
  }
  return action;
}

std::string WriteCsv(const Schedule& schedule) {
  constexpr std::size_t kUsualCell = 10;
  std::string text;
  text.reserve(schedule.action_count() * kUsualCell);
  for (const Lane& lane : schedule.lanes) {
    bool first = true;
    for (const Action& action : lane) {
      if (!first) text += ',';
      first = false;
      AppendAction(text, action);
    }
    text += '\n';
  }
  return text;
}

Result<Schedule> ParseCsv(std::string_view text, const CsvOptions& options) {
  Schedule schedule;
  RowReader reader(text);
  // Blank rows are ranks without an action, but for those at the end, of which there may be any
  // number.
  for (std::size_t row = 0; !reader.AtEnd(); ++row) {
    PENSTOCK_TRY(Lane lane, reader.NextRow(row));
    if (lane.empty()) continue;
    if (row >= kMaxStages) {
      return InvalidArgument("row {}: a schedule has at most {} ranks, one a row", row + 1,
                             kMaxStages);
    }
    schedule.lanes.resize(row);
    schedule.lanes.push_back(std::move(lane));
  }
  if (schedule.lanes.empty()) return InvalidArgument("it holds no action");

  StageVotes votes;
  std::int64_t rows = 0;
  for (std::size_t rank = 0; rank < schedule.lanes.size(); ++rank) {
    for (const Action& action : schedule.lanes[rank]) {
      ForEachPart(action, [&](const Part& part) {
        votes.Add(part, static_cast<int>(rank));
        rows = std::max(rows, std::int64_t{part.microbatch} + 1);
      });
    }
  }
  const auto ranks = static_cast<int>(schedule.lanes.size());
  PENSTOCK_TRY(schedule.placement,
               Placement::FromRanks(votes.Ranks(), ranks, options.replicas.value_or(1)));
  PENSTOCK_TRY_STATUS(ApplyOptions(options, std::max<std::int64_t>(rows, 1), schedule));
  return schedule;
}

Status RequireTorchOps(const Schedule& schedule) {
  const char* foreign = nullptr;
  if (schedule.placement.replicas() != 1) foreign = "two replicas of the stages";
  if (schedule.slices != 1) foreign = "slices of a microbatch along the sequence";
  if (schedule.steps != 1) foreign = "several batches";
  if (schedule.weights != WeightPolicy::kFlush) foreign = "weights without a flush";
  if (foreign != nullptr) return InvalidArgument("torch has no form for {}", foreign);
  for (std::size_t rank = 0; rank < schedule.lanes.size(); ++rank) {
    for (const Action& action : schedule.lanes[rank]) {
      if (action.first.op >= Op::kOffload) {
        return InvalidArgument("torch has no action {} ({} on rank {}); leave that pass out",
                               OpText(action.first.op), ToText(action), rank);
      }
    }
  }
  return {};
}

}  // namespace penstock
