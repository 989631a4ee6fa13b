#include "cli/help/help.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <iterator>
#include <string_view>

#include "base/text/numbers.h"
#include "base/text/quote.h"
#include "base/text/wrap.h"

namespace penstock {
namespace {

// A command to copy, which --help and the manual pages show.
struct Example {
  std::string_view command;  // whose help shows it
  std::string_view line;     // what to type
  std::string_view meaning;
};

constexpr Example kExamples[] = {
    {"", "penstock simulate 1f1b zb-h1 zbv -p 8 -m 32", "Compare three schedules"},
    {"", "penstock show zbv -p 4 -m 8", "Draw one in the terminal"},
    {"", "penstock train examples/english.yaml", "Train a small model on this machine"},

    {"schedules", "penstock schedules", "List all schedules"},
    {"schedules", "penstock schedules 1f1b zbv -p 8 -m 32",
     "Their closed forms and simulated figures"},
    {"schedules", "penstock schedules --passes", "List the passes and prices"},

    {"schedule", "penstock schedule zbv -p 4 -m 8 -o zbv.csv", "Write a schedule as CSV"},
    {"schedule", "penstock schedule 1f1b --pass recompute --lower",
     "Print one with all communication"},
    {"schedule", "penstock schedule interleaved -v 2 --torch -o a.csv",
     "Write what torch.distributed.pipelining reads"},

    {"validate", "penstock validate mine.csv", "Check a schedule of your own"},
    {"validate", "penstock validate zbv -p 4 -m 8 --json", "Print the faults for programs"},

    {"simulate", "penstock simulate 1f1b zb-h1 zbv -p 8 -m 32", "Compare three schedules"},
    {"simulate", "penstock simulate 1f1b zbv --model llama-3-70b --device h100",
     "Price a model on real devices"},
    {"simulate", "penstock simulate 1f1b --sweep ranks=4,8 comm=0,0.5", "Vary two options"},
    {"simulate", "penstock simulate 1f1b --run --unit 5ms",
     "Execute the schedule on emulated devices, too"},

    {"show", "penstock show zbv -p 4 -m 8", "Draw a timeline"},
    {"show", "penstock show 1f1b --explain", "Say why ranks are idle"},

    {"diff", "penstock diff 1f1b zb-h1 -p 8 -m 32", "Say what one schedule does otherwise"},
    {"diff", "penstock diff 1f1b gpipe --moves 5", "List the actions that moved farthest"},

    {"report", "penstock report 1f1b zb-h1 -p 4 -m 8 -o a.html", "Write a page with timelines"},
    {"report", "penstock report zbv -o zbv.svg", "Write a picture"},

    {"plan", "penstock plan --model llama-3-8b --nodes 1x8 --global-batch 64",
     "Find how to train a model on 8 devices"},
    {"plan", "penstock plan -p 8 -m 32 --comm 0.2 --memory-limit 6 -o best.csv",
     "Find the best schedule for a memory limit"},
    {"calibrate", "penstock calibrate runs.csv", "Compare predictions with measured runs"},
    {"calibrate", "penstock calibrate runs.csv --fit auto -o machine.yaml",
     "Fit constants of the machine, which --machine then reads"},

    {"train", "penstock train examples/english.yaml", "Train a small model"},
    {"train", "penstock train my.yaml --schedule zbv --ranks 4 steps=200",
     "Override keys of the configuration"},
    {"train", "penstock train my.yaml --resume auto checkpoint.every=500",
     "Continue from the newest checkpoint"},

    {"watch", "penstock watch english", "Follow runs/english until it ends"},
    {"watch", "penstock watch english --page english.html", "Write a page, too"},
    {"watch", "penstock watch english --json", "Print the present figures for programs"},

    {"checkpoint", "penstock checkpoint english", "List the checkpoints of runs/english"},
    {"checkpoint", "penstock checkpoint english --verify", "Read them and verify all checksums"},
    {"checkpoint", "penstock checkpoint english --merge model.safetensors",
     "Write the newest as one file"},

    {"generate", "penstock generate english --prompt \"The \"", "Continue a text"},
    {"generate", "penstock generate english --temperature 0", "Take the likeliest tokens"},

    {"eval", "penstock eval english", "The held-out loss of runs/english"},
    {"eval", "penstock eval MODEL-FOLDER --data text.txt", "The loss of a model from elsewhere"},

    {"export", "penstock export english -o exported", "Write a folder that transformers reads"},

    {"check-device", "penstock check-device cuda", "What to run first on a new device"},

    {"profile", "penstock profile my.yaml -o machine.yaml", "Measure the model's layers here"},
    {"compile", "penstock compile my.yaml -o stages", "Compile the stages ahead of a run"},

    {"graph", "penstock graph my.yaml --stage 1 --graph forward", "Print the forward of a stage"},
    {"graph", "penstock graph my.yaml --timing", "How long each pass takes"},

    {"tokenize", "penstock tokenize a.txt --tokenizer tokenizer.json -o data",
     "Write a text as tokens"},
    {"tokenize", "penstock tokenize *.jsonl --tokenizer MODEL-FOLDER -o data",
     "Each line of the files is a document"},

    {"launch", "penstock launch --restarts 3 -- penstock train my.yaml",
     "Start a run again if it fails"},
    {"launch", "penstock launch -- mpirun -n 4 penstock train my.yaml ranks=4",
     "A run on several processes"},

    {"completion", "source <(penstock completion bash)", "Complete words in this shell"},

    {"man", "penstock man simulate | man -l -", "Read a page"},
    {"man", "penstock man --directory pages", "Write all pages"},
};

// Returns the examples of one command, or of the program for an empty name.
std::vector<Example> ExamplesOf(std::string_view command) {
  std::vector<Example> examples;
  std::ranges::copy_if(kExamples, std::back_inserter(examples),
                       [&](const Example& each) { return each.command == command; });
  return examples;
}

// Options whose value may be empty.
constexpr std::array<std::string_view, 2> kMayBeEmpty = {"prompt", "document-separator"};

bool IsCount(std::string_view text) {
  std::uint64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && stop == end;
}

// The types that CLI11 names as C++ does, none of which is negative; others check their values
// themselves, such as the least whole number of an option of type N.
std::string NeededValue(std::string_view type, const std::string& text) {
  if ((type == "UINT" || type == "INT") && !IsCount(text)) return "a whole number of at least 0";
  const std::string_view digits = std::string_view(text).substr(text.starts_with('-') ? 1 : 0);
  const bool is_whole = !digits.empty() && digits.find_first_not_of("0123456789") == digits.npos;
  if (type == "N" && !is_whole) return "a whole number";
  if (type == "FLOAT" && !ParseNumber(text)) return "a finite number";
  return "";
}

// Refuses values that CLI11 would read as something else: numbers that are not whole or not finite
// ("1e20", "nan"), or negative (-1 as 2^64 - 1), and empty values of options.
void CheckOptionValues(CLI::App& app) {
  for (CLI::Option* const option : app.get_options()) {
    if (option->get_items_expected_max() == 0) continue;
    const std::string name = option->get_single_name();
    const bool may_be_empty =
        option->get_positional() || std::ranges::find(kMayBeEmpty, name) != kMayBeEmpty.end();
    const std::string full_type = option->get_type_name();
    const std::string type = full_type.substr(0, full_type.find(':'));
    option->check([may_be_empty, type](const std::string& text) -> std::string {
      if (text.empty()) return may_be_empty ? "" : "needs a value that is not empty";
      const std::string needed = NeededValue(type, text);
      return needed.empty() ? "" : fmt::format("{} is not {}", Quote(text), needed);
    });
  }
}

constexpr std::size_t kTextColumn = 30;  // where descriptions start
constexpr std::size_t kCommandColumn = 16;
constexpr std::size_t kHanging = 4;  // of the further lines of a usage

// The columns of the terminal, within what is comfortable to read; 80 elsewhere.
std::size_t LineWidth() {
  constexpr std::size_t kDefault = 80, kLeast = 64, kMost = 100;
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return kDefault;
  return std::clamp<std::size_t>(size.ws_col, kLeast, kMost);
}

// Each line after the first starts at column `indent`.
std::string WrapLines(std::string_view text, std::size_t indent) {
  return Wrap(text, LineWidth(), indent);
}

// A name and its meaning, in two columns.
std::string ColumnEntry(const std::string& name, std::string_view text, std::size_t column) {
  std::string entry = "  " + name;
  const bool fits = entry.size() + 2 <= column;
  entry += fits ? std::string(column - entry.size(), ' ') : '\n' + std::string(column, ' ');
  return entry + WrapLines(text, column) + '\n';
}

std::string NameOf(const CLI::Option& option) {
  if (option.get_positional()) {
    const bool many = option.get_expected_max() >= CLI::detail::expected_max_vector_size;
    return option.get_name(true) + (many ? "..." : "");
  }
  std::vector<std::string> names;
  for (const std::string& name : option.get_snames()) names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) names.push_back("--" + name);
  const std::string value = ValueName(option);
  return fmt::format("{}{}{}", fmt::join(names, ", "), value.empty() ? "" : " ", value);
}

HelpGroup::Entry EntryOf(const CLI::Option& option) {
  std::string text = option.get_description();
  if (!option.get_default_str().empty()) text += " (default " + option.get_default_str() + ")";
  if (option.get_required() && !option.get_positional()) text += " (required)";
  return {NameOf(option), std::move(text)};
}

void AddGroup(const CLI::App& app, const std::string& title,
              const std::function<bool(const CLI::Option&)>& belongs,
              std::vector<HelpGroup>& groups) {
  HelpGroup group{title, {}};
  for (const CLI::Option* option : app.get_options()) {
    if (belongs(*option)) group.entries.push_back(EntryOf(*option));
  }
  if (!group.entries.empty()) groups.push_back(std::move(group));
}

// The summary and the usage.
std::string HelpStart(const Command& command, const CLI::App& app) {
  return WrapLines(command.Summary(), 0) + "\n\n" +
         WrapLines("Usage: " + UsageOf(command, app), kHanging) + '\n';
}

// Returns what an option is, without how it works.
std::string_view FirstPart(std::string_view text) {
  std::size_t end = text.size();
  for (const std::string_view mark : {". ", "; ", ": ", " ("}) end = std::min(end, text.find(mark));
  return text.substr(0, end);
}

// Each line, and below it what it does.
std::string ExamplesText(const HelpGroup& group) {
  std::string text = group.entries.empty() ? "" : fmt::format("\n{}:\n", group.title);
  for (const auto& [line, meaning] : group.entries) {
    text += fmt::format("  {}\n      {}\n", line, meaning);
  }
  return text;
}

}  // namespace

