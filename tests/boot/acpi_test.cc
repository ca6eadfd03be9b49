// ACPI tables as a guest finds them, following addresses from the RSDP. Section numbers are those
// of ACPI 6.5.
#include "boot/acpi.h"

#include <cstring>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <numeric>
#include <regex>
#include <sstream>

#include "base/pages.h"
#include "devices/panic_port.h"
#include "devices/power.h"
#include "tests/support/devices/guest_memory.h"
#include "tests/support/directories.h"
#include "tests/support/subprocess.h"
#include "tests/support/vmm/image_builder.h"

namespace ringside {
namespace {

using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::Key;
using ::testing::UnorderedElementsAre;

constexpr size_t kHeaderSize = 36;

// A table's bytes with fields by offset.
class Table {
 public:
  Table() = default;
  explicit Table(Bytes bytes) : bytes_(std::move(bytes)) {}

  template <typename T>
  T At(size_t offset) const {
    T value = {};
    EXPECT_LE(offset + sizeof value, bytes_.size());
    if (offset + sizeof value <= bytes_.size()) std::memcpy(&value, &bytes_[offset], sizeof value);
    return value;
  }
  uint8_t Sum(size_t size) const {
    return std::accumulate(bytes_.begin(), bytes_.begin() + static_cast<ptrdiff_t>(size),
                           uint8_t{0});
  }
  std::string Text(size_t offset, size_t size) const {
    return {bytes_.begin() + static_cast<ptrdiff_t>(offset),
            bytes_.begin() + static_cast<ptrdiff_t>(offset + size)};
  }
  const Bytes& bytes() const { return bytes_; }

 private:
  Bytes bytes_;
};

Table ReadTable(const GuestMemory& memory, uint64_t address) {
  return Table(PeekBytes(memory, address, Peek<uint32_t>(memory, address + 4)));
}

// All tables of a machine, by signature, with their addresses.
struct Tables {
  explicit Tables(uint32_t cpus) : memory(MakeMemory(kMinMemory)) {
    rsdp_address = WriteAcpiTables(cpus, *memory);
    rsdp = Table(PeekBytes(*memory, rsdp_address, 36));
    Add(rsdp.At<uint64_t>(24));
    const Table& xsdt = table["XSDT"];
    for (size_t at = kHeaderSize; at < xsdt.bytes().size(); at += 8) Add(xsdt.At<uint64_t>(at));
    Add(table["FACP"].At<uint64_t>(140));  // X_DSDT
  }
  void Add(uint64_t at) {
    const Table found = ReadTable(*memory, at);
    const std::string signature = found.Text(0, 4);
    EXPECT_FALSE(table.contains(signature)) << signature << " twice";
    table[signature] = found;
    address[signature] = at;
  }

