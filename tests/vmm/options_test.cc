// Every option of the tables, from the text of a command line and from JSON, into the configuration
// and back, and the ranges of all.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/status.h"
#include "vmm/config_json.h"
#include "vmm/disk_options.h"
#include "vmm/io_thread_options.h"
#include "vmm/machine_options.h"
#include "vmm/options.h"

namespace ringside {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

// A value in the two forms in which users write it. It prints as `json`.
struct Sample {
  Json json;
  std::string text;
};

// An option where it stands: "--disk type=null,size=512,KEY=VALUE", "disks": [{..., "KEY": VALUE}].
struct Place {
  std::string flag;  // "disk"; empty: the option is a flag
  std::string json;  // "disks"
  bool repeats = false;
  Json others = Json::object();  // what else the object needs, all of it text
  OptionSpec spec;
  Json unset;  // as it is printed by default

  std::string Name() const { return (flag.empty() ? "" : flag + " ") + spec.name; }

  absl::StatusOr<Json> FromText(const std::string& text) const {
    MachineOptions options;
    std::string whole = text;
    if (!flag.empty()) {
      whole.clear();
      for (const auto& [key, value] : others.items()) {
        if (key != spec.name) whole += key + "=" + value.get<std::string>() + ",";
      }
      whole += std::string(spec.name) + "=" + text;
    }
    const absl::Status status =
        SetOption(flag.empty() ? spec.name : flag, std::vector<std::string>{whole}, options);
    return Printed(status, options);
  }
  absl::StatusOr<Json> FromJson(const Json& value) const {
    MachineOptions options;
    Json object = others;
    object[spec.name] = value;
    if (repeats) object = Json::array({object});
    return Printed(ReadOptions(flag.empty() ? object : Json{{json, object}}, options), options);
  }