std::unique_ptr<CLI::App> AppOf(Command& command) {
  auto app = std::make_unique<CLI::App>(command.Summary(), command.Name());
  command.Define(*app);
  CheckOptionValues(*app);
  // Added last, to the group of the last options. A command without a help flag forwards --help.
  if (app->get_help_ptr() != nullptr) {
    app->add_flag_callback(
        "-q,--quiet", [] { static_cast<void>(std::freopen("/dev/null", "w", stdout)); },
        "Print nothing but errors: only files and the exit code remain");
    app->set_help_flag("-h,--help", "Print this help; -h prints it in short");
  }
  return app;
}

// CLI11 appends its checks to the type: "INT:INT in [1 - 9]".
std::string ValueName(const CLI::Option& option) {
  if (option.get_items_expected_max() == 0) return "";
  const std::string type = option.get_type_name();
  const std::string name = type.substr(0, type.find(':'));
  if (name == "INT" || name == "UINT") return "N";
  if (name == "FLOAT") return "X";
  return name.empty() || name == "TEXT" ? "VALUE" : name;
}

std::string HelpEntry(const std::string& name, std::string_view text) {
  return ColumnEntry(name, text, kTextColumn);
}

std::string AboutProgram() {
  return "Penstock trains models in pipeline stages. Schedules are plain data: it generates, "
         "validates, simulates, draws and executes them.";
}

