// The blocks of an overlay that somebody changes the slow way: requests that meet in one block come
// one after the other, in the order in which they came.
//
// Threads: under a lock of the owner's. Nothing is allocated: a request is its own entry.
#pragma once

#include "overlay/overlay_op.h"

namespace ringside {

class BusyBlocks {
 public:
  // False: it waits for others, and Leave of the last of them gives it back.
  bool Enter(OverlayOp& op) {
    op.blockers = 0;
    for (const OverlayOp* other = first_; other != nullptr; other = other->after) {
      if (Meet(*other, op)) ++op.blockers;
    }
    op.after = nullptr;
    op.before = last_;
    (last_ == nullptr ? first_ : last_->after) = &op;
    last_ = &op;
    return op.blockers == 0;
  }

  // One that has entered, whether its turn had come or not. Calls ready(op) for each whose turn has
  // come with that.
  template <typename Ready>
  void Leave(OverlayOp& op, Ready ready) {
    for (OverlayOp* other = op.after; other != nullptr; other = other->after) {
      if (Meet(op, *other) && --other->blockers == 0) ready(*other);
    }
    (op.before == nullptr ? first_ : op.before->after) = op.after;
    (op.after == nullptr ? last_ : op.after->before) = op.before;
    op.before = op.after = nullptr;
  }

  bool empty() const { return first_ == nullptr; }

 private:
  static bool Meet(const OverlayOp& a, const OverlayOp& b) {
    return a.first < b.end && b.first < a.end;
  }

  OverlayOp* first_ = nullptr;  // the oldest
  OverlayOp* last_ = nullptr;
};

}  // namespace ringside
