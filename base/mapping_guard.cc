#include "base/mapping_guard.h"

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <pthread.h>
#include <sys/mman.h>
#include <utility>

#include "base/pages.h"
#include "base/signal_chain.h"
#include "base/status.h"
#include "base/sync.h"

namespace ringside {

// Never freed, as the handler may be looking at it; a later guard uses it again. The one that the
// handler finds cannot change meanwhile, as the thread that it runs on is using that mapping.
struct GuardedMapping {
  std::atomic<uintptr_t> begin{0};  // 0: none
  std::atomic<uintptr_t> end{0};
  MappingGuard::Told told = nullptr;
  void* context = nullptr;
  GuardedMapping* next = nullptr;
};

namespace {

// Of the process, as its signal handlers are.
Mutex guards_mutex;                          // held by those who make and end guards
std::atomic<GuardedMapping*> first_guarded;  // for the handler, which takes no lock
struct sigaction handler_before;

const GuardedMapping* Find(uintptr_t address) {
  // Acquire, both: they pair with the stores in FreeMapping and MappingGuard::Of, so that the
  // fields of what is found are there.
  const GuardedMapping* mapping = first_guarded.load(std::memory_order_acquire);
  for (; mapping != nullptr; mapping = mapping->next) {
    const uintptr_t begin = mapping->begin.load(std::memory_order_acquire);
    const uintptr_t end = mapping->end.load(std::memory_order_acquire);
    if (begin != mapping->begin.load(std::memory_order_relaxed)) continue;  // another's by now
    if (begin != 0 && begin <= address && address < end) return mapping;
  }
  return nullptr;
}

// Of a guarded mapping: whether it can be used now.
bool Replace(uintptr_t address) {
  void* page = reinterpret_cast<void*>(PageDown(address));
  return mmap(page, kPageSize, PROT_READ | PROT_WRITE,
              MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0) != MAP_FAILED;
}

void Handle(int signal, siginfo_t* info, void* registers) {
  const int error = errno;
  const auto address = reinterpret_cast<uintptr_t>(info->si_addr);
  // BUS_ADRERR: a page that is not there; the others are memory that is broken (sigaction(2)).
  const GuardedMapping* mapping = info->si_code == BUS_ADRERR ? Find(address) : nullptr;
  if (mapping == nullptr || !Replace(address)) {
    return HandOn(handler_before, signal, info, registers);
  }
  mapping->told(mapping->context);
  errno = error;
}

bool Install() {
  static const bool installed = [] {
    struct sigaction action = {};
    action.sa_sigaction = Handle;
    action.sa_flags =
        SA_SIGINFO | SA_ONSTACK | SA_RESTART;  // a runtime's threads have small stacks
    return sigaction(SIGBUS, nullptr, &handler_before) == 0 &&
           sigaction(SIGBUS, &action, nullptr) == 0;
  }();
  return installed;
}

GuardedMapping& FreeMapping() ABSL_EXCLUSIVE_LOCKS_REQUIRED(guards_mutex) {
  GuardedMapping* const first = first_guarded.load(std::memory_order_relaxed);
  for (GuardedMapping* mapping = first; mapping != nullptr; mapping = mapping->next) {
    if (mapping->begin.load(std::memory_order_relaxed) == 0) return *mapping;
  }
  auto* mapping = new GuardedMapping;
  mapping->next = first;
  first_guarded.store(mapping, std::memory_order_release);  // pairs with the load in Find
  return *mapping;
}

}  // namespace

absl::StatusOr<MappingGuard> MappingGuard::Of(std::span<std::byte> mapping, Told told,
                                              void* context) {
  const MutexLock lock(guards_mutex);
  if (!Install()) return ErrnoError(errno, "cannot handle SIGBUS");
  GuardedMapping& guarded = FreeMapping();
  const auto begin = reinterpret_cast<uintptr_t>(mapping.data());
  guarded.told = told;
  guarded.context = context;
  guarded.end.store(begin + mapping.size(), std::memory_order_relaxed);
  guarded.begin.store(begin, std::memory_order_release);  // pairs with the load in Find
  return MappingGuard(guarded);
}

MappingGuard::MappingGuard(MappingGuard&& other) noexcept
    : mapping_(std::exchange(other.mapping_, nullptr)) {}

MappingGuard::~MappingGuard() {
  if (mapping_ == nullptr) return;
  const MutexLock lock(guards_mutex);
  mapping_->begin.store(0, std::memory_order_relaxed);
}

FaultsAllowed::FaultsAllowed() {
  sigset_t faults;
  sigemptyset(&faults);
  sigaddset(&faults, SIGBUS);
  pthread_sigmask(SIG_UNBLOCK, &faults, &before_);
}

FaultsAllowed::~FaultsAllowed() {
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

}  // namespace ringside
