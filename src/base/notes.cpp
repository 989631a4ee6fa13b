#include "base/notes.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/mutex.h"

namespace penstock {
namespace {

struct Notes {
  Mutex mutex;
  std::vector<std::string> lines PENSTOCK_GUARDED_BY(mutex);
};

Notes& AllNotes() {
  static Notes notes;
  return notes;
}

}  // namespace

void AddNote(std::string line) {
  Notes& notes = AllNotes();
  const MutexLock lock(notes.mutex);
  if (std::ranges::find(notes.lines, line) == notes.lines.end()) {
    notes.lines.push_back(std::move(line));
  }
}

void NoteFormerName(std::string_view former, std::string_view current) {
  AddNote(fmt::format("'{}' is called '{}' now; the former name works in this release only", former,
                      current));
}

std::vector<std::string> TakeNotes() {
  Notes& notes = AllNotes();
  const MutexLock lock(notes.mutex);
  return std::exchange(notes.lines, {});
}

}  // namespace penstock