 private:
  absl::StatusOr<Json> Printed(const absl::Status& status, const MachineOptions& options) const {
    if (!status.ok()) return status;
    const Json printed = *PrintOptions(options);
    const Json& object = flag.empty() ? printed : repeats ? printed[json][0] : printed[json];
    return object.contains(spec.name) ? object[spec.name] : Json();
  }
};

template <typename Object>
void Append(std::vector<Place>& places, const OptionTable<Object>& table, const Object& defaults,
            Place place) {
  for (const Option<Object>& option : table.options) {
    place.spec = option.spec();
    place.unset = PrintValue(option.spec(), option.Get(defaults));
    places.push_back(place);
  }
}

std::vector<Place> AllPlaces() {
  std::vector<Place> places;
  Append(places, MachineOwnOptions(), MachineConfig(), {});
  Append(places, SerialFileOptions(), SerialOptions(),
         {.flag = "serial", .json = "serial", .others = {{"file", "f"}}});
  const std::map<std::string, std::string> required = {{"path", "p"},
                                                       {"size", "512"},
                                                       {"url", "nvme://0000:00:04.0/1"},
                                                       {"base", "b"},
                                                       {"overlay", "o"}};
  for (const DiskKind& kind : DiskKinds()) {
    Json others = {{"type", kind.name}};
    for (const auto& [key, value] : required) {
      if (kind.table.Find(key) != nullptr) others[key] = value;
    }
    Append(places, kind.table, kind.make(),
           {.flag = "disk", .json = "disks", .repeats = true, .others = others});
  }
  Append(places, IoThreadOptions(), IoThreadConfig(),
         {.flag = "iothread", .json = "iothreads", .repeats = true});
  Append(places, AssignedOptions(), AssignedConfig(),
         {.flag = "vfio", .json = "vfio", .repeats = true, .others = {{"address", "a"}}});
  return places;
}

// A whole number, a size or a time.
bool IsCounted(const OptionType& type) {
  return type.kind == OptionKind::kWhole || type.kind == OptionKind::kSize ||
         type.kind == OptionKind::kTime;
}

bool IsPositive(const OptionType& type) {
  return type.kind == OptionKind::kReal || type.kind == OptionKind::kShare;
}

Sample Number(const OptionSpec& spec, const Json& canonical) {
  return {PrintValue(spec, canonical), ValueText(spec, canonical)};
}

// In range, and not the default.
std::vector<Sample> SamplesOf(const Place& place) {
  const OptionType& type = place.spec.type;
  switch (type.kind) {
    case OptionKind::kText:
    case OptionKind::kPath:
      return {{"sample", "sample"}, {"a b=c", "a b=c"}};
    case OptionKind::kId:
      return {{"a.b-c_1", "a.b-c_1"}};
    case OptionKind::kNvmeUrl:
      return {{"nvme://00ff:ae:1f.7/4294967294", "nvme://00ff:ae:1f.7/4294967294"},
              {"nvme+user:///run/a.b/1/c.sock/12", "nvme+user:///run/a.b/1/c.sock/12"}};
    case OptionKind::kReal:
    case OptionKind::kShare:
      return {Number(place.spec, type.real_most / 4), Number(place.spec, type.real_most / 8)};
    case OptionKind::kSwitch:
      return {Number(place.spec, !place.unset.get<bool>())};
    case OptionKind::kChoice: {
      std::vector<Sample> samples;
      for (const char* choice : type.choices) {
        if (place.unset != choice) samples.push_back({choice, choice});
      }
      return samples;
    }
    case OptionKind::kCpus:
      return {{Json::array({0, 1, 5}), "0-1+5"}, {Json::array({7}), "7"}};
    case OptionKind::kNodes:
      return {{Json::array({0, 2, 3}), "0,2-3"}, {Json::array({1}), "1"}};
    case OptionKind::kAffinity:
      return {{Json::parse("[[1],[],[3,4,6]]"), "2:3-4+6,0:1"}};
    case OptionKind::kPaths:
      return {{Json::array({"a.img", "b+c", "d"}), "a.img+b++c+d"}, {Json::array({"a"}), "a"}};
    case OptionKind::kWords:
      return {{Json::array({"a b", "c\\", "d"}), "a\\ b c\\\\ d"}, {Json::array({"a"}), " a  "}};
    case OptionKind::kIoThreads:
      return {
          {Json::parse(R"(["a","b"])"), "a+b"},
          {Json::parse(R"([{"id":"a","queues":[0,3]},{"id":"b","queues":[1,2]}])"), "a:0+3/b:1-2"}};
    default:
      break;
  }
  // The ends of the range, and what lies between.
  std::vector<Sample> samples;
  const uint64_t most = type.most == UINT64_MAX ? type.least + 1000 * type.multiple : type.most;
  for (const uint64_t value :
       {type.least, type.least + type.multiple,
        type.least + (most - type.least) / type.multiple / 2 * type.multiple, most}) {
    const Sample sample = Number(place.spec, value);
    if (sample.json != place.unset) samples.push_back(sample);
  }
  return samples;
}

// One beyond each end.
std::vector<Sample> BeyondRange(const OptionSpec& spec) {
  const OptionType& type = spec.type;
  std::vector<Sample> samples;
  if (IsCounted(type)) {
    if (type.least > 0) samples.push_back(Number(spec, type.least - 1));
    if (type.most != UINT64_MAX) samples.push_back(Number(spec, type.most + 1));
    if (type.kind == OptionKind::kWhole) samples.push_back({-1, "-1"});
    if (type.kind == OptionKind::kTime) samples.push_back({"-1ns", "-1ns"});
  } else if (IsPositive(type)) {
    for (const double value : {0.0, -0.5, type.real_most * 1.001}) {
      samples.push_back(Number(spec, value));
    }
  }
  return samples;
}

void PrintTo(const Place& place, std::ostream* out) {
  *out << place.Name();
}

class EveryOptionTest : public ::testing::TestWithParam<Place> {};

TEST_P(EveryOptionTest, IsSetAndReadBackFromTextAndFromJson) {
  const std::vector<Sample> samples = SamplesOf(GetParam());
  ASSERT_FALSE(samples.empty());
  for (const Sample& sample : samples) {
    EXPECT_NE(sample.json, GetParam().unset);
    const auto from_text = GetParam().FromText(sample.text);
    ASSERT_TRUE(from_text.ok()) << from_text.status();
    EXPECT_EQ(*from_text, sample.json) << sample.text;
    const auto from_json = GetParam().FromJson(sample.json);
    ASSERT_TRUE(from_json.ok()) << from_json.status();
    EXPECT_EQ(*from_json, sample.json);
  }
}

TEST_P(EveryOptionTest, IsRefusedBeyondItsRange) {
  for (const Sample& sample : BeyondRange(GetParam().spec)) {
    for (const auto& result :
         {GetParam().FromText(sample.text), GetParam().FromJson(sample.json)}) {
      EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument) << sample.text;
      EXPECT_THAT(std::string(Message(result.status())),
                  ::testing::ContainsRegex(std::string(GetParam().spec.name) +
                                           ".* is out of range: (give|a .* has) .*"));
    }
  }
}

