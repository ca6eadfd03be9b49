// `ringside doctor`: what this host can and cannot do for Ringside, in plain words, with what to do
// about each lack.
#pragma once

namespace ringside {

// Prints to stdout. Exit code 0 if Linux guests will run, else 2.
int DoctorCommand();

}  // namespace ringside
