// An NVMe controller in memory, behind PciDevice: registers, queues, namespaces with a volatile
// write cache, interrupts, a thread that executes commands, and faults to order. It holds its
// driver to the specification: whatever a driver must not do is recorded, see violations().
//
// The model is the hardware and stays; a driver attaches to it. Dropping the handle is what the
// kernel does when a process dies: bus mastering off, function reset, mappings gone.
//
// Doorbells are memory that the model's thread looks at. It takes each value away as it sees it, so
// that a value written twice is two writings; those between two of its looks are one, so only a
// `busy` model sees nearly all. Shadow doorbells it looks at only while it is awake. Before it
// falls asleep it sets each event index to the value last seen and looks once more; asleep it needs
// a register written. Awake it leaves the indices alone. A `busy` model never sleeps, and its event
// indices stay as the driver made them.
//
// Threads: any; one lock, which the model's thread lets go of when anybody wants it.
// Ownership: the handle ends before the model. Units: bytes, nanoseconds.
// Errors: what a command ends in is its status; MapDma and the like as in PciDevice.
// Source: NVM Express Base Specification 2.0, NVM Command Set 1.0.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/support/nvme/nvme_model_spec.h"
#include "vfio/pci_device.h"

namespace ringside::testing {

struct NvmeModelNamespace {
  uint64_t blocks = 32768;  // 0: the namespace is not active
  uint32_t block_size = 512;
  uint16_t metadata = 0;  // bytes a block; only announced
  uint16_t boundary = 0;  // NOIOB
  // The file with its contents, which outlive the process with what is in the write cache. Empty:
  // none.
  std::string path = {};
};

// A byte of what Identify tells, instead of what it should be.
struct NvmeModelPatch {
  bool of_controller;  // else of the namespaces
  uint16_t offset;
  uint8_t value;
};

struct NvmeModelConfig {
  std::string name = "0000:00:04.0";
  std::vector<NvmeModelNamespace> namespaces = {{}};  // from identifier 1
  uint16_t queues = 16;                               // pairs for I/O that it grants
  uint32_t queue_entries = 1024;                      // CAP.MQES + 1
  uint8_t doorbell_stride = 0;                        // CAP.DSTRD
  uint8_t min_page = 0;                               // CAP.MPSMIN
  uint8_t mdts = 5;
  uint8_t timeout = 2;  // CAP.TO, in 500 ms
  bool write_cache = true;
  bool shadow_doorbells = false;
  bool deallocate = true;  // dataset management
  bool write_zeroes = true;
  uint16_t vectors = 17;
  uint32_t unmask_calls = 1;  // that it takes to unmask a vector
  bool function_reset = true;
  std::vector<NvmeModelPatch> patches = {};
  bool takes_any_queue = false;     // also one of a single entry, which no controller may
  bool deletes_busy = false;        // its driver may delete queues with commands in flight
  bool ignores_bus_master = false;  // reaches what is mapped, whatever the command register says
  bool returns =
      false;  // whoever drives it is told when it is gone, and it may be plugged in again
  std::vector<IovaRange> iova_ranges = {{0, 0xfedfffff}, {0xfef00000, (uint64_t{1} << 39) - 1}};
  size_t max_mappings = 65535;
  int64_t service_ns = 0;                // that a command takes
  std::optional<uint64_t> shuffle_seed;  // commands that are due complete in random order
  bool busy = false;                     // its thread never rests: for benchmarks
  bool keep_log = true;
};

// What happens to commands instead of what should. Faults are tried in the order they were added.
struct NvmeModelFault {
  enum class Kind {
    kStatus,          // completes with `status`, not executed
    kLoseCompletion,  // executed, never completed
    kHang,            // neither, until it is aborted or the controller is reset
    kHold,            // executed when released, see Release()
    kDelay,           // executed after `delay_ns`
    kWrongPhase,      // its entry's phase bit is that of an old entry
    kDuplicate,       // its entry comes a second time, with the identifier changed by `id_xor`
    kWrongId,         // its entry has the identifier changed by `id_xor`
    kFatal,           // CSTS.CFS is set, and nothing is executed any more
    kGone,            // as Unplug()
  };
  Kind kind;
  bool admin = false;                  // of the admin queue, else of the others
  std::optional<uint8_t> opcode = {};  // none: any
  uint32_t skip = 0;                   // so many that match are spared first
  uint32_t times = 1;                  // then so many are hit
  nvme::Status status = nvme::kInternalError;
  int64_t delay_ns = 0;
  uint16_t id_xor = 0;
};

// How an Abort goes that finds its command not yet executed.
enum class NvmeModelAbort {
  kAborts,   // the command completes with kAbortRequested
  kRefuses,  // the command stays, and the Abort says so
};

enum class NvmeModelReady { kFollows, kNeverSet, kNeverCleared };

// A command that was executed, and what it ended in.
struct NvmeModelExecuted {
  uint16_t queue;
  uint16_t id;
  uint8_t opcode;
  uint32_t nsid;
  uint64_t start;  // SLBA
  uint32_t blocks;
  uint32_t flags;  // CDW12 above NLB: FUA, DEAC
  nvme::Status status;
};

struct NvmeModelCounters {
  uint64_t doorbells = 0;      // registers found written
  uint64_t shadow_checks = 0;  // looks at shadow doorbells
  uint64_t interrupts = 0;     // eventfds written
  uint64_t commands = 0;       // executed
  uint64_t resets = 0;         // of the function, asked for
  uint64_t blocked = 0;        // DMA that the driver had cut a stuck controller off from
};

class NvmeModelMachine;

class NvmeModel {
 public:
  explicit NvmeModel(const NvmeModelConfig& config = {});
  ~NvmeModel();

