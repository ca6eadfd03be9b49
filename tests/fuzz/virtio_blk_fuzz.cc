// libFuzzer: any bytes as what a virtio-blk driver does. Most inputs are a driver that keeps the
// rules, whose requests are held against a model: each is answered once, with the right status, the
// right data and nothing else changed, in memory or on the disk. Now and then the ring is broken,
// overwritten or bent into itself, or its heads are used again too soon; the process must survive,
// every turn end, and the device say so once. Half of the queues are traced.
//
// The device runs on an I/O thread, in steps that this thread waits for.
#include <algorithm>
#include <cstdio>
#include <deque>
#include <map>
#include <string>

#include "devices/virtio_blk.h"
#include "tests/fuzz/virtio_blk_model.h"
#include "tests/fuzz/virtio_blk_trouble.h"
#include "tests/fuzz/virtio_blk_writer.h"
#include "tests/support/block/memory_disk.h"
#include "tests/support/devices/fake_driver.h"
#include "tests/support/devices/guest_memory.h"
#include "tests/support/poll/run_on.h"

namespace ringside::testing {
namespace {

constexpr uint64_t kRings = 0x1000;
constexpr uint64_t kFlushFeature = uint64_t{1} << 9;
constexpr uint64_t kConfigWceFeature = uint64_t{1} << 11;
constexpr uint64_t kDiscardFeature = uint64_t{1} << 13;
constexpr uint64_t kWriteZeroesFeature = uint64_t{1} << 14;

class CountingEvents final : public VirtioEvents {
 public:
  void ConfigChanged() override {}
  void NeedsReset(std::string_view) override { ++count; }
  std::atomic<int> count{0};
};

const GuestMemory& Memory() {
  static const std::unique_ptr<GuestMemory> memory = MakeMemory(kMemorySize);
  return *memory;
}

IoThread& Thread(Signalling signalling) {
  static const std::unique_ptr<IoThread> early = *IoThread::Start("early");
  static const std::unique_ptr<IoThread> batched =
      *IoThread::Start("batched", IoThread::Waiter::kEpoll, {.signalling = Signalling::kBatched});
  return signalling == Signalling::kEarly ? *early : *batched;
}

// Some turns of an I/O thread, for one hand-over.
class Turns final : public Task {
 public:
  Turns(IoThread& io_thread, int count) : io_thread_(io_thread), left_(count) {}
  void Wait() {
    io_thread_.Post(*this);
    Check(done_.WaitFor(absl::Seconds(10)), "turns of an I/O thread end");
  }

 private:
  void Run() override {
    if (--left_ > 0) {
      io_thread_.Post(*this);
    } else {
      done_.Notify();
    }
  }
  IoThread& io_thread_;
  int left_;
  BoundedEvent done_;
};

BlockInfo ReadInfo(Input& input) {
  BlockInfo info = {.size = kSectors * 512, .can_discard = true};
  if (input.Rarely()) info.logical_block = 4096;
  if (input.Rarely()) info.read_only = true;
  if (input.Rarely()) info.can_discard = false;
  if (input.Rarely()) info.write_back = false;
  return info;
}

class Run {
 public:
  Run(const uint8_t* data, size_t size)
      : input_(data, size),
        traced_(input_.Byte() % 2 != 0),
        io_thread_(Thread(input_.Byte() % 2 != 0 ? Signalling::kBatched : Signalling::kEarly)),
        disk_(ReadInfo(input_)),
        device_(disk_, Memory(), {&io_thread_}, {.serial = kSerial, .trace_latency = traced_}),
        model_(Memory(), disk_.info()),
        writer_(input_, Memory()) {}

  void Go() {
    Activate();
    bool alive = true;
    for (int round = 0; alive && (round == 0 || !input_.empty()) && round < 16; ++round) {
      if (input_.Rarely()) {
        Reset();
        Activate();
      }
      if (input_.Rarely()) WriteCacheField();
      if (input_.Rarely()) ReadConfig();
      alive = Round();
    }
    disk_.FailWith(0);
    Reset();
    if (alive) {
      Check(Same(disk_.Content(0, kSectors * 512), model_.disk()),
            "the disk holds what was written");
      Check(disk_.records() == records_, "the disk was asked what the driver asked");
    }
  }

 private:
  struct Sent {
    Request request;
    Model::Outcome outcome;
  };
  // What comes of it nobody can say.
  enum class Wild { kNot, kScribble, kTwist, kReuse };

