#include "boot/acpi.h"

#include <cstddef>
#include <cstring>
#include <numeric>
#include <span>
#include <vector>

#include "boot/dsdt.h"  // generated from dsdt.asl
#include "devices/power.h"
#include "kvm/memory_layout.h"

namespace ringside {
namespace {

constexpr char kOemId[] = "RNGSDE";
constexpr char kOemTableId[] = "RINGSIDE";
constexpr uint32_t kRevision = 1;

#pragma pack(push, 1)

struct Rsdp {  // 5.2.5.3
  char signature[8];
  uint8_t checksum;  // of the first 20 bytes
  char oem_id[6];
  uint8_t revision;
  uint32_t rsdt;
  uint32_t length;
  uint64_t xsdt;
  uint8_t extended_checksum;
  uint8_t reserved[3];
};
static_assert(sizeof(Rsdp) == 36);

struct Header {  // 5.2.6
  char signature[4];
  uint32_t length;
  uint8_t revision;
  uint8_t checksum;
  char oem_id[6];
  char oem_table_id[8];
  uint32_t oem_revision;
  char creator_id[4];
  uint32_t creator_revision;
};
static_assert(sizeof(Header) == 36);

struct Address {  // Generic Address Structure, 5.2.3.2
  uint8_t space;
  uint8_t bits;
  uint8_t offset;
  uint8_t access;
  uint64_t address;
};

struct Fadt {  // 5.2.9; what a hardware-reduced machine leaves zero is in one piece
  Header header;
  uint32_t firmware_control;
  uint32_t dsdt;
  uint8_t reserved;
  uint8_t preferred_profile;
  uint8_t ignored_1[109 - 46];
  uint16_t boot_architecture;
  uint8_t reserved_2;
  uint32_t flags;
  Address reset_register;
  uint8_t reset_value;
  uint16_t arm_boot_architecture;
  uint8_t minor_version;
  uint64_t x_firmware_control;
  uint64_t x_dsdt;
  Address ignored_2[8];
  Address sleep_control;
  Address sleep_status;
  uint64_t hypervisor;
};
static_assert(sizeof(Fadt) == 276);
static_assert(offsetof(Fadt, boot_architecture) == 109);
static_assert(offsetof(Fadt, reset_register) == 116);
static_assert(offsetof(Fadt, sleep_control) == 244);

struct Madt {  // 5.2.12
  Header header;
  uint32_t local_apic;
  uint32_t flags;
};

struct MadtLocalApic {  // 5.2.12.2
  uint8_t type = 0;
  uint8_t length = 8;
  uint8_t processor;
  uint8_t apic_id;
  uint32_t flags = 1;  // enabled
};

struct MadtIoApic {  // 5.2.12.3
  uint8_t type = 1;
  uint8_t length = 12;
  uint8_t id;
  uint8_t reserved = 0;
  uint32_t address;
  uint32_t first_gsi;
};

struct Mcfg {  // PCI Firmware 3.3 section 4.1.2
  Header header;
  uint64_t reserved;
  uint64_t base;
  uint16_t segment;
  uint8_t first_bus;
  uint8_t last_bus;
  uint32_t reserved_2;
};

#pragma pack(pop)

constexpr uint8_t kIoSpace = 1;
constexpr uint8_t kByteAccess = 1;

constexpr uint16_t kNoVga = 1 << 2;  // 5.2.9.3
constexpr uint16_t kNoCmosRtc = 1 << 5;
constexpr uint32_t kWbinvd = 1 << 0;              // 5.2.9, table 5.10
constexpr uint32_t kNoFixedPowerButton = 1 << 4;  // but a device of the DSDT
constexpr uint32_t kNoFixedSleepButton = 1 << 5;
constexpr uint32_t kResetRegisterSupported = 1 << 10;
constexpr uint32_t kHardwareReduced = 1 << 20;

uint8_t Checksum(std::span<const std::byte> bytes) {
  const auto add = [](uint8_t sum, std::byte byte) {
    return static_cast<uint8_t>(sum + std::to_integer<uint8_t>(byte));
  };
  return static_cast<uint8_t>(-std::accumulate(bytes.begin(), bytes.end(), uint8_t{0}, add));
}

Header MakeHeader(const char* signature, uint8_t revision) {
  Header header = {};
  std::memcpy(header.signature, signature, sizeof header.signature);
  header.revision = revision;
  std::memcpy(header.oem_id, kOemId, sizeof header.oem_id);
  std::memcpy(header.oem_table_id, kOemTableId, sizeof header.oem_table_id);
  header.oem_revision = kRevision;
  std::memcpy(header.creator_id, kOemTableId, sizeof header.creator_id);
  header.creator_revision = kRevision;
  return header;
}

Address IoByte(uint64_t port) {
  return {kIoSpace, 8, 0, kByteAccess, port};
}

template <typename T>
void Append(std::vector<std::byte>& table, const T& part) {
  const auto bytes = std::as_bytes(std::span(&part, 1));
  table.insert(table.end(), bytes.begin(), bytes.end());
}

// Places tables one behind the other, aligned to 16, with length and checksum filled in.
class TableWriter {
 public:
  explicit TableWriter(const GuestMemory& memory, uint64_t start) : memory_(memory), next_(start) {}

