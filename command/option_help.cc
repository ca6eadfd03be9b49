#include "command/option_help.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "command/run_options.h"
#include "vmm/options.h"

namespace ringside {
namespace {

constexpr size_t kColumns = 100;
constexpr size_t kKeyColumns = 30;

// The words of `text`, in lines that begin in column `indent`.
std::string Wrap(const std::string& text, size_t indent) {
  std::string wrapped;
  size_t column = indent;
  for (const absl::string_view word : absl::StrSplit(text, ' ')) {
    if (column > indent && column + 1 + word.size() > kColumns) {
      wrapped += '\n' + std::string(indent, ' ');
      column = indent;
    } else if (column > indent) {
      wrapped += ' ';
      ++column;
    }
    wrapped.append(word.data(), word.size());
    column += word.size();
  }
  return wrapped;
}

std::string KeyHelp(const OptionDoc& option) {
  std::vector<std::string> facts;
  if (!option.values.empty()) facts.push_back(option.values);
  if (option.is_required) facts.emplace_back("required");
  if (!option.is_required && !option.unset.empty()) facts.push_back("default: " + option.unset);
  std::string text = option.doc;
  if (!facts.empty()) text += " (" + absl::StrJoin(facts, "; ") + ')';
  std::string key = "  " + option.name + '=' + option.placeholder;
  if (key.size() >= kKeyColumns) {
    key += '\n' + std::string(kKeyColumns, ' ');
  } else {
    key.resize(kKeyColumns, ' ');
  }
  return key + Wrap(text, kKeyColumns) + '\n';
}

bool Has(const std::vector<OptionDoc>& options, const OptionDoc& option) {
  return std::ranges::any_of(options, [&](const OptionDoc& other) {
    return other.name == option.name && other.doc == option.doc;
  });
}

// Options that all kinds have are said once, behind those that only some have.
std::vector<OptionDoc> CommonOptions(const OptionGroup& group) {
  std::vector<OptionDoc> common;
  for (const OptionDoc& option : group.parts.front().options) {
    const bool in_all = std::ranges::all_of(
        group.parts, [&](const OptionGroup::Part& part) { return Has(part.options, option); });
    if (in_all) common.push_back(option);
  }
  return common;
}

// "`auto`, `on`, `off`", which no bar of a table cuts in two.
std::string Code(const std::string& text) {
  return '`' + absl::StrReplaceAll(text, {{"|", "`, `"}}) + '`';
}

std::string MarkdownTable(const std::vector<OptionDoc>& options, const std::string& dashes) {
  std::string table = "| option | values | default | meaning |\n| --- | --- | --- | --- |\n";
  for (const OptionDoc& option : options) {
    const std::string values =
        option.values.empty() ? "" : " " + absl::StrReplaceAll(option.values, {{"|", "\\|"}});
    const std::string unset = option.is_required ? "required" : option.unset;
    absl::StrAppendFormat(&table, "| `%s%s` | %s%s | %s | %s |\n", dashes, option.name,
                          Code(option.placeholder), values.empty() ? "" : ":" + values, unset,
                          option.doc);
  }
  return table;
}

std::string GroupMarkdown(const OptionGroup& group) {
  const std::string doc =
      absl::StrCat(std::string(1, absl::ascii_toupper(group.doc[0])), group.doc.substr(1));
  std::string text = absl::StrFormat(
      "\n## `--%s`\n\n%s.\n\nForms: %s%s. In JSON: `\"%s\"`%s.\n", group.flag, doc,
      Code(group.forms), group.repeats ? "; it may be given several times" : "", group.json,
      group.repeats            ? ", a list of objects with these keys"
      : group.flag == "serial" ? ": `\"stdio\"`, `\"none\"` or an object with these keys"
                               : ": an object with these keys");
  if (group.parts.size() == 1) {
    return text + '\n' + MarkdownTable(group.parts.front().options, "");
  }
  const std::vector<OptionDoc> common = CommonOptions(group);
  for (const OptionGroup::Part& part : group.parts) {
    std::vector<OptionDoc> own = part.options;
    std::erase_if(own, [&](const OptionDoc& option) { return Has(common, option); });
    absl::StrAppendFormat(&text, "\n### `type=%s`: %s\n\n%s", part.kind, part.doc,
                          MarkdownTable(own, ""));
  }
  return text + "\n### All types\n\n" + MarkdownTable(common, "");
}

constexpr char kMarkdownHead[] =
    R"(<!-- Made by 'ringside config --markdown' from the tables of options: change those. -->
# Options

What a machine is can be said in three ways, with the same names and values: the flags of `ringside
run`, a JSON file (`--config vm.json`), and, for embedders, the members of `MachineConfig`. Flags that
are given beside a file override its members; a flag that repeats replaces the file's whole list.
`--print-config` prints the JSON of what flags and file say together, and `ringside config --schema` a
JSON Schema, which a file may name for editors by `"$schema"`. A member that is `null` is as if it
were not there.

```json
{
  "kernel": "vmlinuz",
  "memory": "2G",
  "disks": [{ "path": "root.img", "queues": 2 }, { "type": "null", "size": "1G" }],
  "iothreads": [{ "id": "a", "poll": "cost", "price": 0.5 }],
  "vfio": ["0000:00:05.0"],
  "serial": { "file": "console.log", "limit": "1M" }
}
```

| value | on a command line | in JSON |
| --- | --- | --- |
| `SIZE` | bytes, or with K, M, G or T: `512M` | the same as a string, or a number of bytes |
| `TIME` | with a unit: `32us`, `1.5ms`, `30s`; or `0` | the same as a string |
| `N%` | `20%` | the same as a string |
| `on`, `off` | `on`, `off` | `true`, `false` |
| `CPUS` | numbers and ranges: `0-2+5` | `[0, 1, 2, 5]`, or the same as a string |
| `VCPU:CPUS` | `0:2,1:3-4+6` | by vCPU: `[[2], [3, 4, 6]]`, or the same as a string |
| threads | `a+b`, `a:0+3/b:1-2` | `["a", "b"]`, `[{ "id": "a", "queues": [0, 3] }, ...]`, or the same as a string |
| text | as it is; among keys a comma in it is written twice | a string |

A JSON file has at most 1 MiB; a key that it has twice is refused.

## The machine

)";

}  // namespace

