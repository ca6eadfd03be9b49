#include "devices/vsock_hub.h"

#include <cerrno>
#include <sys/epoll.h>
#include <utility>

#include "base/clock.h"
#include "base/random.h"
#include "base/status.h"

namespace ringside {
namespace {

// Memory of backlogs that is kept for the next: hosts that are slow now and then would have it
// mapped and unmapped all the time.
constexpr size_t kSpare = 8;

constexpr int64_t DurationOf(VsockClient::Wait wait) {
  switch (wait) {
    case VsockClient::Wait::kGreeting:
      return VsockHub::kGreetingNs;
    case VsockClient::Wait::kAnswer:
      return VsockHub::kAnswerNs;
    case VsockClient::Wait::kCredit:
      return VsockHub::kCreditNs;
    case VsockClient::Wait::kCreditAgain:
      return VsockHub::kCreditAgainNs;
    case VsockClient::Wait::kEnd:
      return VsockHub::kEndNs;
    case VsockClient::Wait::kLinger:
      return VsockHub::kLingerNs;
    case VsockClient::Wait::kNothing:
      break;
  }
  return Timers::kNever;
}

}  // namespace

absl::StatusOr<std::unique_ptr<VsockHub>> VsockHub::Create(VsockHost& host,
                                                           const VirtioVsockConfig& config) {
  UniqueFd epoll(epoll_create1(EPOLL_CLOEXEC));
  if (!epoll.valid()) return ErrnoError(errno, "cannot make an epoll", "raise 'ulimit -n'");
  // The listening socket is the one without a client.
  epoll_event event = {.events = EPOLLIN | EPOLLET, .data = {.ptr = nullptr}};
  if (epoll_ctl(epoll.get(), EPOLL_CTL_ADD, host.listening_fd(), &event) != 0) {
    return ErrnoError(errno, absl::StrFormat("cannot watch socket '%s'", host.path()));
  }
  uint64_t secret = 0;
  RINGSIDE_RETURN_IF_ERROR(FillRandom(std::as_writable_bytes(std::span(&secret, 1))));
  return std::unique_ptr<VsockHub>(new VsockHub(host, config, std::move(epoll), secret));
}

VsockHub::VsockHub(VsockHost& host, const VirtioVsockConfig& config, UniqueFd epoll,
                   uint64_t secret)
    : host_(host),
      counts_(host.counts()),
      name_(config.name),
      cid_(config.cid),
      max_connections_(config.max_connections),
      log_(config.log),
      epoll_(std::move(epoll)),
      sockets_(*this, epoll_.get()),
      table_(config.max_connections, secret) {
  clients_.reserve(max_connections_);
  spare_.reserve(kSpare);
}

VsockHub::~VsockHub() {
  RemoveAll();
}

// Its queues come and go.

absl::Status VsockHub::Arrived(Side side, VsockQueueSide& queue, IoThread& io_thread) {
  const MutexLock lock(mutex_);
  places_[static_cast<size_t>(side)] = {&queue, &io_thread};
  const auto& [receive, transmit] = places_;
  if (receive.io_thread != transmit.io_thread) return absl::OkStatus();
  RINGSIDE_RETURN_IF_ERROR(io_thread.Attach(sockets_, Phase::kComplete));
  sockets_told_ = true;
  io_thread_ = &io_thread;
  receiver_ = receive.queue;
  transmitter_ = transmit.queue;
  // Nobody could do anything meanwhile, so nobody's time has passed.
  const int64_t rested_ns = MonotonicNs() - rests_since_ns_;
  for (const auto& client : clients_) client->wait_ends_ns += rested_ns;
  StartTimer();
  receiver_->LookAgain();
  transmitter_->LookAgain();
  return absl::OkStatus();
}

void VsockHub::Left(Side side) {
  const MutexLock lock(mutex_);
  places_[static_cast<size_t>(side)] = {};
  if (works()) Rest();
}

void VsockHub::Rest() {
  io_thread_->Detach(sockets_);
  io_thread_->Disarm(timer_);
  io_thread_ = nullptr;
  rests_since_ns_ = MonotonicNs();
}

void VsockHub::CloseAll() {
  const MutexLock lock(mutex_);
  RemoveAll();
  resets_.clear();
  hold_ends_ns_ = 0;
}

void VsockHub::RemoveAll() {
  while (!clients_.empty()) Remove(*clients_.back());
}

// Clients.

bool VsockHub::HasRoom() {
  if (clients_.size() < max_connections_) return true;
  LogOnce(logged_full_,
          "has as many connections as it may have and refuses more; raise max-connections");
  return false;
}

// Null: it cannot be watched.
VsockClient* VsockHub::Add(UniqueFd fd) {
  auto client = std::make_unique<VsockClient>();
  client->fd = std::move(fd);
  client->watched = EPOLLIN | EPOLLRDHUP | EPOLLET;
  epoll_event event = {.events = client->watched, .data = {.ptr = client.get()}};
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, client->fd.get(), &event) != 0) {
    LogOnce(logged_descriptors_,
            "cannot watch more sockets and refuses them; raise fs.epoll.max_user_watches");
    return nullptr;
  }
  client->index = clients_.size();
  clients_.push_back(std::move(client));
  counts_.open.Add();
  return clients_.back().get();
}

