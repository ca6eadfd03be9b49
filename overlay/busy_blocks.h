// The blocks of an overlay that somebody changes the slow way: requests that meet in one block come
// one after the other, in the order in which they came.
//
// Each is compared with all others, so only so many are let in at a time. Those outside hold
// nothing that those inside may wait for.
//
// Threads: under a lock of the owner's. Nothing is allocated: a request is its own entry.
#pragma once

#include <cstddef>

#include "overlay/op_list.h"

namespace ringside {

class BusyBlocks {
 public:
  static constexpr size_t kMostInside = 256;

  // False: it waits for others, and Leave of one of them gives it back.
  bool Enter(OverlayOp& op) {
    op.blockers = 0;
    op.is_outside = inside_.size() == kMostInside || !outside_.empty();
    if (op.is_outside) {
      op.blockers = 1;
      outside_.Push(op);
      return false;
    }
    return LetIn(op);
  }

  // One that has entered, whether its turn had come or not. Calls ready(op) for each whose turn has
  // come with that.
  template <typename Ready>
  void Leave(OverlayOp& op, Ready ready) {
    if (op.is_outside) return outside_.Remove(op);
    for (OverlayOp* other = op.after; other != nullptr; other = other->after) {
      if (Meet(op, *other) && --other->blockers == 0) ready(*other);
    }
    inside_.Remove(op);
    OverlayOp* const next = outside_.Pop();
    if (next != nullptr && LetIn(*next)) ready(*next);
  }

  bool empty() const { return inside_.empty(); }

 private:
  bool LetIn(OverlayOp& op) {
    op.is_outside = false;
    op.blockers = 0;
    for (const OverlayOp* other = inside_.front(); other != nullptr; other = other->after) {
      if (Meet(*other, op)) ++op.blockers;
    }
    inside_.Push(op);
    return op.blockers == 0;
  }
  static bool Meet(const OverlayOp& a, const OverlayOp& b) {
    return a.first < b.end && b.first < a.end;
  }

  BusyList inside_;
  BusyList outside_;
};

}  // namespace ringside
