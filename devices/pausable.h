// What comes to rest while a machine is paused.
#pragma once

#include "poll/mailbox.h"

namespace ringside {

class Pausable {
 public:
  virtual ~Pausable() = default;

  // Brings it to rest: it changes nothing that the guest sees any more, and what is in flight is
  // waited for, however long it takes. Then runs `done`, which stays until it has run, on any
  // thread, perhaps before this returns, perhaps with locks of its own held. Pause and Resume are
  // called in turns, from any thread, one call at a time, and return soon.
  virtual void Pause(Task& done) = 0;
  // Ends the rest. It may come first: `done` has run when this returns.
  virtual void Resume() = 0;
};

}  // namespace ringside