std::string ProgramExitCodes() {
  return "0 success; 1 a run failed, validate found a fault, or checkpoint found damage; 2 bad "
         "usage or input";
}

std::vector<HelpGroup> CommandGroups(const std::vector<std::unique_ptr<Command>>& commands) {
  std::vector<HelpGroup> groups = {{"Training", {}}, {"Schedules", {}}, {"Help", {}}};
  HelpGroup& help = groups.back();
  help.entries = {{"help", "Print this help, or a command's: penstock help simulate"},
                  {"version", "Print the version"}};
  constexpr std::string_view kOfSchedules[] = {"schedules", "schedule", "validate",
                                               "simulate",  "plan",     "show",
                                               "diff",      "report",   "calibrate"};
  for (const auto& command : commands) {
    const std::string name = command->Name();
    const bool of_help = name == "completion" || name == "man";
    const bool of_schedules = std::ranges::find(kOfSchedules, name) != std::end(kOfSchedules);
    std::vector<HelpGroup::Entry>& entries = groups[of_help ? 2 : of_schedules ? 1 : 0].entries;
    // What most people look for comes first.
    entries.insert(name == "train" ? entries.begin() : entries.end(), {name, command->Summary()});
  }
  return groups;
}

HelpGroup ExamplesGroup(std::string_view command) {
  HelpGroup group{"Examples", {}};
  for (const Example& example : ExamplesOf(command)) {
    group.entries.push_back({std::string(example.line), std::string(example.meaning)});
  }
  return group;
}

