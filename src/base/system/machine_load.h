// Whether other programs keep this machine busy, so that measured times are longer than they need
// to be.
#pragma once

#include <string>

namespace penstock {

// Returns "the machine was busy before the run: load 5.2 on 2 cores" if more threads wanted to run
// than there are cores; otherwise an empty text.
std::string BusyText(double load, int cores);

// Returns BusyText for the last minute of this machine. Call it before the program's own work.
std::string BusyMachine();

}  // namespace penstock
