// A block device with one channel, and requests with memory of their own.
#pragma once

#include <atomic>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "block/block_device.h"
#include "tests/support/count_of.h"
#include "tests/support/descriptors.h"
#include "tests/support/poll/run_on.h"
#include "tests/support/wait.h"

namespace ringside::testing {

// Memory that a test has chosen.
struct Pieces {
  std::vector<Segment> list;
};

// A request over pieces of aligned memory; `skew` bytes into it, to miss every alignment.
class TestRequest : public BlockRequest {
 public:
  TestRequest(BlockOp what, uint64_t where, std::vector<uint32_t> lengths = {}, size_t skew = 0)
      : BlockRequest{.op = what, .offset = where} {
    size_t total = skew;
    for (const uint32_t length : lengths) total += length;
    memory_.reset(static_cast<std::byte*>(std::aligned_alloc(4096, (total + 8191) & ~4095ULL)));
    std::byte* at = memory_.get() + skew;
    for (const uint32_t each : lengths) {
      list_.push_back({.host = at, .length = each, .region = 0});
      at += each;
    }
    Prepare();
  }
  TestRequest(BlockOp what, uint64_t where, Pieces pieces)
      : BlockRequest{.op = what, .offset = where}, list_(std::move(pieces.list)) {
    Prepare();
  }
  TestRequest(const TestRequest&) = delete;

  TestRequest& Set(const std::string& text) {
    size_t at = 0;
    for (const Segment& piece : list_) {
      text.copy(reinterpret_cast<char*>(piece.host), piece.length, at);
      at += piece.length;
    }
    return *this;
  }
  std::string Text() const {
    std::string text;
    for (const Segment& piece : list_) {
      text.append(reinterpret_cast<const char*>(piece.host), piece.length);
    }
    return text;
  }

 private:
  friend class TestDisk;
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  void Prepare() {
    segments = list_;
    result = 1;
    done = [](BlockRequest& request) { static_cast<TestRequest&>(request).Finished(); };
  }
  void Finished() {
    if (in_submit_ != nullptr && *in_submit_) std::abort();  // done from within Submit
    if (in_cancel_ != nullptr && *in_cancel_) std::abort();
    if (left_->fetch_sub(1) == 1) all_done_->Notify();
  }

  std::unique_ptr<std::byte, Free> memory_;
  std::vector<Segment> list_;
  const bool* in_submit_ = nullptr;
  const bool* in_cancel_ = nullptr;
  std::atomic<int>* left_ = nullptr;
  BoundedEvent* all_done_ = nullptr;
};

class TestDisk {
 public:
  TestDisk(absl::StatusOr<std::unique_ptr<BlockDevice>> device, IoThread::Waiter waiter,
           const PollConfig& poll = {}) {
    auto io_thread = IoThread::Start("disk-test", waiter, {.poll = poll});
    if (!device.ok() || !io_thread.ok()) {
      status_ = device.ok() ? io_thread.status() : device.status();
      return;
    }
    device_ = *std::move(device);
    io_thread_ = *std::move(io_thread);
    RunOn(*io_thread_, [&] {
      auto channel = device_->Open(*io_thread_);
      status_ = channel.status();
      if (channel.ok()) channel_ = *std::move(channel);
    });
  }
  ~TestDisk() {
    if (io_thread_ != nullptr) RunOn(*io_thread_, [&] { channel_.reset(); });
  }

  const absl::Status& status() const { return status_; }
  BlockDevice& device() { return *device_; }
  IoThread& io_thread() { return *io_thread_; }
  BlockChannel& channel() { return *channel_; }  // on that thread
  uint64_t Count(std::string_view name) const {
    return CountOf(device_->Statistics().counters, name);
  }

  // On its thread.
  void Submit(BlockRequest& request) { channel_->Submit(request); }
  // On its thread. No request ends within it.
  void Cancel() {
    in_cancel_ = true;
    channel_->Cancel();
    in_cancel_ = false;
  }
  // Submits all in one turn, and waits for all.
  // `cancel`: and says in the same turn that the machine is over.
  void Run(const std::vector<TestRequest*>& requests, bool cancel = false) {
    std::atomic<int> left(static_cast<int>(requests.size()));
    BoundedEvent all_done;
    TaskOf submit([&] {
      bool in_submit = true;
      for (TestRequest* request : requests) {
        request->left_ = &left;
        request->all_done_ = &all_done;
        request->in_cancel_ = &in_cancel_;
        request->in_submit_ = &in_submit;
        channel_->Submit(*request);
        request->in_submit_ = nullptr;
      }
      if (cancel) Cancel();
    });
    io_thread_->Post(submit);
    all_done.WaitOrAbort();
    LetTurn(*io_thread_, 1);
  }
  int Run(TestRequest& request) {
    Run(std::vector<TestRequest*>{&request});
    return request.result;
  }

 private:
  absl::Status status_;
  std::unique_ptr<BlockDevice> device_;
  std::unique_ptr<IoThread> io_thread_;
  std::unique_ptr<BlockChannel> channel_;
  bool in_cancel_ = false;
};

}  // namespace ringside::testing
