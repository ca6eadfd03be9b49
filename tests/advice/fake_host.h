// A /sys and /proc of a test's own, with the block devices that it is told.
#pragma once

#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include "tests/support/directories.h"

namespace ringside::testing {

class FakeHost {
 public:
  std::filesystem::path root() const { return directory_.path(); }

  void Write(const std::string& name, const std::string& text) const {
    const std::filesystem::path path = root() / name;
    create_directories(path.parent_path());
    std::ofstream(path) << text << '\n';
  }
  void Link(const std::string& name, const std::string& target) const {
    const std::filesystem::path path = root() / name;
    create_directories(path.parent_path());
    create_directories(root() / target);
    create_directory_symlink(root() / target, path);
  }

  // A block device in `directory` of sys/devices, by its number "259:0"; attributes by their names
  // below that.
  void AddBlock(const std::string& directory, const std::string& number,
                const std::map<std::string, std::string>& attributes) const {
    const std::string path = "sys/devices/" + directory;
    Link("sys/dev/block/" + number, path);
    Link("sys/class/block/" + std::filesystem::path(path).filename().string(), path);
    Write(path + "/dev", number);
    for (const auto& [name, value] : attributes) Write(path + "/" + name, value);
  }

  // A PCI device with interrupts by number, each with its name and processors.
  struct Interrupt {
    std::string name;
    std::string cpus;
  };
  void AddPci(const std::string& directory, const std::string& driver, const std::string& node,
              const std::map<std::string, Interrupt>& interrupts) const {
    const std::string path = "sys/devices/" + directory;
    Link(path + "/subsystem", "sys/bus/pci");
    Link(path + "/driver", "sys/bus/pci/drivers/" + driver);
    Write(path + "/numa_node", node);
    for (const auto& [number, interrupt] : interrupts) {
      Write(path + "/msi_irqs/" + number, "msix");
      Write("sys/kernel/irq/" + number + "/actions", interrupt.name);
      Write("proc/irq/" + number + "/effective_affinity_list", interrupt.cpus);
    }
  }

  void AddNode(int id, const std::string& cpus) {
    const std::string path = "sys/devices/system/node/node" + std::to_string(id);
    Write(path + "/cpulist", cpus);
    Write(path + "/meminfo", "Node 0 MemTotal: 1048576 kB");
    online_ += (online_.empty() ? "" : ",") + std::to_string(id);
    Write("sys/devices/system/node/online", online_);
  }

 private:
  TempDirectory directory_;
  std::string online_;
};

}  // namespace ringside::testing