// No option takes all of them.
TEST_P(EveryOptionTest, IsRefusedWhereItsTypeIsAnother) {
  int refused = 0;
  for (const Json& other : {Json(), Json(true), Json(7), Json("~"), Json::array({"~", 1.5}),
                            Json::object({{"~", 1}})}) {
    const auto result = GetParam().FromJson(other);
    if (!result.ok()) {
      EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument);
      EXPECT_THAT(std::string(Message(result.status())), HasSubstr(GetParam().spec.name));
      ++refused;
    }
  }
  EXPECT_GE(refused, 5);
  // It would end a path.
  EXPECT_FALSE(GetParam().FromJson(std::string("a\0b", 3)).ok());
}

TEST_P(EveryOptionTest, IsInTheSchemaWithItsDefault) {
  const Json schema = OptionSchema();
  const Json* properties = &schema["properties"];
  if (!GetParam().flag.empty()) {
    const Json* object = &schema["properties"][GetParam().json];
    if (GetParam().repeats) object = &(*object)["items"];
    if (object->contains("anyOf")) object = &(*object)["anyOf"][1];
    if (object->contains("oneOf")) {
      for (const Json& kind : (*object)["oneOf"]) {
        if (kind["properties"]["type"]["const"] == GetParam().others["type"]) object = &kind;
      }
    }
    properties = &(*object)["properties"];
  }
  ASSERT_TRUE(properties->contains(GetParam().spec.name));
  const Json& property = (*properties)[GetParam().spec.name];
  EXPECT_THAT(property["description"].get<std::string>(), StartsWith(GetParam().spec.doc));
  EXPECT_EQ(property.contains("default") ? property["default"] : Json(), GetParam().unset);
}

INSTANTIATE_TEST_SUITE_P(, EveryOptionTest, ::testing::ValuesIn(AllPlaces()), [](const auto& info) {
  std::string name = info.param.others.value("type", "") + "_" + info.param.Name();
  std::erase_if(name, [](unsigned char c) { return !std::isalnum(c); });
  return name + std::to_string(info.index);
});

// ---- What a struct holds ----

// A struct takes any number: it is refused when a machine is to be made of it.
template <typename Object>
int CheckTable(const OptionTable<Object>& table, const Object& valid) {
  EXPECT_TRUE(CheckObject(table, {}, valid).ok()) << CheckObject(table, {}, valid);
  int checked = 0;
  for (const Option<Object>& option : table.options) {
    const OptionType& type = option.spec().type;
    std::vector<Json> beyond;
    if (IsCounted(type) && type.least > 0) beyond.push_back(type.least - 1);
    if (IsCounted(type) && type.most != UINT64_MAX) beyond.push_back(type.most + 1);
    if (IsPositive(type)) beyond = {0.0, -1.0, type.real_most * 1.001, std::nan("")};
    if (type.kind == OptionKind::kText && type.most != UINT64_MAX) {
      beyond = {std::string(type.most + 1, 's'), "\n"};
    }
    if (type.kind == OptionKind::kId) beyond = {"a+b", std::string(65, 'a')};
    for (const Json& value : beyond) {
      Object object = valid;
      option.Set(value, object);
      if (option.Get(object).is_null()) continue;  // the value that stands for none
      const absl::Status status = CheckObject(table, {.prefix = "here."}, object);
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << option.spec().name << value;
      EXPECT_THAT(std::string(Message(status)),
                  StartsWith(std::string("here.") + option.spec().name));
      ++checked;
    }
  }
  return checked;
}

