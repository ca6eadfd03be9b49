// Requests of an overlay in the order in which they came, of which any may be taken out. They are
// linked by two of their members.
//
// Threads and ownership: the user's.
#pragma once

#include <cstddef>

#include "overlay/overlay_op.h"

namespace ringside {

template <OverlayOp* OverlayOp::* Before, OverlayOp* OverlayOp::* After>
class OpList {
 public:
  bool empty() const { return first_ == nullptr; }
  size_t size() const { return size_; }
  OverlayOp* front() const { return first_; }
  void Push(OverlayOp& op) {
    op.*After = nullptr;
    op.*Before = last_;
    (last_ == nullptr ? first_ : last_->*After) = &op;
    last_ = &op;
    ++size_;
  }
  OverlayOp* Pop() {
    OverlayOp* const op = first_;
    if (op != nullptr) Remove(*op);
    return op;
  }
  // One that is in the list.
  void Remove(OverlayOp& op) {
    OverlayOp* const before = op.*Before;
    OverlayOp* const after = op.*After;
    (before == nullptr ? first_ : before->*After) = after;
    (after == nullptr ? last_ : after->*Before) = before;
    op.*Before = op.*After = nullptr;
    --size_;
  }

 private:
  OverlayOp* first_ = nullptr;
  OverlayOp* last_ = nullptr;
  size_t size_ = 0;
};

// Of those that are let in among others; and of whatever else they wait for.
using BusyList = OpList<&OverlayOp::before, &OverlayOp::after>;
using WaitList = OpList<&OverlayOp::previous, &OverlayOp::next>;

}  // namespace ringside
