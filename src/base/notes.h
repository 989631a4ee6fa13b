// Notes for the user that are no errors: the former name of an option was given.
#pragma once

#include <string>
#include <vector>

namespace penstock {

// Adds a line to the notes of the process, unless it is among them. Any thread may call it.
void AddNote(std::string line);

// Returns the notes since the last call. The program and the Python package call it to show them.
std::vector<std::string> TakeNotes();

}  // namespace penstock
