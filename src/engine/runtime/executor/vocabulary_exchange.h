// VocabularyExchange: the messages of a sharded vocabulary (vocabulary_shard.h) on one rank.
//
// Which entries of the program wait for which messages, and send which, is known when it is
// created. Threads: its rank's thread; Doing() of the executor may call waits_for() on any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "runtime/program.h"
#include "runtime/transport.h"
#include "runtime/vocabulary_shard.h"

namespace penstock {

class VocabularyExchange {
 public:
  // All but the program must outlive the exchange.
  VocabularyExchange(const Schedule& schedule, int rank, const Program& program,
                     const MessageMap& messages, VocabularyShard& shard, Transport& transport);

  // Waits for the messages that the entry of the program needs. Returns false if the transport was
  // aborted.
  [[nodiscard]] bool Receive(std::size_t entry, std::int64_t round);
  // Whether the shard has the entry's input, which Input returns, and takes its output.
  bool HasInput(std::size_t entry) const { return entries_[entry].has_input; }
  bool TakesOutput(std::size_t entry) const { return entries_[entry].takes_output; }
  Message Input(std::size_t entry);
  // Takes the entry's output and sends it on. Never waits.
  void TakeOutput(std::size_t entry, std::int64_t round, Message output);
  // Sends what a pass has computed. Never waits.
  void Send(std::size_t entry, std::int64_t round);

  // Returns the slot of the message that the rank waits for; -1 for none.
  int waits_for() const { return waits_for_.load(std::memory_order_relaxed); }

 private:
  struct Envelope {
    VocabularyValue value;
    int other;  // the sender or the receiver
    int slot;
  };
  struct Entry {
    Part part;
    bool has_input = false, takes_output = false;
    std::vector<Envelope> in, out;
  };
  void BindInputs(const Schedule& schedule, const MessageMap& messages, Entry& entry,
                  std::vector<bool>& has_softmax);
  void BindOutputs(const Schedule& schedule, const MessageMap& messages, Entry& entry);

  int rank_;
  VocabularyShard& shard_;
  Transport& transport_;
  std::vector<Entry> entries_;  // by entry of the program
  std::atomic<int> waits_for_{-1};
};

}  // namespace penstock