  std::unique_ptr<GuestMemory> memory;
  uint64_t rsdp_address = 0;
  Table rsdp;
  std::map<std::string, Table> table;
  std::map<std::string, uint64_t> address;
};

TEST(AcpiTest, RsdpIsWhereItIsLookedForAndValid) {  // 5.2.5
  const Tables tables(1);
  EXPECT_EQ(tables.rsdp_address, kAcpiTables);
  EXPECT_EQ(tables.rsdp_address % 16, 0u);
  EXPECT_EQ(tables.rsdp.Text(0, 8), "RSD PTR ");
  EXPECT_EQ(tables.rsdp.At<uint8_t>(15), 2) << "revision";
  EXPECT_EQ(tables.rsdp.At<uint32_t>(20), 36u) << "length";
  EXPECT_EQ(tables.rsdp.Sum(20), 0);
  EXPECT_EQ(tables.rsdp.Sum(36), 0);
}

TEST(AcpiTest, EveryTableIsReachedFromTheRsdp) {
  const Tables tables(1);
  EXPECT_THAT(tables.table, UnorderedElementsAre(Key("XSDT"), Key("FACP"), Key("APIC"), Key("MCFG"),
                                                 Key("DSDT")));
}

TEST(AcpiTest, TablesAreSoundDisjointAndInTheirPlaceForAnyNumberOfCpus) {
  for (const uint32_t cpus : {1, 2, 254}) {
    SCOPED_TRACE(cpus);
    const Tables tables(cpus);
    std::map<uint64_t, uint64_t> ends = {{tables.rsdp_address, tables.rsdp_address + 36}};
    for (const auto& [signature, table] : tables.table) {
      SCOPED_TRACE(signature);
      EXPECT_GE(table.bytes().size(), kHeaderSize);
      EXPECT_EQ(table.Sum(table.bytes().size()), 0);
      const uint64_t address = tables.address.at(signature);
      ends[address] = address + table.bytes().size();
    }
    uint64_t end = kAcpiTables;
    for (const auto& [start, its_end] : ends) {
      EXPECT_GE(start, end);
      end = its_end;
    }
    EXPECT_LE(end, PageDown(kGenerationId));
  }
}

TEST(AcpiTest, FadtDescribesAHardwareReducedMachine) {  // 5.2.9
  const Tables tables(1);
  const Table& fadt = tables.table.at("FACP");
  EXPECT_EQ(fadt.bytes().size(), 276u);
  EXPECT_EQ(fadt.At<uint8_t>(8), 6) << "revision";
  const uint32_t flags = fadt.At<uint32_t>(112);
  EXPECT_TRUE(flags & 1u << 20) << "HW_REDUCED_ACPI";
  EXPECT_TRUE(flags & 1u << 10) << "RESET_REG_SUP";
  EXPECT_TRUE(flags & 1u << 0) << "WBINVD";
  EXPECT_TRUE(flags & 1u << 4) << "no fixed power button";
  EXPECT_TRUE(flags & 1u << 5) << "no fixed sleep button";
  EXPECT_FALSE(flags & 1u << 22) << "FORCE_APIC_CLUSTER_MODEL and its like stay off";

  const uint16_t boot_flags = fadt.At<uint16_t>(109);
  EXPECT_FALSE(boot_flags & 1u << 1) << "8042: port 0x64 only resets";
  EXPECT_TRUE(boot_flags & 1u << 2) << "VGA not present";
  EXPECT_TRUE(boot_flags & 1u << 5) << "CMOS RTC not present";
}

// Generic Address Structure, 5.2.3.2: a byte of I/O space.
void ExpectIoByte(const Table& table, size_t offset, uint64_t port) {
  EXPECT_EQ(table.At<uint8_t>(offset), 1) << "I/O space";
  EXPECT_EQ(table.At<uint8_t>(offset + 1), 8) << "bits";
  EXPECT_EQ(table.At<uint8_t>(offset + 2), 0) << "bit offset";
  EXPECT_EQ(table.At<uint8_t>(offset + 3), 1) << "byte access";
  EXPECT_EQ(table.At<uint64_t>(offset + 4), port);
}

TEST(AcpiTest, FadtNamesThePortsThatResetAndPowerOff) {
  const Tables tables(1);
  const Table& fadt = tables.table.at("FACP");
  ExpectIoByte(fadt, 116, 0x64);
  EXPECT_EQ(fadt.At<uint8_t>(128), 0xfe);
  EXPECT_EQ(fadt.At<uint8_t>(128), ResetPort::kResetCommand);
  EXPECT_EQ(kResetPort, 0x64);
  ExpectIoByte(fadt, 244, 0x600);
  ExpectIoByte(fadt, 256, 0x601);
  EXPECT_EQ(kSleepControlPort, 0x600);
}

TEST(AcpiTest, MadtListsEveryCpuOnceAndTheIoApic) {  // 5.2.12
  for (const uint32_t cpus : {1u, 2u, 254u}) {
    SCOPED_TRACE(cpus);
    const Tables tables(cpus);
    const Table& madt = tables.table.at("APIC");
    EXPECT_EQ(madt.At<uint32_t>(36), kLocalApic);
    EXPECT_EQ(madt.At<uint32_t>(40), 0u) << "no 8259s";
    uint32_t next_cpu = 0;
    int io_apics = 0;
    size_t at = 44;
    while (at < madt.bytes().size()) {
      const auto type = madt.At<uint8_t>(at);
      const auto length = madt.At<uint8_t>(at + 1);
      if (type == 0) {  // processor local APIC
        EXPECT_EQ(length, 8);
        EXPECT_EQ(madt.At<uint8_t>(at + 2), next_cpu) << "processor";
        EXPECT_EQ(madt.At<uint8_t>(at + 3), next_cpu) << "APIC id";
        EXPECT_EQ(madt.At<uint32_t>(at + 4), 1u) << "enabled";
        ++next_cpu;
      } else {
        EXPECT_EQ(type, 1) << "I/O APIC";
        EXPECT_EQ(length, 12);
        EXPECT_EQ(madt.At<uint32_t>(at + 4), kIoApic);
        EXPECT_EQ(madt.At<uint32_t>(at + 8), 0u) << "first interrupt";
        ++io_apics;
      }
      ASSERT_GT(length, 0);
      at += length;
    }
    EXPECT_EQ(at, madt.bytes().size());
    EXPECT_EQ(next_cpu, cpus);
    EXPECT_EQ(io_apics, 1);
  }
}

TEST(AcpiTest, McfgCoversTheConfigurationWindow) {  // PCI Firmware 3.3 section 4.1.2
  const Tables tables(1);
  const Table& mcfg = tables.table.at("MCFG");
  ASSERT_EQ(mcfg.bytes().size(), 44u + 16u) << "one window";
  EXPECT_EQ(mcfg.At<uint64_t>(44), kEcam);
  EXPECT_EQ(mcfg.At<uint16_t>(52), 0) << "segment";
  const uint64_t first = mcfg.At<uint8_t>(54);
  const uint64_t last = mcfg.At<uint8_t>(55);
  EXPECT_EQ(first, 0u);
  EXPECT_EQ((last - first + 1) * 0x100000, kEcamSize);
}

// ---- By iasl, the reference disassembler ----

class DisassemblyTest : public ::testing::Test {
 protected:
  // iasl's source of a table; its messages go to `messages_`.
  std::string Disassemble(const Table& table) {
    const std::string path = directory_ / "table";
    std::ofstream(path + ".aml", std::ios::binary)
        .write(reinterpret_cast<const char*>(table.bytes().data()),
               static_cast<std::streamsize>(table.bytes().size()));
    const ProcessResult result = RunProcess({RINGSIDE_IASL, "-p", path, "-d", path + ".aml"});
    EXPECT_EQ(result.status, 0);
    messages_ = result.output + result.errors;
    std::stringstream source;
    source << std::ifstream(path + ".dsl").rdbuf();
    return source.str();
  }
  // What iasl finds wrong with the table, in its messages or in remarks within the source.
  std::vector<std::string> Complaints(const Table& table) {
    std::vector<std::string> complaints;
    std::stringstream lines(Disassemble(table) + messages_);
    for (std::string line; std::getline(lines, line);) {
      const std::regex bad("warning|error|invalid|incorrect|unknown|\\*\\*\\*", std::regex::icase);
      if (std::regex_search(line, bad)) complaints.push_back(line);
    }
    return complaints;
  }

