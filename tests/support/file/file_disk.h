// A file as a test's disk.
#pragma once

#include "file/file_device.h"
#include "tests/support/block/test_disk.h"

namespace ringside::testing {

class FileDisk final : public TestDisk {
 public:
  FileDisk(const FileConfig& config, IoThread::Waiter waiter)
      : TestDisk(FileDevice::Create(config, Logger()), waiter) {}
};

}  // namespace ringside::testing