  uint64_t Write(std::vector<std::byte> table) {
    const auto length = static_cast<uint32_t>(table.size());
    std::memcpy(&table[offsetof(Header, length)], &length, sizeof length);
    table[offsetof(Header, checksum)] = std::byte{0};
    table[offsetof(Header, checksum)] = std::byte{Checksum(table)};
    const uint64_t address = next_;
    std::memcpy(memory_.At(address, table.size()), table.data(), table.size());
    next_ = (address + table.size() + 15) & ~uint64_t{15};
    return address;
  }

 private:
  const GuestMemory& memory_;
  uint64_t next_;
};

std::vector<std::byte> MakeFadt(uint64_t dsdt) {
  Fadt fadt = {};
  fadt.header = MakeHeader("FACP", 6);
  fadt.minor_version = 5;
  fadt.boot_architecture = kNoVga | kNoCmosRtc;
  fadt.flags = kWbinvd | kNoFixedPowerButton | kNoFixedSleepButton | kResetRegisterSupported |
               kHardwareReduced;
  fadt.reset_register = IoByte(kResetPort);
  fadt.reset_value = ResetPort::kResetCommand;
  fadt.x_dsdt = dsdt;
  fadt.sleep_control = IoByte(kSleepControlPort);
  fadt.sleep_status = IoByte(kSleepControlPort + 1);
  std::vector<std::byte> table;
  Append(table, fadt);
  return table;
}

std::vector<std::byte> MakeMadt(uint32_t cpus) {
  std::vector<std::byte> table;
  Append(table, Madt{MakeHeader("APIC", 5), static_cast<uint32_t>(kLocalApic), 0});
  for (uint32_t cpu = 0; cpu < cpus; ++cpu) {
    const auto id = static_cast<uint8_t>(cpu);
    Append(table, MadtLocalApic{.processor = id, .apic_id = id});
  }
  Append(table, MadtIoApic{.id = 0, .address = static_cast<uint32_t>(kIoApic), .first_gsi = 0});
  return table;
}

std::vector<std::byte> MakeMcfg() {
  std::vector<std::byte> table;
  Append(table, Mcfg{.header = MakeHeader("MCFG", 1),
                     .reserved = 0,
                     .base = kEcam,
                     .segment = 0,
                     .first_bus = 0,
                     .last_bus = 0,
                     .reserved_2 = 0});
  return table;
}

}  // namespace

uint64_t WriteAcpiTables(uint32_t cpus, const GuestMemory& memory) {
  const uint64_t rsdp_address = kAcpiTables;
  TableWriter writer(memory, kAcpiTables + 64);
  const auto dsdt = std::as_bytes(std::span(kDsdt));
  const uint64_t fadt = writer.Write(MakeFadt(writer.Write({dsdt.begin(), dsdt.end()})));
  const uint64_t madt = writer.Write(MakeMadt(cpus));
  const uint64_t mcfg = writer.Write(MakeMcfg());

  std::vector<std::byte> xsdt;
  Append(xsdt, MakeHeader("XSDT", 1));  // 5.2.8
  for (const uint64_t table : {fadt, madt, mcfg}) Append(xsdt, table);

  Rsdp rsdp = {};
  std::memcpy(rsdp.signature, "RSD PTR ", sizeof rsdp.signature);
  std::memcpy(rsdp.oem_id, kOemId, sizeof rsdp.oem_id);
  rsdp.revision = 2;
  rsdp.length = sizeof rsdp;
  rsdp.xsdt = writer.Write(std::move(xsdt));
  const auto bytes = std::as_bytes(std::span(&rsdp, 1));
  rsdp.checksum = Checksum(bytes.first(20));
  rsdp.extended_checksum = Checksum(bytes);
  std::memcpy(memory.At(rsdp_address, sizeof rsdp), &rsdp, sizeof rsdp);
  return rsdp_address;
}

}  // namespace ringside
