#include "nvme/nvme_command_ring.h"

#include <array>
#include <cstring>

#include "base/status.h"
#include "poll/uring.h"

namespace ringside {
namespace {

constexpr int kFile = 0;  // its place among the ring's

}  // namespace

absl::StatusOr<std::unique_ptr<NvmeCommandRing>> NvmeCommandRing::Create(int file, int eventfd,
                                                                         unsigned entries) {
  std::unique_ptr<NvmeCommandRing> ring(new NvmeCommandRing);
  RINGSIDE_RETURN_IF_ERROR(ring->SetUp(file, eventfd, entries));
  return ring;
}

absl::Status NvmeCommandRing::SetUp(int file, int eventfd, unsigned entries) {
  io_uring_params params = {};
  // COOP_TASKRUN: a completion sets a flag in memory, which a look sees, and is processed when this
  // thread is in the kernel for anything, as for the device's interrupt. See also poll/uring.cc.
  params.flags = IORING_SETUP_SQE128 | IORING_SETUP_CQE32 | IORING_SETUP_SINGLE_ISSUER |
                 IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG | IORING_SETUP_SUBMIT_ALL |
                 IORING_SETUP_R_DISABLED;
  int error = io_uring_queue_init_params(entries, &ring_, &params);
  if (error < 0) return UringSetUpError(-error);
  set_up_ = true;
  error = io_uring_register_files(&ring_, &file, 1);
  if (error == 0) error = io_uring_register_eventfd(&ring_, eventfd);
  io_uring_register_ring_fd(&ring_);  // saves a reference count a call; not everywhere
  std::array<io_uring_restriction, 5> rules = {};
  rules[0].opcode = IORING_RESTRICTION_SQE_OP;
  rules[0].sqe_op = IORING_OP_URING_CMD;
  rules[1].opcode = IORING_RESTRICTION_SQE_FLAGS_REQUIRED;
  rules[1].sqe_flags = IOSQE_FIXED_FILE;
  rules[2].opcode = IORING_RESTRICTION_REGISTER_OP;
  rules[2].register_op = IORING_REGISTER_ENABLE_RINGS;
  rules[3].opcode = IORING_RESTRICTION_REGISTER_OP;
  rules[3].register_op = IORING_UNREGISTER_RING_FDS;
  rules[4].opcode = IORING_RESTRICTION_SQE_OP;
  rules[4].sqe_op = IORING_OP_ASYNC_CANCEL;
  if (error == 0) error = io_uring_register_restrictions(&ring_, rules.data(), rules.size());
  if (error == 0) error = io_uring_enable_rings(&ring_);
  return error < 0 ? UringSetUpError(-error) : absl::OkStatus();
}

NvmeCommandRing::~NvmeCommandRing() {
  if (set_up_) io_uring_queue_exit(&ring_);
}

bool NvmeCommandRing::Push(uint32_t operation, const nvme_uring_cmd& command, uint64_t data) {
  io_uring_sqe* entry = io_uring_get_sqe(&ring_);
  if (entry == nullptr) return false;
  io_uring_prep_rw(IORING_OP_URING_CMD, entry, kFile, nullptr, 0, operation);  // cmd_op is in off
  entry->flags = IOSQE_FIXED_FILE;
  entry->user_data = data;
  std::memcpy(entry->cmd, &command, sizeof command);
  return true;
}

void NvmeCommandRing::CancelAll() {
  io_uring_sqe* entry = io_uring_get_sqe(&ring_);
  if (entry == nullptr) return;  // the kernel has not taken what it was shown: it begins nothing
  io_uring_prep_cancel64(entry, 0, IORING_ASYNC_CANCEL_ANY);
  entry->flags = IOSQE_FIXED_FILE;  // which is asked of all, and means nothing here
  entry->user_data = kCancelling;
}

// What has completed meanwhile comes along.
bool NvmeCommandRing::Enter(Counter& enters) {
  if (io_uring_sq_ready(&ring_) == 0) return true;
  enters.Add();
  io_uring_submit_and_get_events(&ring_);
  return io_uring_sq_ready(&ring_) == 0;
}

}  // namespace ringside