std::string UsageOf(const Command& command, const CLI::App& app) {
  std::string usage = "penstock " + command.Name();
  for (const CLI::Option* option : app.get_options()) {
    if (!option->get_positional()) continue;
    usage += fmt::format(fmt::runtime(option->get_required() ? " {}" : " [{}]"), NameOf(*option));
  }
  const std::string operands = command.Operands();
  return fmt::format("{} [OPTION...]{}{}", usage, operands.empty() ? "" : " ", operands);
}

std::vector<HelpGroup> OptionGroups(const CLI::App& app) {
  std::vector<HelpGroup> groups;
  AddGroup(
      app, "Arguments", [](const CLI::Option& option) { return option.get_positional(); }, groups);
  for (const std::string& name : app.get_groups()) {
    AddGroup(
        app, name,
        [&](const CLI::Option& option) {
          return option.nonpositional() && option.get_group() == name;
        },
        groups);
  }
  return groups;
}

std::vector<HelpGroup> GroupsOf(const Command& command, const CLI::App& app) {
  std::vector<HelpGroup> groups = OptionGroups(app);
  for (HelpGroup& more : command.MoreHelp()) groups.push_back(std::move(more));
  return groups;
}

std::string HelpOfProgram(const std::vector<std::unique_ptr<Command>>& commands) {
  std::string help = WrapLines(AboutProgram(), 0) + "\n\nUsage: penstock COMMAND [ARGUMENT...]\n";
  for (const HelpGroup& group : CommandGroups(commands)) {
    help += fmt::format("\n{}:\n", group.title);
    for (const auto& [name, text] : group.entries) help += ColumnEntry(name, text, kCommandColumn);
  }
  HelpGroup examples = ExamplesGroup("");
  std::erase_if(examples.entries, [&](const auto& example) {  // 'train' is of the engine alone
    return std::ranges::none_of(commands, [&](const auto& each) {
      return example.name.starts_with("penstock " + each->Name() + ' ');
    });
  });
  help += ExamplesText(examples);
  help += "\n'penstock COMMAND --help' describes its arguments and options.\n\n";
  return help + WrapLines("Exit codes: " + ProgramExitCodes() + ".", 0) + '\n';
}

std::string ShortHelpOfCommand(const Command& command, const CLI::App& app) {
  std::string help = HelpStart(command, app);
  for (const HelpGroup& group : OptionGroups(app)) {
    help += '\n' + WrapLines(group.title + ":", 0) + '\n';
    for (const auto& [name, text] : group.entries) help += HelpEntry(name, FirstPart(text));
  }
  return help + ExamplesText(ExamplesGroup(command.Name())) +
         fmt::format("\n'penstock {} --help' says more.\n", command.Name());
}

std::string HelpOfCommand(const Command& command, const CLI::App& app) {
  std::string help = HelpStart(command, app);
  for (const HelpGroup& group : GroupsOf(command, app)) {
    help += '\n' + WrapLines(group.title + ":", 0) + '\n';
    for (const auto& [name, text] : group.entries) help += HelpEntry(name, text);
  }
  help += ExamplesText(ExamplesGroup(command.Name()));
  if (!app.get_footer().empty()) help += '\n' + WrapLines(app.get_footer(), 0) + '\n';
  return help + '\n' + WrapLines("Exit codes: " + command.ExitCodes() + ".", 0) + '\n';
}

}  // namespace penstock