  void Activate() {
    const auto queue_size = static_cast<uint16_t>(1 << input_.Byte() % 9);
    table_entries_ = queue_size <= 64 ? 32 : 8;
    driver_.emplace(Memory(), FakeDriver::Options{.size = queue_size,
                                                  .address = kRings,
                                                  .event_idx = input_.Byte() % 2 != 0,
                                                  .table_entries = table_entries_});
    Check(driver_->end() <= kData, "rings and tables have room");
    line_.Connect(&call_);
    const QueueSetup setup = driver_->Setup(0, kick_, line_);
    features_ = (driver_->features() | kFlushFeature | kConfigWceFeature | kDiscardFeature |
                 kWriteZeroesFeature) &
                (device_.features() | kVirtioVersion1);
    events_.count = 0;
    write_back_ = disk_.info().write_back;
    device_.Activate(features_, std::span(&setup, 1), events_);
  }
  void Reset() {
    BoundedEvent done;
    TaskOf task([&] { done.Notify(); });
    device_.Reset(task);
    Settle();  // what is held completes on a queue that is stopped
    disk_.ReleaseAll();
    done.WaitOrAbort();
    Check(disk_.channels() == 1, "a device keeps its channel, and one only");
  }
  void WriteCacheField() {
    const auto value = static_cast<std::byte>(input_.Byte() % 2);
    device_.WriteConfig(32, std::span(&value, 1), features_);
    write_back_ = value != std::byte{0};
  }
  void ReadConfig() {
    Bytes bytes(input_.Byte());
    const uint64_t offset = input_.Rarely() ? input_.Value<uint64_t>() : input_.Byte();
    device_.ReadConfig(offset, bytes);
  }
  // What was published is taken, what can complete does, and is published: a turn each.
  void Settle() { Turns(io_thread_, 5).Wait(); }

  Wild Wildness() {
    switch (input_.Byte() % 32) {
      case 29:
        return Wild::kScribble;
      case 30:
        return Wild::kTwist;
      case 31:
        return Wild::kReuse;
      default:
        return Wild::kNot;
    }
  }

  // False if the ring is no more.
  bool Round() {
    writer_.Restart();
    const bool hold = input_.Byte() % 4 == 3;
    const bool fail = input_.Rarely();
    disk_.Hold(hold);
    disk_.FailWith(fail ? EIO : 0);
    for (int n = 1 + input_.Byte() % 8; n > 0 && writer_.HasRoom(); --n) Send();
    const bool interrupts = input_.Byte() % 2 == 0;
    interrupts ? driver_->EnableInterrupts() : driver_->DisableInterrupts();
    call_.Clear();
    Trouble trouble(input_, Memory(), *driver_);
    const bool broken = input_.Rarely() && trouble.Break();
    const Wild wild = Wildness();
    if (wild == Wild::kScribble) trouble.Scribble();
    if (wild == Wild::kTwist) trouble.Twist();
    model_.LookAgain();
    driver_->Publish();
    if (driver_->NeedsKick()) kick_.Signal();
    const Bytes rings = Rings();
    Settle();
    if (wild == Wild::kReuse) {
      trouble.Reuse();
      kick_.Signal();
      Settle();
    }
    if (broken || wild != Wild::kNot) {
      if (input_.Byte() % 2 == 0) disk_.ReleaseAll();  // else the reset meets what is in flight
      Settle();
      Check(events_.count <= 1, "a broken ring is reported once");
      Check(wild != Wild::kNot || events_.count == 1, "a broken ring is reported");
      Check(wild != Wild::kNot || driver_->ring().used_index() == driver_->used_index(),
            "a broken ring is not written");
      return false;
    }
    const size_t expected = sent_.size();
    Finish(hold, fail);
    Check(Same(Rings(), rings), "the device writes the used ring only");
    Check(events_.count == 0, "a good ring is not called broken");
    Check((call_.Clear() > 0) == (interrupts && expected > 0), "interrupts come as asked for");
    return true;
  }

