// penstock tokenize: writes text as tokens, for training.
#include "tokens/files/tokenize.h"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/log.h"
#include "base/units.h"
#include "cli/command/command.h"
#include "cli/help/offered_values.h"
#include "cli/output/print_json.h"

namespace penstock {
namespace {

std::atomic<int> tokenize_signal{0};  // the one that stopped the command
std::atomic<bool> tokenize_stopped{false};

// Lets the first signal of each kind end the command in order: it removes its temporary folder.
void CatchSignals() {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    const auto before = std::signal(signal, [](int number) {
      tokenize_signal = number;
      tokenize_stopped = true;
      std::signal(number, SIG_DFL);
    });
    if (before == SIG_IGN) std::signal(signal, SIG_IGN);  // as nohup sets it
  }
}

class TokenizeProgress {
 public:
  // The last report ends the line on a terminal.
  void Report(std::uint64_t bytes, std::uint64_t tokens, bool last = false) {
    const Clock::time_point now = Clock::now();
    if (last && !terminal_) return;
    if (!last && now - reported_ < (terminal_ ? kShort : kLong)) return;
    reported_ = now;
    const double seconds = std::chrono::duration<double>(now - begin_).count();
    const std::string line = fmt::format(
        "{} of text, {:.1f} million tokens, {}/s", FormatBytes(static_cast<std::int64_t>(bytes)),
        static_cast<double>(tokens) * 1e-6,
        FormatBytes(static_cast<std::int64_t>(static_cast<double>(bytes) / seconds)));
    if (terminal_) {
      fmt::print(stderr, "\r{}\033[K{}", line, last ? "\n" : "");
    } else {
      fmt::print(stderr, "{}\n", line);
    }
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds kShort{200};
  static constexpr std::chrono::milliseconds kLong{5000};

  const bool terminal_ = isatty(STDERR_FILENO) != 0;
  const Clock::time_point begin_ = Clock::now();
  Clock::time_point reported_ = begin_;
};

class TokenizeCommand final : public Command {
 public:
  std::string Name() const override { return "tokenize"; }
  std::string Summary() const override { return "Write text as tokens, for training"; }

  void Define(CLI::App& app) override {
    app.add_option("FILES", files_,
                   "Text files, each a document, or JSONL files (*.jsonl), each line a document")
        ->required();
    Offer(
        app.add_option("--tokenizer", tokenizer_,
                       "A tokenizer.json, a tokenizer.model, a folder with one of them, or 'bytes'")
            ->required()
            ->type_name("PATH"),
        [] {
          return OfferedValues{{{"bytes", "one token per byte"}}, OfferedPaths::kFiles};
        });
    app.add_option("-o,--output", folder_, "Folder to write, which must not exist")
        ->required()
        ->type_name("DIR");
    app.add_option("--shard-tokens", options_.shard_tokens, "Tokens per file")
        ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{1} << 40U))
        ->capture_default_str();
    app.add_option("--document-separator", options_.documents.separator,
                   "A line that separates the documents of a text file")
        ->type_name("LINE");
    app.add_option("--jsonl-key", options_.documents.jsonl_key,
                   "The member of a JSONL line that has the text")
        ->type_name("KEY")
        ->capture_default_str();
    app.add_option("--threads", threads_, "Threads (default: all cores)")
        ->check(CLI::Range(1, 1024));
    app.add_flag("--json", json_, "Print one JSON object");
  }

  std::string ExitCodes() const override {
    return "0 success; 1 a file cannot be written; 2 bad usage or input; 129, 130 or 143 stopped "
           "by "
           "SIGHUP, SIGINT or SIGTERM: nothing is written";
  }

  Result<int> Run() override {
    CatchSignals();
    options_.stop = &tokenize_stopped;
    auto code = Tokenize();
    const int signal = tokenize_signal;
    if (code || signal == 0) return code;
    Log(stderr, "penstock: {}\n", code.error().line());
    return kExitSignal + signal;
  }

 private:
  Result<int> Tokenize() {
    if (threads_ > 0) {
      options_.threads = threads_;
    } else {
      options_.threads = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
    }
    PENSTOCK_TRY(const OpenedTokenizer tokenizer, OpenTokenizer(tokenizer_));
    if (!tokenizer.tokenizer->end_of_text()) {
      fmt::print(stderr,
                 "penstock: {} names no end of text: documents follow each other without one\n",
                 tokenizer_);
    }
    TokenizeProgress progress;
    std::uint64_t bytes = 0;
    options_.progress = [&](std::uint64_t done, std::uint64_t tokens) {
      bytes = done;
      progress.Report(done, tokens);
    };
    PENSTOCK_TRY(const TokenIndex index, TokenizeFiles(files_, tokenizer, folder_, options_));
    progress.Report(bytes, index.tokens, true);
    if (json_) {
      PrintObject({{"tokens", index.tokens},
                   {"documents", index.documents},
                   {"bytes", bytes},
                   {"vocabulary", index.vocabulary},
                   {"shards", index.shards.size()},
                   {"path", folder_}});
    } else {
      fmt::print("wrote {}: {} tokens of {} documents in {} files, vocabulary {}\n", folder_,
                 index.tokens, index.documents, index.shards.size(), index.vocabulary);
    }
    return kExitOk;
  }

  std::vector<std::string> files_;
  std::string tokenizer_;
  std::string folder_;
  TokenizeOptions options_;
  int threads_ = 0;  // 0: all cores
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> MakeTokenizeCommand() { return std::make_unique<TokenizeCommand>(); }

}  // namespace penstock
