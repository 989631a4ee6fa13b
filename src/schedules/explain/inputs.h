// What each action of a timeline reads, and when each input became available.
#pragma once

#include <span>
#include <vector>

#include "explain/action_at.h"
#include "schedule/deps.h"
#include "schedule/schedule.h"
#include "schedule/sent_message.h"
#include "schedule/timeline.h"
#include "schedule/vocabulary.h"

namespace penstock {

// What an action reads.
struct ActionInput {
  ActionAt from;        // the action that computes or moves it
  double computed = 0;  // when that action ended
  double ready = 0;     // when the reader's rank had it; at most the start of the reader
  bool sent = false;    // whether ranks exchange it
};

class ActionInputs {
 public:
  // Results of other ranks are ready when their messages arrive. Without messages, as in a measured
  // run, they are ready when the action that reads them starts. The schedule and the timeline must
  // outlive this object. Requires: one span per action.
  ActionInputs(const Schedule& schedule, const Timeline& timeline,
               std::span<const SentMessage> messages);

  // Returns what the action reads: values of stages and of all ranks (deps.h, vocabulary.h), its
  // RELOAD, its UNSHARD, waits just before it, and for a STEP the last gradients by then. A
  // WAIT_SEND waits for its message and for what the other rank runs before the RECV.
  std::vector<ActionInput> Of(const ActionAt& at) const;
  // Returns the one of them that was ready last. Its action is unknown if there is none.
  ActionInput LastOf(const ActionAt& at) const;

  const Action& ActionOf(const ActionAt& at) const;
  const Span& TimeOf(const ActionAt& at) const;

 private:
  void Note(const ActionAt& at, const Part& part);
  void NoteUnshards(int rank);
  void AddValue(const Value& value, const ActionAt& reader, std::vector<ActionInput>& inputs) const;
  void AddInputsOf(const Part& part, const ActionAt& at, std::vector<ActionInput>& inputs) const;
  // The action that the message of a value leaves after.
  ActionAt SourceOf(const Value& value) const;
  void AddWaits(const ActionAt& at, std::vector<ActionInput>& inputs) const;
  void AddReduction(const ActionAt& wait, std::vector<ActionInput>& inputs) const;
  void AddMessage(const ActionAt& wait, std::vector<ActionInput>& inputs) const;
  void AddGradients(const ActionAt& step, std::vector<ActionInput>& inputs) const;
  // An input without a message.
  ActionInput Local(const ActionAt& from, const ActionAt& reader) const;
  std::size_t Key(ValueKind kind, int stage, int index) const;

  const Schedule& schedule_;
  const Timeline& timeline_;
  const ChainShape shape_;
  const VocabularyEnds ends_;
  const std::size_t indices_;
  std::vector<int> computed_at_;             // by (stage, index, kind): position, or -1
  std::vector<double> arrived_;              // the same: on another rank, or -1
  std::vector<int> reloaded_at_;             // by (stage, index): position, or -1
  std::vector<ActionAt> shared_;             // by (SharedValue, index): the last rank's share
  std::vector<std::vector<int>> unsharded_;  // by rank and action: position, or -1; or empty
  // What keeps the two ranks of a message busy just before its SEND and its RECV: positions of
  // actions that occupy the rank, or waits; -1 if there is none.
  struct MessageEnds {
    int sent_after = -1, posted_after = -1;
  };
  std::vector<MessageEnds> message_ends_;  // by (stage, index, kind); empty without WAIT_SEND
  std::vector<ActionAt> gradients_;        // actions that add or reduce gradients, by their end
};

}  // namespace penstock
