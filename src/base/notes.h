// Notes for the user that are no errors: the former name of an option was given.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace penstock {

// Adds a line to the notes of the process, unless it is among them. Any thread may call it.
void AddNote(std::string line);
// Adds the note that a former name of an option or a field was given.
void NoteFormerName(std::string_view former, std::string_view current);

// Returns the notes since the last call. The program and the Python package call it to show them.
std::vector<std::string> TakeNotes();

}  // namespace penstock
