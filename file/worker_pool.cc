#include "file/worker_pool.h"

#include "base/status.h"
#include "base/thread.h"

namespace ringside {

void WorkerClient::Do(FileOp& op) {
  pool_.Add(op, *this);
}

void WorkerClient::Finished(FileOp& op) {
  // The post is under the lock as well. So the task is queued exactly while there is something to
  // take, and who has taken the last result may destroy the client: no worker comes near it again.
  const MutexLock lock(mutex_);
  const bool first = finished_.empty();
  finished_.Push(op);
  if (first) io_thread_.Post(*this);
}

void WorkerClient::Run() {
  FileOp* op = nullptr;
  {
    const MutexLock lock(mutex_);
    op = finished_.TakeAll();
  }
  while (op != nullptr) {
    FileOp* next = op->next;
    receiver_.StepDone(*op, op->step_result);
    op = next;
  }
}

WorkerPool::~WorkerPool() {
  std::vector<std::thread> threads;
  {
    const MutexLock lock(mutex_);
    stop_ = true;
    threads.swap(threads_);
    changed_.notify_all();
  }
  for (std::thread& thread : threads) thread.join();
}

absl::Status WorkerPool::Start() {
  const MutexLock lock(mutex_);
  return threads_.empty() ? StartOne() : absl::OkStatus();
}

absl::Status WorkerPool::StartOne() {
  threads_.reserve(kMaxThreads);
  RINGSIDE_ASSIGN_OR_RETURN(std::thread thread, StartThread("disk-worker", [this] { Work(); }));
  threads_.push_back(std::move(thread));
  return absl::OkStatus();
}

void WorkerPool::Add(FileOp& op, WorkerClient& client) {
  op.client = &client;
  const MutexLock lock(mutex_);
  waiting_.Push(op);
  ++waiting_count_;
  if (waiting_count_ <= idle_) {
    changed_.notify_one();
  } else if (threads_.size() < kMaxThreads) {
    StartOne().IgnoreError();  // those there are will do it
  }
}

void WorkerPool::Work() {
  mutex_.lock();
  while (true) {
    while (waiting_.empty() && !stop_) {
      ++idle_;
      changed_.wait(mutex_);
      --idle_;
    }
    FileOp* op = waiting_.Pop();
    if (op == nullptr) break;
    --waiting_count_;
    mutex_.unlock();
    op->step_result = op->request().recalled() ? -ECANCELED : PerformStep(fd_, op->step());
    op->client->Finished(*op);
    mutex_.lock();
  }
  mutex_.unlock();
}

}  // namespace ringside