  const testing::TempDirectory directory_;
  std::string messages_;
};

TEST_F(DisassemblyTest, OfEveryTableIsFreeOfErrorsAndWarnings) {
  const Tables tables(254);
  for (const auto& [signature, table] : tables.table) {
    EXPECT_THAT(Complaints(table), ElementsAre()) << signature;
    EXPECT_THAT(Disassemble(table), ContainsRegex(signature));
  }
}

// Else the test above could not fail.
TEST_F(DisassemblyTest, ComplainsAboutABrokenTable) {
  const Tables tables(1);
  for (const auto& [signature, table] : tables.table) {
    Bytes broken = table.bytes();
    broken.back() ^= 0x55;
    EXPECT_FALSE(Complaints(Table(broken)).empty()) << signature;
  }
}

// Numbers of a resource descriptor in the disassembled DSDT, in the order they stand there.
std::vector<uint64_t> Numbers(const std::string& source, const std::string& pattern) {
  std::smatch match;
  std::vector<uint64_t> numbers;
  if (!std::regex_search(source, match, std::regex(pattern))) return numbers;
  const std::string body = match[1].str();
  const std::regex number("0x[0-9A-Fa-f]+");
  for (std::sregex_iterator at(body.begin(), body.end(), number), end; at != end; ++at) {
    numbers.push_back(std::stoull(at->str(), nullptr, 16));
  }
  return numbers;
}

TEST_F(DisassemblyTest, OfTheDsdtHasTheAddressesOfTheMemoryLayout) {
  const Tables tables(1);
  const std::string source = Disassemble(tables.table.at("DSDT"));
  const std::string com1 = source.substr(source.find("Device (COM1)"));
  const std::string board = source.substr(source.find("Device (MBRD)"));
  const std::string pci = source.substr(source.find("Device (PCI0)"));
  const std::string events = source.substr(source.find("Device (GED0)"));
  const std::string generation = source.substr(source.find("Device (VGEN)"));
  const std::string clock = source.substr(source.find("Device (VCLK)"));
  const std::string panic = source.substr(source.find("Device (PEVT)"));

  EXPECT_THAT(Numbers(com1, "IO \\(Decode16,([^)]*)\\)"), ElementsAre(kCom1Port, kCom1Port, 1, 8));
  EXPECT_THAT(Numbers(com1,
                      "Interrupt \\(ResourceConsumer, Edge, ActiveHigh, Exclusive[^{]*"
                      "\\{([^}]*)\\}"),
              ElementsAre(kCom1Irq));
  EXPECT_THAT(Numbers(events,
                      "Interrupt \\(ResourceConsumer, Edge, ActiveHigh, Exclusive[^{]*"
                      "\\{([^}]*)\\}"),
              ElementsAre(kPowerButtonPin));
  EXPECT_THAT(Numbers(events, "Interrupt[^{]*\\{[^}]*\\}\\s*Interrupt[^{]*\\{([^}]*)\\}"),
              ElementsAre(kGenerationPin));
  EXPECT_THAT(Numbers(generation, "Name \\(ADDR, Package \\([^)]*\\)\\s*\\{([^}]*)\\}"),
              ElementsAre(kGenerationId));
  EXPECT_THAT(Numbers(clock, "Memory32Fixed \\(ReadOnly,([^)]*)\\)"),
              ElementsAre(kVmClock, kPageSize));
  EXPECT_THAT(Numbers(panic, "IO \\(Decode16,([^)]*)\\)"),
              ElementsAre(kPanicPort, kPanicPort, 1, PanicPort::kSize));
  EXPECT_THAT(Numbers(board, "Memory32Fixed \\(ReadWrite,([^)]*)\\)"),
              ElementsAre(kEcam, kEcamSize));
  EXPECT_THAT(Numbers(pci, "IO \\(Decode16,([^)]*)\\)"),
              ElementsAre(kPciConfigPort, kPciConfigPort, 1, 8));
  EXPECT_THAT(Numbers(pci, "DWordMemory \\(ResourceProducer,[^0]*([^)]*)\\)"),
              ElementsAre(0, kPciWindow, kPciWindow + kPciWindowSize - 1, 0, kPciWindowSize));
  // Granularity, first and last bus, translation, length: the buses that MCFG has.
  EXPECT_THAT(Numbers(pci, "WordBusNumber \\(ResourceProducer,[^0]*([^)]*)\\)"),
              ElementsAre(0, 0, 0, 0, kEcamSize / 0x100000));
}

// ACPI 6.5 sections 4.8.2.2.1.2 and 5.6.9: 0x80 says that a button was pressed.
TEST_F(DisassemblyTest, OfTheDsdtNotifiesWhatTheInterruptIsOf) {
  const Tables tables(1);
  const std::string source = Disassemble(tables.table.at("DSDT"));
  EXPECT_THAT(source, ContainsRegex("Device \\(PWRB\\)[^}]*EisaId \\(\"PNP0C0C\"\\)"));
  EXPECT_THAT(source, ContainsRegex("Device \\(GED0\\)[^}]*\"ACPI0013\""));
  EXPECT_THAT(source, ContainsRegex("Device \\(VGEN\\)[^}]*\"VM_Gen_Counter\""));
  EXPECT_THAT(source, ContainsRegex("Device \\(VCLK\\)[^}]*\"AMZNC10C\"[^}]*\"VMCLOCK\""));
  EXPECT_THAT(source, ContainsRegex("Method \\(_EVT, 1,[^}]*== 0x10[^}]*Notify \\(PWRB, 0x80\\)"
                                    "[^}]*\\}[^}]*Else[^}]*Notify \\(VGEN, 0x80\\)"
                                    "[^}]*Notify \\(VCLK, 0x80\\)"));
}

TEST_F(DisassemblyTest, OfTheDsdtHasTheSleepTypeThatPowersOff) {
  const Tables tables(1);
  const auto s5 = Numbers(Disassemble(tables.table.at("DSDT")), "Name \\(_S5,[^{]*\\{([^}]*)\\}");
  ASSERT_FALSE(s5.empty());
  EXPECT_EQ(s5[0], SleepRegisters::kSleepTypeS5);
}

}  // namespace
}  // namespace ringside