TEST(OptionRangesTest, AreHeldAgainstStructs) {
  MachineConfig machine;
  machine.kernel = "k";
  EXPECT_GE(CheckTable(MachineOwnOptions(), machine), 5);
  EXPECT_GE(CheckTable(IoThreadOptions(), {}), 15);
  for (const DiskKind& kind : DiskKinds()) {
    DiskConfig disk = kind.make();
    for (const char* key : {"path", "url", "size", "base", "overlay"}) {
      const auto* option = kind.table.Find(key);
      if (option == nullptr) continue;
      if (key == std::string("base")) {
        option->Set(Json::array({"b"}), disk);
        continue;
      }
      option->Set(key == std::string("size") ? Json(512) : Json("nvme://0000:00:04.0/1"), disk);
    }
    EXPECT_GE(CheckTable(kind.table, disk), 5) << kind.name;
  }
  EXPECT_GE(CheckTable(AssignedOptions(), {.address = "a"}), 2);
}

std::string CheckError(const std::function<void(MachineConfig&)>& change) {
  MachineConfig config;
  config.kernel = "k";
  EXPECT_TRUE(CheckOptions(config).ok());
  change(config);
  return std::string(Message(CheckOptions(config)));
}

TEST(ReadOptionsTest, AFileMayNameItsSchema) {
  MachineOptions options;
  EXPECT_EQ(ReadOptions({{"$schema", "./options.schema.json"}, {"cpus", 2}}, options),
            absl::OkStatus());
  EXPECT_EQ(options.machine.cpus, 2u);
  EXPECT_FALSE(PrintOptions(options)->contains("$schema"));
  EXPECT_FALSE(ReadOptions({{"$schema", 1}}, options).ok());
  EXPECT_FALSE(ReadOptions({{"vsock", {{"$schema", "x"}, {"cid", 3}}}}, options).ok());
}

TEST(CheckOptionsTest, NamesTheObject) {
  EXPECT_EQ(CheckError([](MachineConfig& c) { c.cpus = 255; }),
            "cpus=255 is out of range: a machine has 1 to 254 vCPUs");
  EXPECT_EQ(CheckError([](MachineConfig& c) { c.memory = (64 << 20) + 1; }),
            "memory=67108865 is not a multiple of 4096 bytes");
  EXPECT_EQ(CheckError([](MachineConfig& c) { c.halt_poll = -absl::Seconds(1); }),
            "halt-poll='-1s' is out of range: give 0 to 1s, or kernel");
  EXPECT_EQ(CheckError([](MachineConfig& c) {
              c.disks = {{.backend = FileConfig{.path = "a"}},
                         {.backend = FileConfig{.path = "b"}, .queues = 17}};
            }),
            "disks[1].queues=17 is out of range: a disk has 1 to 16 queues");
  EXPECT_THAT(CheckError([](MachineConfig& c) { c.disks = {{.backend = FileConfig()}}; }),
              StartsWith("disks[0].path is missing: "));
  EXPECT_EQ(CheckError([](MachineConfig& c) {
              c.io_threads.resize(2);
              c.io_threads[1].tuning.poll.grow = 1;
            }),
            "iothreads[1].grow=1 is out of range: give 2 to 1000");
  EXPECT_THAT(CheckError([](MachineConfig& c) { c.kernel.clear(); }), StartsWith("kernel is miss"));
}

TEST(CheckOptionsTest, AFileForTheSerialPortHasAName) {
  MachineOptions options;
  options.machine.kernel = "k";
  options.serial.target = SerialOptions::Target::kFile;
  EXPECT_THAT(std::string(Message(CheckOptions(options))), StartsWith("serial.file is missing"));
}

