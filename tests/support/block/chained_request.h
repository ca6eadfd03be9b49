// A request that is submitted again from within its `done`, as a queue does that was waiting for
// room.
#pragma once

#include "block/block_device.h"
#include "tests/support/wait.h"

namespace ringside::testing {

struct ChainedRequest : BlockRequest {
  explicit ChainedRequest(int times) : left(times) {
    done = [](BlockRequest& request) {
      auto& chain = static_cast<ChainedRequest&>(request);
      if (--chain.left == 0) return chain.all_done.Notify();
      chain.channel->Submit(chain);
    };
  }
  // On the channel's thread.
  void Begin(BlockChannel& on) {
    channel = &on;
    on.Submit(*this);
  }

  BlockChannel* channel = nullptr;
  int left;
  BoundedEvent all_done;
};

}  // namespace ringside::testing