  // Null while there is a handle.
  std::unique_ptr<PciDevice> Attach();
  // A descriptor whose offsets are those of BAR 0, for processes that want to map the doorbells,
  // nvme::kDoorbells and up. It stays until the handle ends; the next has another.
  int bar_fd() const;

  // Faults.
  void Add(const NvmeModelFault& fault);
  void ClearFaults();
  // Commands of kHold that wait. They go with a reset.
  size_t held() const;
  bool WaitForHeld(size_t count) const;
  // Executes and completes them, oldest first.
  void Release();
  void SetAbort(NvmeModelAbort abort);
  // CSTS.RDY. A controller that never clears it goes on in spite of CC.EN, up to a function reset.
  void SetReady(NvmeModelReady ready);
  void FailFunctionReset(bool fail);
  void SetFatal();
  // All registers read as all ones from now on, and nothing happens any more.
  void Unplug();
  bool is_gone() const;
  // It is back, as after a reset of the function. Only one that `returns`.
  void PlugIn();
  // What it is from now on, in what CAP and Identify tell: as another that came back in its place.
  void BecomeLike(const NvmeModelConfig& other);
  // Identify tells of so many blocks from now on; there are as many as before.
  void AnnounceBlocks(uint32_t nsid, uint64_t blocks);
  // `event`: Dword 0 of the completion, section 5.2. Waits for a request, if there is none, and
  // for the log page of an earlier event of its type to be read. Dropped if the driver has not
  // asked for it (notices, feature 0bh).
  void SendAsyncEvent(uint32_t event);

  // Power. All state of the controller and of its configuration space is lost, and each cached
  // block with it; with a seed, some are saved. Afterwards CSTS.NSSRO is set.
  void PowerCut(std::optional<uint64_t> seed = std::nullopt);
  // What a power cut leaves, and what a read would give.
  std::vector<std::byte> Durable(uint32_t nsid) const;
  std::vector<std::byte> Contents(uint32_t nsid) const;
  // Durable at once.
  void SetContents(uint32_t nsid, uint64_t offset, const std::vector<std::byte>& bytes);

  // What the driver must not have done, in its order.
  std::vector<std::string> violations() const;
  std::vector<NvmeModelExecuted> log() const;
  // How often such a command was, with success.
  size_t executed(nvme::IoOp op, uint64_t start, uint32_t nsid = 1) const;
  void ClearLog();
  NvmeModelCounters counters() const;
  size_t mappings() const;

 private:
  std::unique_ptr<NvmeModelMachine> machine_;
};

}  // namespace ringside::testing