TEST(CheckOptionsTest, HugePagesAreWholeOnes) {
  EXPECT_EQ(CheckError([](MachineConfig& c) {
              c.huge_pages = HugePages::k2M;
              c.memory = (64 << 20) + 4096;
            }),
            "hugepages 2M has no room for 67112960 bytes of memory: give a multiple of 2M");
  EXPECT_EQ(CheckError([](MachineConfig& c) {
              c.huge_pages = HugePages::kTransparent;
              c.memory = (64 << 20) + 4096;
            }),
            "");
}

TEST(CheckOptionsTest, HugePagesAreForMemoryOfItsOwn) {
  const auto restored = [](HugePages pages, const std::function<void(MachineConfig&)>& change) {
    return CheckError([&](MachineConfig& c) {
      c.kernel.clear();
      c.restore = "snap";
      c.huge_pages = pages;
      change(c);
    });
  };
  const auto change_nothing = [](MachineConfig&) {};
  EXPECT_EQ(restored(HugePages::kOff, change_nothing), "");
  EXPECT_EQ(restored(HugePages::k2M, change_nothing),
            "hugepages 2M is for memory of the machine's own, and this one has it from 'snap': "
            "give restore-memory=copied, or leave hugepages out");
  EXPECT_THAT(restored(HugePages::kTransparent,
                       [](MachineConfig& c) { c.restore_memory = RestoreMemory::kMapped; }),
              StartsWith("hugepages transparent is for memory of the machine's own, and"));
  EXPECT_THAT(
      restored(HugePages::k2M, [](MachineConfig& c) { c.restore_handler = "uffd.sock"; }),
      HasSubstr("from 'uffd.sock': give restore-memory=copied, and no restore-handler, or"));
  EXPECT_EQ(
      restored(HugePages::k2M, [](MachineConfig& c) { c.restore_memory = RestoreMemory::kCopied; }),
      "");
  EXPECT_EQ(restored(HugePages::k2M,
                     [](MachineConfig& c) {
                       c.disks = {{.backend = NvmeConfig{.address = "0000:00:04.0"}}};
                     }),
            "")
      << "it is copied by itself";
}

// Seventeen bytes of text are 8,192 numbers.
TEST(CheckOptionsTest, ListsAreNoLongerThanAMachineCanUse) {
  MachineOptions options;
  Json threads = Json::array();
  for (int i = 0; i < 65; ++i) threads.push_back({{"cpu", "0-8191"}});
  EXPECT_EQ(Message(ReadOptions({{"iothreads", threads}}, options)),
            "iothreads has 65 items, and no machine has more than 64");
  threads.erase(0);
  EXPECT_TRUE(ReadOptions({{"iothreads", threads}}, options).ok());
  const auto disk = [&](const char* shares) {
    return ReadOptions({{"disks", {{{"path", "p"}, {"type", "file"}, {"iothreads", shares}}}}},
                       options);
  };
  EXPECT_EQ(Message(ReadOptions({{"net", threads}}, options)),
            "net is unknown: did you mean 'networks'?");
  EXPECT_TRUE(disk("a:0-63/b:0-63").ok());
  EXPECT_FALSE(disk("a:0-64").ok());
}

TEST(CheckOptionsTest, IdsAreUniqueAmongAllDevices) {
  const DiskConfig disk = {.backend = FileConfig{.path = "p"}};
  EXPECT_EQ(CheckError([&](MachineConfig& c) {
              c.disks = {disk, disk};
              c.disks[0].id = "disk1";
            }),
            "two devices have the id 'disk1': give each its own");
  const auto given = [&](const char* id) {
    return CheckError([&](MachineConfig& c) {
      c.disks = {disk};
      c.disks[0].id = id;
      c.networks = {{.tap = "t"}};
      c.devices = {{.id = "own"}};
      c.assigned = {{.address = "a"}};
    });
  };
  for (const char* id : {"own", "net0", "vfio0", "rng"})
    EXPECT_THAT(given(id), StartsWith("two devices"));
  EXPECT_EQ(given("disk0"), "");
  EXPECT_EQ(given("root"), "");
}

}  // namespace
}  // namespace ringside
