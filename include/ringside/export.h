// Marks the classes whose names the shared library shows; all others are hidden in it.
#pragma once

#define RINGSIDE_EXPORT __attribute__((visibility("default")))
