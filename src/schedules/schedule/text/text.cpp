#include "schedule/text/text.h"

#include <algorithm>
#include <array>
#include <cstdint>

#include "base/index.h"
#include "base/text/nearest.h"
#include "base/text/quote.h"

namespace penstock {
namespace {

constexpr std::array<std::string_view, kOpCount> kOpTexts = {"F",           "I",
                                                             "W",           "B",
                                                             "SEND_F",      "RECV_F",
                                                             "SEND_B",      "RECV_B",
                                                             "WAIT_SEND_F", "WAIT_SEND_B",
                                                             "UNSHARD",     "RESHARD",
                                                             "REDUCE_GRAD", "WAIT_REDUCE_GRAD",
                                                             "OFFLOAD",     "RELOAD",
                                                             "RECOMPUTE",   "STEP",
                                                             "EMBED",       "S",
                                                             "T",           "EMBED_GRAD"};
constexpr std::string_view kOverlap = "OVERLAP_F_B";

struct CountKey {
  std::string_view name;
  std::optional<int> CsvOptions::*field;
};
constexpr std::array kCounts = {CountKey{"microbatches", &CsvOptions::microbatches},
                                CountKey{"replicas", &CsvOptions::replicas},
                                CountKey{"slices", &CsvOptions::slices},
                                CountKey{"steps", &CsvOptions::steps}};

struct StagesKey {
  std::string_view name;
  std::optional<std::vector<int>> CsvOptions::*field;
};
constexpr std::array kStageLists = {StagesKey{"frozen", &CsvOptions::frozen},
                                    StagesKey{"adapters", &CsvOptions::adapters}};

constexpr bool IsSpace(char c) {
  return c == ' ' || c == '\t' || c == '\r' || c == '\n' || c == '\v' || c == '\f';
}
constexpr bool IsDigit(char c) { return c >= '0' && c <= '9'; }

std::string_view Trim(std::string_view text) {
  while (!text.empty() && IsSpace(text.front())) text.remove_prefix(1);
  while (!text.empty() && IsSpace(text.back())) text.remove_suffix(1);
  return text;
}

// Removes a number from the front and returns it. Returns -1 if there is none, more than kMaxNumber
// if it is too large.
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

// Parses "3F1" or "1UNSHARD". Returns null, or what is wrong with it.
const char* ParsePart(std::string_view text, Part& part) {
  const std::int64_t stage = TakeNumber(text);
  if (stage < 0) return "it must start with a stage number";
  if (stage >= kMaxStages) return "the stage number is above 65535";
  std::size_t length = 0;
  while (length < text.size() && !IsDigit(text[length])) ++length;
  const Op op = FindOp(text.substr(0, length));
  if (op == Op::kNone) return "its letters name no action (F, I, W, B, SEND_F, RECV_F, ...)";
  text.remove_prefix(length);
  const std::int64_t microbatch = TakeNumber(text);
  if (!text.empty()) {
    const bool is_separated = std::string_view(" \t;|").find(text.front()) != text.npos;
    return is_separated ? "commas separate actions" : "there is text after the microbatch index";
  }
  if (microbatch > kMaxNumber) return "the microbatch index is too large";
  if (HasMicrobatch(op) && microbatch < 0) return "it has no microbatch index";
  if (!HasMicrobatch(op) && microbatch >= 0) return "this action takes no microbatch index";
  part = {op, static_cast<std::uint16_t>(stage), static_cast<std::int32_t>(microbatch)};
  return nullptr;
}

// Parses "(0F0;1B1)OVERLAP_F_B": a forward and a backward, in either order.
const char* ParsePair(std::string_view text, Action& action) {
  const std::size_t close = text.find(')');
  if (close == std::string_view::npos || Trim(text.substr(close + 1)) != kOverlap) {
    return "an overlapped pair is written as (0F0;1B1)OVERLAP_F_B";
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

// Finds the rank of every stage by majority of its compute actions, so that one stray cell is one
// fault rather than a whole rank of faults (Boyer and Moore's vote: one counter per stage).
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
  // Assigns a stage that no rank computes to rank 0. The validator reports it.
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

// The cells of one line, without blanks and quotes around them. Reads them as Python's csv module
// does, except for quotes inside a cell.
class CellReader {
 public:
  explicit CellReader(std::string_view line) : line_(line) {}
  // The column of the cell that Next returned, from 1.
  int column() const { return column_; }

  // Returns nothing after the last cell.
  std::optional<std::string_view> Next() {
    if (at_end_) return std::nullopt;
    ++column_;
    const std::size_t comma = line_.find(',');
    std::string_view cell = Trim(line_.substr(0, comma));
    if (cell.size() >= 2 && cell.front() == '"' && cell.back() == '"') {
      cell = Trim(cell.substr(1, cell.size() - 2));
    }
    at_end_ = comma == std::string_view::npos;
    if (!at_end_) line_.remove_prefix(comma + 1);
    return cell;
  }

 private:
  std::string_view line_;
  int column_ = 0;
  bool at_end_ = false;
};

// Sets the option that a cell of the header names: "slices=2". Returns null, or what is wrong.
const char* SetOption(std::string_view cell, CsvOptions& options) {
  const std::size_t equals = cell.find('=');
  if (equals == std::string_view::npos) return "the first line has key=value in every cell or none";
  const std::string_view key = Trim(cell.substr(0, equals));
  std::string_view value = Trim(cell.substr(equals + 1));
  if (key == "weights") {
    const auto weights = ParseWeights(value);
    if (!weights) return "give flush, stashed or double-buffered";
    if (options.weights) return "the key is given twice";
    options.weights = *weights;
    return nullptr;
  }
  for (const auto& [name, field] : kCounts) {
    if (key != name) continue;
    const std::int64_t count = TakeNumber(value);
    if (!value.empty() || count < 1 || count > kMaxNumber) return "give a whole number, at least 1";
    if (options.*field) return "the key is given twice";
    options.*field = static_cast<int>(count);
    return nullptr;
  }
  for (const auto& [name, field] : kStageLists) {
    if (key != name) continue;
    const Result<std::vector<int>> stages = ParseStages(value);
    if (!stages) return "give stages and ranges of them (0-2;5)";
    if (options.*field) return "the key is given twice";
    options.*field = *stages;
    return nullptr;
  }
  return "the keys are microbatches, replicas, slices, steps, weights, frozen and adapters";
}

// Returns an upper bound on the number of actions in the line. An action takes at least three bytes
// and a comma; blank cells take no memory.
std::size_t MaxActions(std::string_view line) {
  std::size_t cells = 1;
  for (std::size_t i = 1; i < line.size(); ++i) cells += line[i] == ',' && line[i - 1] != ',';
  return std::min(cells, line.size() / 4 + 1);
}

std::string_view WithoutByteOrderMark(std::string_view text) {
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  return text;
}

std::string_view TakeLine(std::string_view& text) {
  const std::size_t end = std::min(text.find('\n'), text.size());
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return line;
}

constexpr std::size_t kBits = 8;  // blanks per character of a header in a blank cell

// Returns the header that an earlier version hid in the first cell of a line, as blanks: a tab is
// 1, a space is 0, the most significant bit first. Empty if the cell has another meaning.
std::string HeaderInBlanks(std::string_view line) {
  const std::string_view cell = line.substr(0, line.find(','));
  if (cell.find_first_not_of(" \t") != std::string_view::npos || cell.size() % kBits != 0)
    return "";
  std::string header;
  for (std::size_t i = 0; i < cell.size(); i += kBits) {
    int character = 0;
    for (const char bit : cell.substr(i, kBits)) character = 2 * character + (bit == '\t' ? 1 : 0);
    header += static_cast<char>(character);
  }
  return header.find('=') == std::string::npos ? "" : header;
}

// The first cell of each lane in a file with a header: "rank=3". A file that lost its header still
// has these cells, so it is not taken for a schedule with the defaults.
constexpr std::string_view kRankMark = "rank=";

// Whether the first line of a text is a header by itself.
bool HasHeaderLine(std::string_view text) {
  text = WithoutByteOrderMark(text);
  const std::string_view line = TakeLine(text);
  return line.find('=') != std::string_view::npos &&
         !CellReader(line).Next()->starts_with(kRankMark);
}

// Removes a header line from the text. Returns the options of the header, or none if there is none.
Result<CsvOptions> TakeHeader(std::string_view& text) {
  CsvOptions options;
  const bool is_line = HasHeaderLine(text);
  text = WithoutByteOrderMark(text);
  std::string_view rest = text;
  const std::string_view line = TakeLine(rest);
  const std::string in_blanks = is_line ? "" : HeaderInBlanks(line);
  if (is_line) text = rest;
  if (!is_line && in_blanks.empty()) return options;
  CellReader cells(is_line ? line : std::string_view(in_blanks));
  while (const auto cell = cells.Next()) {
    if (cell->empty()) continue;
    if (const char* error = SetOption(*cell, options)) {
      return InvalidArgument("line 1, column {}: {}: {}", cells.column(), Quote(*cell), error);
    }
  }
  return options;
}

// Returns what is wrong with the mark of a lane; empty if nothing is.
std::string WrongMark(std::string_view mark, std::size_t rank, bool has_header) {
  if (!has_header) {
    return "the header, the first line of a file with such cells, is missing (for example "
           "slices=2); write the "
           "schedule again";
  }
  if (mark == fmt::format("{}{}", kRankMark, rank)) return "";
  return fmt::format("this is the lane of rank {}; a line is missing or was moved", rank);
}

// The line of a rank.
struct LanePlace {
  std::size_t rank = 0;
  bool has_header = false;  // as a line of its own
  std::size_t line() const { return rank + (has_header ? 2 : 1); }
};

Result<Lane> ParseLane(std::string_view line, const LanePlace& place) {
  Lane lane;
  if (Trim(line).empty()) return lane;
  lane.reserve(MaxActions(line));
  CellReader cells(line);
  while (const auto cell = cells.Next()) {
    if (cell->empty()) continue;
    if (lane.empty() && cell->starts_with(kRankMark)) {
      const std::string wrong = WrongMark(*cell, place.rank, place.has_header);
      if (wrong.empty()) continue;
      return InvalidArgument("line {}, column {}: {}: {}", place.line(), cells.column(),
                             Quote(*cell), wrong);
    }
    Action action;
    if (const char* error = Parse(*cell, action)) {
      return InvalidArgument("line {}, column {}: {} is not an action: {}", place.line(),
                             cells.column(), Quote(*cell), error);
    }
    lane.push_back(action);
  }
  return lane;
}

// Returns the microbatches of a batch that has `indices` microbatch indices in each chain.
std::int64_t MicrobatchesOf(std::int64_t indices, std::int64_t indices_per_microbatch,
                            std::int64_t replicas) {
  return (indices + indices_per_microbatch - 1) / indices_per_microbatch * replicas;
}

// Returns 1 + the largest microbatch index of the lanes.
std::int64_t CountIndices(const Schedule& schedule) {
  std::int64_t indices = 1;
  for (const Lane& lane : schedule.lanes) {
    for (const Action& action : lane) {
      ForEachPart(action, [&](const Part& part) {
        indices = std::max(indices, std::int64_t{part.microbatch} + 1);
      });
    }
  }
  return indices;
}

// Sets what the actions do not say. `indices` is 1 + the largest microbatch index.
Status ApplyOptions(const CsvOptions& options, std::int64_t indices, Schedule& schedule) {
  schedule.slices = options.slices.value_or(1);
  schedule.steps = options.steps.value_or(1);
  schedule.weights = options.weights.value_or(WeightPolicy::kFlush);
  if (schedule.slices < 1)
    return InvalidParameter("slices", "{}: must be at least 1", schedule.slices);
  if (schedule.steps < 1)
    return InvalidParameter("steps", "{}: must be at least 1", schedule.steps);
  const std::int64_t replicas = schedule.placement.replicas();
  const std::int64_t indices_per_microbatch = std::int64_t{schedule.slices} * schedule.steps;
  std::int64_t microbatches = MicrobatchesOf(indices, indices_per_microbatch, replicas);
  if (options.microbatches) microbatches = *options.microbatches;
  if (microbatches < 1)
    return InvalidParameter("microbatches", "{}: must be at least 1", microbatches);
  if (indices_per_microbatch > kMaxNumber || microbatches > kMaxNumber / indices_per_microbatch) {
    return InvalidArgument(
        "{} microbatches x {} slices x {} steps: a schedule has at most {} microbatch indices",
        microbatches, schedule.slices, schedule.steps, kMaxNumber);
  }
  schedule.microbatches = static_cast<int>(microbatches);
  return {};
}

// Returns a header of what differs from its default; empty if nothing does. Torch, which could run
// none of it as it is meant, refuses a file with a header.
std::string HeaderOf(const Schedule& schedule) {
  std::string header;
  const auto add = [&](std::string_view key, auto value, auto if_missing) {
    if (value == if_missing) return;
    header += fmt::format("{}{}={}", header.empty() ? "" : ",", key, value);
  };
  const int replicas = schedule.placement.replicas();
  add("microbatches", std::int64_t{schedule.microbatches},
      MicrobatchesOf(CountIndices(schedule), std::int64_t{schedule.slices} * schedule.steps,
                     replicas));
  add("replicas", replicas, 1);
  add("slices", schedule.slices, 1);
  add("steps", schedule.steps, 1);
  add("weights", ToText(schedule.weights), ToText(WeightPolicy::kFlush));
  const Untrained untrained = UntrainedOf(schedule);
  add("frozen", StagesText(untrained.frozen), "");
  add("adapters", StagesText(untrained.adapters), "");
  return header;
}

}  // namespace

std::string_view ToText(WeightPolicy weights) {
  switch (weights) {
    case WeightPolicy::kFlush:
      return "flush";
    case WeightPolicy::kStashed:
      return "stashed";
    case WeightPolicy::kDoubleBuffered:
      return "double-buffered";
  }
  return "flush";
}

Result<WeightPolicy> ParseWeights(std::string_view text) {
  for (const WeightPolicy weights :
       {WeightPolicy::kFlush, WeightPolicy::kStashed, WeightPolicy::kDoubleBuffered}) {
    if (text == ToText(weights)) return weights;
  }
  return InvalidArgument("{} is not a weight policy; give flush, stashed or double-buffered{}",
                         Quote(text),
                         Suggestion(text, {kWeightPolicyNames.begin(), kWeightPolicyNames.end()}));
}

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

CsvOptions FirstSet(const CsvOptions& first, const CsvOptions& second) {
  CsvOptions options = first;
  for (const auto& [name, field] : kCounts) {
    if (!(options.*field)) options.*field = second.*field;
  }
  if (!options.weights) options.weights = second.weights;
  for (const auto& [name, field] : kStageLists) {
    if (!(options.*field)) options.*field = second.*field;
  }
  return options;
}

HeaderForm FormOfHeader(std::string_view text) {
  if (HasHeaderLine(text)) return HeaderForm::kLine;
  text = WithoutByteOrderMark(text);
  return HeaderInBlanks(TakeLine(text)).empty() ? HeaderForm::kNone : HeaderForm::kHidden;
}

std::string WriteCsv(const Schedule& schedule) {
  constexpr std::size_t kUsualCell = 10;
  std::string text;
  text.reserve(schedule.action_count() * kUsualCell);
  const std::string header = HeaderOf(schedule);
  if (!header.empty()) text += header + '\n';
  for (std::size_t rank = 0; rank < schedule.lanes.size(); ++rank) {
    bool first = header.empty();
    if (!first) text += fmt::format("{}{}", kRankMark, rank);
    for (const Action& action : schedule.lanes[rank]) {
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
  const bool has_header = HasHeaderLine(text);
  PENSTOCK_TRY(const CsvOptions header, TakeHeader(text));
  text = WithoutByteOrderMark(text);
  // A blank line is a rank without actions, except at the end, where there may be any number.
  for (std::size_t rank = 0; !text.empty(); ++rank) {
    const LanePlace place{rank, has_header};
    PENSTOCK_TRY(Lane lane, ParseLane(TakeLine(text), place));
    if (lane.empty()) continue;
    if (rank >= kMaxStages) {
      return InvalidArgument("line {}: a schedule has at most {} ranks, one per line", place.line(),
                             kMaxStages);
    }
    schedule.lanes.resize(rank);
    schedule.lanes.push_back(std::move(lane));
  }
  if (schedule.lanes.empty()) return InvalidArgument("it has no action");

  StageVotes votes;
  for (std::size_t rank = 0; rank < schedule.lanes.size(); ++rank) {
    for (const Action& action : schedule.lanes[rank]) {
      ForEachPart(action, [&](const Part& part) {
        votes.Add(part, static_cast<int>(rank));
        schedule.vocabulary = schedule.vocabulary || IsVocabulary(part.op);
      });
    }
  }
  const auto ranks = static_cast<int>(schedule.lanes.size());
  const CsvOptions all = FirstSet(options, header);
  PENSTOCK_TRY(schedule.placement,
               Placement::FromRanks(votes.Ranks(), ranks, all.replicas.value_or(1)));
  PENSTOCK_TRY_STATUS(ApplyOptions(all, CountIndices(schedule), schedule));
  PENSTOCK_TRY(schedule.backward, BackwardsOf({all.frozen.value_or(std::vector<int>()),
                                               all.adapters.value_or(std::vector<int>())},
                                              schedule.placement.chain_length()));
  return schedule;
}

Status RequireTorchOps(const Schedule& schedule) {
  const char* foreign = nullptr;
  if (schedule.placement.replicas() != 1) foreign = "two replicas of the stages";
  if (schedule.slices != 1) foreign = "slices of a microbatch along the sequence";
  if (schedule.steps != 1) foreign = "several batches";
  if (schedule.weights != WeightPolicy::kFlush) foreign = "weights without a flush";
  if (IsUntrained(schedule)) foreign = "stages without a part of the backward";
  if (foreign != nullptr) return InvalidArgument("torch does not support {}", foreign);
  for (std::size_t rank = 0; rank < schedule.lanes.size(); ++rank) {
    for (const Action& action : schedule.lanes[rank]) {
      if (action.first.op >= Op::kOffload) {
        return InvalidArgument("torch has no action {} ({} on rank {}); omit the pass that adds it",
                               OpText(action.first.op), ToText(action), rank);
      }
    }
  }
  return {};
}

}  // namespace penstock
