#include "faults/record_device.h"

#include "base/size.h"
#include "base/status.h"

namespace ringside {

BackendDescription RecordConfig::Describe() const {
  BackendDescription description = backend.Describe();
  description.files.push_back(options.path);
  return description;
}

absl::StatusOr<std::unique_ptr<BlockDevice>> RecordConfig::Open(const BlockContext& context) const {
  if (options.limit < RecordFile::kLeastLimit) {
    return BadInput("record-limit=%d is too small: give %s or more", options.limit,
                    FormatSize(RecordFile::kLeastLimit));
  }
  RINGSIDE_ASSIGN_OR_RETURN(auto below, backend.Open(context));
  RINGSIDE_ASSIGN_OR_RETURN(
      auto file, RecordFile::Create(options.path, options.limit, below->info(), context.log));
  return std::make_unique<RecordDevice>(std::move(below), std::move(file));
}

void RecordChannel::Submit(BlockRequest& request) {
  if (request.op == BlockOp::kRead) return below_->Submit(request);
  Op& op = ops_.Take();
  static_cast<BlockRequest&>(op) = request;
  op.channel = this;
  op.request = &request;
  op.done = [](BlockRequest& ended) {
    auto& of = static_cast<Op&>(ended);
    of.channel->Ended(of);
  };
  op.number = file_.Submitted(request);
  below_->Submit(op);
}

void RecordChannel::Ended(Op& op) {
  BlockRequest& request = *op.request;
  request.result = op.result;
  const bool is_recorded = file_.Completed(op.number, request, op.result);
  (is_recorded ? counters_.recorded : counters_.unrecorded).Add();
  ops_.Give(op);
  request.done(request);
}

BlockStatistics RecordDevice::Statistics() const {
  BlockStatistics statistics = StatisticsWith(counters_.Sums());
  statistics.counters.push_back({"record_bytes", file_->bytes()});
  return statistics;
}

absl::StatusOr<std::unique_ptr<BlockChannel>> RecordDevice::Open(IoThread& io_thread) {
  RINGSIDE_ASSIGN_OR_RETURN(auto channel, below().Open(io_thread));
  return std::make_unique<RecordChannel>(std::move(channel), *file_, counters_.Take());
}

}  // namespace ringside
