#include "report/palette.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/index.h"
#include "schedule/text/text.h"

namespace penstock {
namespace {

// F, I and B also differ in brightness: with tritanopia, blue, teal and green look alike.
constexpr Color kMoveColor = {0x8a, 0x97, 0xa8};
constexpr std::array<Color, kOpCount> kOpColors = {{
    {0x26, 0x74, 0xd9},  // F
    {0x64, 0xd0, 0xcc},  // I
    {0xe8, 0x9b, 0x2c},  // W
    {0x1c, 0x5f, 0x40},  // B
    kMoveColor,          // SEND_F
    kMoveColor,          // RECV_F
    kMoveColor,          // SEND_B
    kMoveColor,          // RECV_B
    kMoveColor,          // WAIT_SEND_F
    kMoveColor,          // WAIT_SEND_B
    {0x4f, 0x8a, 0x5b},  // UNSHARD
    kMoveColor,          // RESHARD
    {0xa8, 0x6b, 0x4a},  // REDUCE_GRAD
    kMoveColor,          // WAIT_REDUCE_GRAD
    {0x55, 0x6d, 0x96},  // OFFLOAD
    {0x93, 0xae, 0xd6},  // RELOAD
    {0xc0, 0x5f, 0xb5},  // RECOMPUTE
    {0xd0, 0x4a, 0x5b},  // STEP
    {0x3d, 0x5a, 0x80},  // EMBED
    {0x7a, 0x5f, 0xd0},  // S
    {0xb0, 0x9a, 0xec},  // T
    {0x8f, 0xa9, 0xc4},  // EMBED_GRAD
}};

}  // namespace

Color ChunkColor(Color base, int chunk, int chunks, double lightest) {
  const double share = chunks > 1 ? lightest * chunk / (chunks - 1) : 0;
  const auto lighter = [share](std::uint8_t part) {
    return static_cast<std::uint8_t>(std::lround(part + (255 - part) * share));
  };
  return {lighter(base.red), lighter(base.green), lighter(base.blue)};
}

Color BlockColor(Op op, int chunk, int chunks) {
  constexpr double kLightest = 0.45;
  return ChunkColor(op < Op::kNone ? kOpColors[Index(op)] : kMoveColor, chunk, chunks, kLightest);
}

Color CauseColor(BubbleCause cause) {
  static constexpr std::array<Color, kBubbleCauses> kColors = {{
      {0x6b, 0x7f, 0x99},  // warm-up
      {0x8f, 0x83, 0x78},  // drain
      {0xd9, 0x7a, 0x1f},  // communication
      {0x1a, 0x8f, 0x8f},  // transfer
      {0xc8, 0x3c, 0x4e},  // imbalance
      {0x7c, 0x5c, 0xd6},  // memory limit
  }};
  return kColors[Index(cause)];
}

std::string Hex(Color color) {
  return fmt::format("#{:02x}{:02x}{:02x}", color.red, color.green, color.blue);
}

double Luminance(Color color) {
  const auto linear = [](std::uint8_t part) {
    const double value = part / 255.0;
    return value <= 0.04045 ? value / 12.92 : std::pow((value + 0.055) / 1.055, 2.4);
  };
  return 0.2126 * linear(color.red) + 0.7152 * linear(color.green) + 0.0722 * linear(color.blue);
}

double Contrast(Color a, Color b) {
  const double light = std::max(Luminance(a), Luminance(b));
  return (light + 0.05) / (std::min(Luminance(a), Luminance(b)) + 0.05);
}

Color TextColor(Color background) {
  constexpr Color kBlack = {}, kWhite = {0xff, 0xff, 0xff};
  return Contrast(background, kBlack) > Contrast(background, kWhite) ? kBlack : kWhite;
}

std::string_view OpName(Op op) {
  static constexpr std::array<std::string_view, kOpCount> kNames = {"forward",
                                                                    "backward for input",
                                                                    "backward for weights",
                                                                    "backward",
                                                                    "send activation",
                                                                    "receive activation",
                                                                    "send gradient",
                                                                    "receive gradient",
                                                                    "wait for sent activation",
                                                                    "wait for sent gradient",
                                                                    "all-gather weights",
                                                                    "free weights",
                                                                    "reduce gradients",
                                                                    "wait for reduced gradients",
                                                                    "offload",
                                                                    "reload",
                                                                    "recompute",
                                                                    "optimizer step",
                                                                    "embed tokens",
                                                                    "logits and their gradient",
                                                                    "gradient of the head",
                                                                    "gradient of the embedding"};
  return op < Op::kNone ? kNames[Index(op)] : std::string_view("none");
}

char OpLetter(Op op) {
  switch (op) {  // S is STEP
    case Op::kEmbed:
      return 'e';
    case Op::kVocabularyInput:
      return 's';
    case Op::kVocabularyWeight:
      return 't';
    case Op::kEmbedGradient:
      return 'g';
    default:
      return OpText(op).front();
  }
}

int ChunkOf(const Placement& placement, int stage) {
  const std::vector<int>& stages = placement.stages_of(placement.rank_of(stage));
  return static_cast<int>(std::find(stages.begin(), stages.end(), stage) - stages.begin());
}

int MostChunks(const Placement& placement) {
  std::size_t most = 0;
  for (int rank = 0; rank < placement.ranks(); ++rank) {
    most = std::max(most, placement.stages_of(rank).size());
  }
  return static_cast<int>(most);
}

std::string LighterText(bool chunks, bool replicas) {
  if (!chunks && !replicas) return "";
  return fmt::format("lighter: {}{}{} of a rank", chunks ? "later chunks" : "",
                     chunks && replicas ? ", or " : "", replicas ? "stages of other replicas" : "");
}

std::string MicrobatchText(const Schedule& schedule, int row) {
  if (schedule.slices <= 1) return fmt::format("{}", row);
  return fmt::format("{}.{}", row / schedule.slices, row % schedule.slices);
}

std::vector<Op> DrawnOps(const Schedule& schedule, const Timeline& timeline) {
  std::array<bool, kOpCount> seen = {};
  for (std::size_t r = 0; r < schedule.lanes.size(); ++r) {
    for (std::size_t i = 0; i < schedule.lanes[r].size(); ++i) {
      const Action& action = schedule.lanes[r][i];
      if (!IsDrawn(action, timeline.spans[r][i])) continue;
      ForEachPart(action, [&](const Part& part) { seen[Index(part.op)] = true; });
    }
  }
  std::vector<Op> ops;
  for (std::size_t op = 0; op < seen.size(); ++op) {
    if (seen[op]) ops.push_back(static_cast<Op>(op));
  }
  return ops;
}

Status RequireSpans(const Schedule& schedule, const Timeline& timeline) {
  bool fits = timeline.spans.size() == schedule.lanes.size();
  for (std::size_t r = 0; fits && r < schedule.lanes.size(); ++r) {
    fits = timeline.spans[r].size() == schedule.lanes[r].size();
  }
  if (!fits)
    return InvalidArgument(
        "the timeline does not match the schedule: it needs one span per action");
  for (std::size_t r = 0; r < schedule.lanes.size(); ++r) {
    for (const Span& span : timeline.spans[r]) {
      if (std::isfinite(span.end) && span.start >= 0 && span.end >= span.start) continue;
      return InvalidArgument("rank {}: the span from {} to {} is not finite and ordered", r,
                             span.start, span.end);
    }
  }
  return {};
}

double EndOf(const Timeline& timeline) {
  double end = 0;
  for (const auto& spans : timeline.spans) {
    for (const Span& span : spans) end = std::max(end, span.end);
  }
  return end;
}

double TickStep(double end, int count) {
  if (!(end > 0) || count < 1) return 1;
  const double rough = end / count;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  for (const double step : {1.0, 2.0, 5.0}) {
    if (step * power >= rough) return step * power;
  }
  return 10 * power;
}

}  // namespace penstock