void VsockHub::Remove(VsockClient& client) {
  if (client.stage == VsockClient::Stage::kJoined) table_.Remove(client);
  if (gathered_.client == &client) gathered_ = {};
  client.stage = VsockClient::Stage::kGone;
  ready_.Remove(client);
  SetWait(client, Wait::kNothing);
  KeepMemory(client.backlog);
  // Closing alone would leave it with a child that was forked meanwhile, and its events here.
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, client.fd.get(), nullptr);
  client.fd = UniqueFd();
  std::unique_ptr<VsockClient>& place = clients_[client.index];
  clients_.back()->index = client.index;
  std::swap(place, clients_.back());
  if (in_events_) gone_.push_back(std::move(clients_.back()));
  clients_.pop_back();
  counts_.open.Subtract();
}

// Of one that is empty, or whose bytes nobody wants.
void VsockHub::KeepMemory(VsockBacklog& backlog) {
  VsockBacklog::Memory memory = backlog.TakeMemory();
  if (memory != nullptr && spare_.size() < kSpare) spare_.push_back(std::move(memory));
}

void VsockHub::Break(VsockClient& client) {
  if (client.connection->is_known()) ResetKnown(client.connection->ports());
  Remove(client);
}

void VsockHub::ResetKnown(const Ports& ports) {
  Reset({.src_cid = kVsockHostCid, .src_port = ports.host, .dst_port = ports.guest});
}

// No more than one for each connection that there may be and each packet that was taken.
void VsockHub::Reset(const VsockHeader& to) {
  resets_.push_back(to);
  resets_.back().op = VsockOp::kReset;
  if (works() && resets_.size() == 1) receiver_->LookAgain();
}

void VsockHub::MakeReady(VsockClient& client) {
  if (client.ready_links.linked) return;
  const bool is_first = !HasForGuest();
  ready_.PushBack(client);
  if (is_first) receiver_->LookAgain();
}

// After whatever has changed of one that has joined.
void VsockHub::Update(VsockClient& client) {
  const VsockConnection& connection = *client.connection;
  UpdateCredit(client);
  if (connection.is_ending() && client.wait == Wait::kNothing) SetWait(client, Wait::kEnd);
  if (connection.HasControl() || (client.readable && connection.MaySend() > 0)) MakeReady(client);
}

void VsockHub::UpdateCredit(VsockClient& client) {
  VsockConnection& connection = *client.connection;
  const bool waits = client.readable && connection.WantsData() && connection.MaySend() == 0;
  if (waits && connection.WaitsForCredit()) {
    const bool again = client.wait == Wait::kCredit || client.wait == Wait::kCreditAgain;
    if (!again) counts_.credit_waits.Add();
    SetWait(client, again ? Wait::kCreditAgain : Wait::kCredit);
  } else if (!waits && (client.wait == Wait::kCredit || client.wait == Wait::kCreditAgain)) {
    SetWait(client, Wait::kNothing);
  }
}

void VsockHub::LogOnce(bool& logged, const char* what) {
  if (std::exchange(logged, true)) return;
  log_.Log(Severity::kWarning, "%s: it %s", name_, what);
}

// Their time.

void VsockHub::SetWait(VsockClient& client, Wait wait) {
  if (client.wait != Wait::kNothing) waits_[static_cast<size_t>(client.wait)].Remove(client);
  client.wait = wait;
  if (wait == Wait::kNothing) {
    // A timer that nobody needs would wake a thread that has nothing to do.
    if (works() && timer_.armed() && FirstEndNs() == Timers::kNever) io_thread_->Disarm(timer_);
    return;
  }
  client.wait_ends_ns = MonotonicNs() + DurationOf(wait);
  waits_[static_cast<size_t>(wait)].PushBack(client);
  if (works() && (!timer_.armed() || client.wait_ends_ns < timer_ns_)) StartTimer();
}

// Of whoever is first: of each kind of wait that is the one in front.
int64_t VsockHub::FirstEndNs() const {
  int64_t first_ns = accept_again_ns_ != 0 ? accept_again_ns_ : Timers::kNever;
  for (const auto& wait : waits_) {
    if (!wait.empty()) first_ns = std::min(first_ns, wait.front()->wait_ends_ns);
  }
  return first_ns;
}

void VsockHub::StartTimer() {
  timer_ns_ = FirstEndNs();
  if (timer_ns_ != Timers::kNever) io_thread_->Arm(timer_, timer_ns_);
}

void VsockHub::Expired(int64_t now_ns) {
  if (accept_again_ns_ != 0 && accept_again_ns_ <= now_ns) {
    accept_again_ns_ = 0;
    accepts_ = true;
    sockets_.Source::Written();
  }
  int left = kExpiredPerTurn;
  for (auto& wait : waits_) {
    for (; left > 0 && !wait.empty() && wait.front()->wait_ends_ns <= now_ns; --left) {
      ExpiredOne(*wait.front());
    }
  }
  StartTimer();
}

void VsockHub::ExpiredOne(VsockClient& client) {
  switch (client.wait) {
    case Wait::kCredit:
    case Wait::kCreditAgain:
      client.connection->AskAgain();
      return Update(client);  // which has it wait anew, as it still does
    case Wait::kAnswer:
      counts_.refused.Add();
      return Break(client);
    case Wait::kEnd:
      return Break(client);
    case Wait::kGreeting:
      counts_.refused.Add();
      return Remove(client);
    case Wait::kLinger:
    case Wait::kNothing:
      return Remove(client);
  }
}

}  // namespace ringside
