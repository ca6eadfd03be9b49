#include "command/json_table.h"

#include <algorithm>
#include <vector>

#include "base/printable.h"
#include "vmm/json_text.h"

namespace ringside {
namespace {

using Row = std::vector<std::string>;

// Bounds for what an answer may make a table of.
constexpr size_t kMostColumns = 64;
constexpr size_t kWidest = 64;  // bytes; a longer cell moves what is behind it

std::string Cell(const Json& value) {
  if (value.is_string()) return Printable(value.get_ref<const std::string&>());
  return Printable(JsonText(value));
}

// Columns as wide as their widest cell, within reason.
std::string Aligned(const std::vector<Row>& rows, size_t indent) {
  std::vector<size_t> widths;
  for (const Row& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) {
      widths[i] = std::max(widths[i], std::min(row[i].size(), kWidest));
    }
  }
  std::string text;
  for (const Row& row : rows) {
    std::string line(indent, ' ');
    for (size_t i = 0; i < row.size(); ++i) {
      line += row[i] + std::string(std::max(widths[i], row[i].size()) - row[i].size() + 2, ' ');
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + '\n';
  }
  return text;
}

std::string ListTable(const Json& list, size_t indent) {
  Row names;
  for (const Json& item : list) {
    if (!item.is_object()) return std::string(indent, ' ') + Cell(list) + '\n';
    for (const auto& [name, value] : item.items()) {
      if (!value.is_structured() && std::ranges::find(names, name) == names.end()) {
        names.push_back(name);
      }
    }
    if (names.size() > kMostColumns) return std::string(indent, ' ') + Cell(list) + '\n';
  }
  std::vector<Row> rows(1);
  for (const std::string& name : names) rows.front().push_back(Printable(name));
  for (const Json& item : list) {
    Row row;
    for (const std::string& name : names) {
      row.push_back(item.contains(name) ? Cell(item[name]) : "");
    }
    rows.push_back(std::move(row));
  }
  return Aligned(rows, indent);
}

std::string ObjectTable(const Json& object, size_t indent) {
  std::vector<Row> rows;
  std::string inner;
  for (const auto& [name, value] : object.items()) {
    const std::string title = Printable(name);
    if (!value.is_structured()) {
      rows.push_back({title, Cell(value)});
    } else if (!value.empty()) {
      inner += std::string(indent, ' ') + title + ":\n";
      inner += value.is_array() ? ListTable(value, indent + 2) : ObjectTable(value, indent + 2);
    }
  }
  return Aligned(rows, indent) + inner;
}

}  // namespace

std::string JsonTable(const Json& json) {
  if (json.is_object()) return ObjectTable(json, 0);
  if (json.is_array()) return json.empty() ? "none\n" : ListTable(json, 0);
  return Cell(json) + '\n';
}

}  // namespace ringside