  void Send() {
    const Request request = writer_.Write();
    const size_t buffers = request.readable.size() + request.writable.size();
    const bool fits = driver_->free_descriptors() > buffers;
    const bool fits_a_table = driver_->free_descriptors() > 0 && buffers <= table_entries_;
    if (!fits && !fits_a_table) return;
    FakeDriver::Chain chain = driver_->NewChain();
    uint8_t direct = fits ? input_.Byte() % 8 : 0;  // how many before the table; 7: there is none
    if (!fits_a_table) direct = 7;
    size_t done = 0;
    const auto before = [&] {
      if (done++ == direct && !(fits && direct == 7)) chain.Indirect();
    };
    for (const Request::Buffer& buffer : request.readable) {
      before();
      chain.AppendReadable(buffer.address, buffer.length);
    }
    for (const Request::Buffer& buffer : request.writable) {
      before();
      chain.AppendWritable(buffer.address, buffer.length);
    }
    const uint16_t head = chain.Add();
    const Model::Outcome outcome = model_.Judge(request);
    if (outcome == Model::Outcome::kSubmit) {
      submitted_.push_back(head);
      records_.push_back(RecordOf(request));
    }
    sent_.emplace(head, Sent{request, outcome});
  }

  MemoryDisk::Record RecordOf(const Request& request) const {
    const bool writes = request.type != kBlkIn && request.type != kBlkFlush;
    MemoryDisk::Record record = {.durable = writes && !write_back_};
    const auto transfer = [&](BlockOp op, uint64_t length) {
      record.op = op;
      record.offset = request.sector * 512;
      record.length = length;
    };
    switch (request.type) {
      case kBlkIn:
        transfer(BlockOp::kRead, request.in());
        record.segments = request.writable.size() - (request.writable.back().length == 1 ? 1 : 0);
        break;
      case kBlkOut:
        transfer(BlockOp::kWrite, request.out());
        record.segments = SegmentsBehindHeader(request);
        break;
      case kBlkFlush:
        record.op = BlockOp::kFlush;
        break;
      default:
        transfer(request.type == kBlkDiscard ? BlockOp::kDiscard : BlockOp::kWriteZeroes,
                 request.range.sectors * uint64_t{512});
        record.unmap = request.range.flags == 1;
    }
    return record;
  }
  static size_t SegmentsBehindHeader(const Request& request) {
    uint64_t end = 0;
    size_t count = 0;
    for (const Request::Buffer& buffer : request.readable) {
      end += buffer.length;
      count += end > sizeof(BlkHeader) ? 1 : 0;
    }
    return count;
  }

  // Lets the disk be done in some order, and holds the answers against the model.
  void Finish(bool hold, bool fail) {
    const uint8_t status = fail ? kBlkIoError : kBlkOk;
    Check(!hold || disk_.held() == submitted_.size(), "the disk has every request it should");
    while (!submitted_.empty()) {
      const size_t i = hold ? input_.Byte() % submitted_.size() : 0;
      if (hold) disk_.Release(i);
      model_.Apply(sent_.at(submitted_[i]).request, status);
      submitted_.erase(submitted_.begin() + static_cast<ptrdiff_t>(i));
    }
    Settle();
    while (const std::optional<UsedElement> used = driver_->TakeUsed()) {
      const auto found = sent_.find(used->head);
      Check(found != sent_.end(), "what comes back was sent, and comes back once");
      const auto& [request, outcome] = found->second;
      Check(used->written == model_.Written(request), "the used length is right");
      if (outcome != Model::Outcome::kSubmit) {
        model_.Apply(request, static_cast<uint8_t>(outcome));
      }
      sent_.erase(found);
    }
    Check(sent_.empty(), "every request is answered");
    model_.CheckMemory();
  }

  // All below the buffers, less the used ring.
  Bytes Rings() const {
    const RingPlace& place = driver_->ring().place();
    Bytes bytes(Memory().At(0, kData), Memory().At(0, kData) + kData);
    std::fill_n(bytes.begin() + static_cast<ptrdiff_t>(place.used), 6 + 8 * place.size,
                std::byte{0});
    return bytes;
  }

  Input input_;
  const bool traced_;
  IoThread& io_thread_;
  MemoryDisk disk_;
  VirtioBlk device_;
  Model model_;
  Writer writer_;
  CountingEvents events_;
  const EventFd kick_ = *EventFd::Create();
  const EventFd call_ = *EventFd::Create();
  std::atomic<uint8_t> isr_{0};
  InterruptLine line_{isr_, 1};
  std::optional<FakeDriver> driver_;
  uint16_t table_entries_ = 0;
  uint64_t features_ = 0;
  bool write_back_ = true;
  std::map<uint32_t, Sent> sent_;    // by head
  std::vector<uint32_t> submitted_;  // heads, in the order the disk gets them
  std::vector<MemoryDisk::Record> records_;
};

}  // namespace
}  // namespace ringside::testing

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ringside::testing;
  std::memset(Memory().At(0, kMemorySize), 0, kMemorySize);
  Run(data, size).Go();
  return 0;
}