std::string KeysHelp() {
  std::string text;
  for (const OptionGroup& group : OptionGroups()) {
    if (group.flag.empty()) continue;
    absl::StrAppendFormat(&text, "Keys of --%s:\n", group.flag);
    std::vector<OptionDoc> common;
    if (group.parts.size() > 1) common = CommonOptions(group);
    for (const OptionGroup::Part& part : group.parts) {
      if (!part.kind.empty()) absl::StrAppendFormat(&text, " type=%s, %s:\n", part.kind, part.doc);
      for (const OptionDoc& option : part.options) {
        if (!Has(common, option)) text += KeyHelp(option);
      }
    }
    if (!common.empty()) text += " any type:\n";
    for (const OptionDoc& option : common) text += KeyHelp(option);
    text += '\n';
  }
  return text;
}

std::string OptionsMarkdown() {
  std::string text = kMarkdownHead;
  for (const OptionGroup& group : OptionGroups()) {
    text += group.flag.empty() ? MarkdownTable(group.parts.front().options, "--")
                               : GroupMarkdown(group);
  }
  text += "\n## What else `ringside run` does\n\n| option | meaning |\n| --- | --- |\n";
  for (const RunOption& option : OwnRunOptions()) {
    std::string flag = std::string("--") + option.name;
    if (*option.placeholder != '\0') flag += std::string(" ") + option.placeholder;
    absl::StrAppendFormat(&text, "| `%s` | %s |\n", flag, option.doc);
  }
  return text;
}

}  // namespace ringside
