// Marks the classes whose names the shared library shows, and what is hidden in them all the same.
// All others are hidden in it.
#pragma once

#define RINGSIDE_EXPORT __attribute__((visibility("default")))
#define RINGSIDE_HIDDEN __attribute__((visibility("hidden")))
