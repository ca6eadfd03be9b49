// Who is told how far work on an image has come.
//
// Threads: that of the work.
#pragma once

#include <cstdint>

namespace ringside {

class Progress {
 public:
  virtual ~Progress() = default;
  // A step begins: `what` it does, as "copying", and over how many bytes of the image it goes.
  virtual void Begin(const char* /*what*/, uint64_t /*bytes*/) {}
  // It has come so far.
  virtual void At(uint64_t /*bytes*/) {}
};

}  // namespace ringside
