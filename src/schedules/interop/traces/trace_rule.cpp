#include "interop/traces/trace_rule.h"

#include <algorithm>
#include <utility>

#include "base/text/nearest.h"
#include "base/text/quote.h"
#include "base/text/yaml_map.h"
#include "schedule/text/text.h"

namespace penstock {
namespace {

constexpr const char* kProfilerStep = R"(^ProfilerStep#(?<step>\d+)$)";
constexpr const char* kWaitBatch = R"(pipelining/schedules\.py\(\d+\): _wait_batch_p2p$)";

const std::vector<std::string_view> kEventGroups = {"action", "stage", "chunk", "microbatch",
                                                    "rank"};

Result<Op> ReadOp(const YamlMap& map, const std::string& text) {
  for (const Op op : {Op::kForward, Op::kBackward, Op::kBackwardInput, Op::kBackwardWeight}) {
    if (text == OpText(op)) return op;
  }
  return map.Refuse("action", "{} is none of F, B, I and W", Quote(text));
}

Result<EventRule> ReadEventRule(const YAML::Node& node) {
  PENSTOCK_TRY(const YamlMap map, YamlMap::Of(node, "an entry of events"));
  PENSTOCK_TRY_STATUS(map.RequireKnown({"match", "action"}));
  PENSTOCK_TRY(const std::optional<std::string> match, map.Text("match"));
  PENSTOCK_TRY(const std::optional<std::string> action, map.Text("action"));
  if (!match) return map.Refuse("match", "the pattern of names is missing");
  EventRule rule;
  auto pattern = NamePattern::Parse(*match, kEventGroups);
  if (!pattern) return map.Refuse("match", "{}", pattern.error().line());
  rule.pattern = std::move(*pattern);
  if (action) {
    PENSTOCK_TRY(rule.op, ReadOp(map, *action));
  }
  if (action.has_value() == rule.pattern.HasGroup("action")) {
    return map.Refuse("match", "{}",
                      action ? "the key action and the group (?<action>...) exclude each other"
                             : "say what the event is: action: F, or a group (?<action>...)");
  }
  return rule;
}

Result<std::vector<NamePattern>> ReadPatterns(const YamlMap& map, const std::string& key,
                                              const std::vector<std::string_view>& groups) {
  std::vector<NamePattern> patterns;
  PENSTOCK_TRY(const auto texts, map.Texts(key));
  for (const std::string& text : texts.value_or(std::vector<std::string>())) {
    auto pattern = NamePattern::Parse(text, groups);
    if (!pattern) return map.Refuse(key, "{}", pattern.error().line());
    patterns.push_back(std::move(*pattern));
  }
  return patterns;
}

Result<RankSource> ReadRankSource(const YamlMap& map, const std::vector<EventRule>& events) {
  static const std::vector<std::pair<std::string_view, RankSource>> kSources = {
      {"file", RankSource::kFile},
      {"process", RankSource::kProcess},
      {"thread", RankSource::kThread},
      {"group", RankSource::kGroup}};
  const auto names_rank = [](const EventRule& rule) { return rule.pattern.HasGroup("rank"); };
  PENSTOCK_TRY(const std::optional<std::string> text, map.Text("rank"));
  if (!text) {
    return std::ranges::any_of(events, names_rank) ? RankSource::kGroup : RankSource::kAny;
  }
  std::vector<std::string_view> names;
  for (const auto& [name, source] : kSources) {
    names.push_back(name);
    if (*text != name) continue;
    if (source == RankSource::kGroup && !std::ranges::all_of(events, names_rank)) {
      return map.Refuse("rank", "an entry of events has no group (?<rank>...)");
    }
    return source;
  }
  return map.Refuse("rank", "{} is none of file, process, thread and group{}", Quote(*text),
                    Suggestion(*text, names));
}

Result<TraceRule> ReadRule(const YAML::Node& root) {
  PENSTOCK_TRY(const YamlMap map, YamlMap::Of(root, "the rule"));
  PENSTOCK_TRY_STATUS(map.RequireKnown({"events", "category", "wait", "step", "rank"}));
  TraceRule rule;
  const YAML::Node events = map.Node("events");
  if (!events.IsDefined() || !events.IsSequence() || events.size() == 0) {
    return map.Refuse("events", "a list is needed: '- match: PATTERN' and 'action: F'");
  }
  for (const YAML::Node& event : events) {
    PENSTOCK_TRY(EventRule read, ReadEventRule(event));
    rule.events.push_back(std::move(read));
  }
  PENSTOCK_TRY(const std::optional<std::string> category, map.Text("category"));
  rule.category = category.value_or("");
  PENSTOCK_TRY(rule.waits, ReadPatterns(map, "wait", {}));
  PENSTOCK_TRY(rule.steps, ReadPatterns(map, "step", {"step"}));
  PENSTOCK_TRY(rule.rank, ReadRankSource(map, rule.events));
  return rule;
}

NamePattern BuiltIn(std::string_view pattern, const std::vector<std::string_view>& groups) {
  auto parsed = NamePattern::Parse(pattern, groups);
  PENSTOCK_CHECK(parsed, "{}", pattern);
  return std::move(*parsed);
}

TraceRule BuiltInRule(std::string name,
                      const std::vector<std::pair<const char*, std::optional<Op>>>& events,
                      const std::vector<const char*>& steps = {}) {
  TraceRule rule;
  rule.name = std::move(name);
  for (const auto& [pattern, op] : events) {
    rule.events.push_back({BuiltIn(pattern, kEventGroups), op});
  }
  rule.waits.push_back(BuiltIn(kWaitBatch, {}));
  for (const char* step : steps) rule.steps.push_back(BuiltIn(step, {"step"}));
  rule.steps.push_back(BuiltIn(kProfilerStep, {"step"}));
  return rule;
}

}  // namespace

Result<TraceRule> LoadTraceRule(const std::string& path) {
  PENSTOCK_TRY(const YAML::Node root, LoadYaml(path));
  auto rule = ReadRule(root);
  if (!rule) return tl::unexpected(In(path, rule.error()));
  if (rule->steps.empty()) rule->steps.push_back(BuiltIn(kProfilerStep, {"step"}));
  rule->name = path;
  return rule;
}

const std::vector<TraceRule>& BuiltInTraceRules() {
  static const std::vector<TraceRule> kRules = {
      BuiltInRule("schedules of torch.distributed.pipelining with several stages",
                  {{R"(^PP:(?<action>\(?\d+[FBIW]\d.*)$)", std::nullopt}}),
      BuiltInRule("torch's ScheduleGPipe", {{R"(^Forward (?<microbatch>\d+)$)", Op::kForward},
                                            {R"(^Backward (?<microbatch>\d+)$)", Op::kBackward}}),
      BuiltInRule(
          "torch's stages with with_stack=True",
          {{R"(pipelining/stage\.py\(\d+\): forward_one_chunk$)", Op::kForward},
           {R"(pipelining/stage\.py\(\d+\): backward_one_chunk$)", Op::kBackward},
           {R"(pipelining/stage\.py\(\d+\): backward_weight_one_chunk$)", Op::kBackwardWeight}}),
      BuiltInRule("Megatron-LM with with_stack=True",
                  {{R"(pipeline_parallel/schedules\.py\(\d+\): forward_step$)", Op::kForward},
                   {R"(pipeline_parallel/schedules\.py\(\d+\): backward_step$)", Op::kBackward}},
                  {R"(pipeline_parallel/schedules\.py\(\d+\): forward_backward_pipelining_with)"}),
      BuiltInRule("Megatron-LM's timers",
                  {{"^forward-compute$", Op::kForward}, {"^backward-compute$", Op::kBackward}},
                  {"^forward-backward$"})};
  return kRules;
}

}  // namespace penstock
