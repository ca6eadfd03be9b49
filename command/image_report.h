// What `ringside image` says of images and of what was done to them, for people and for programs.
// The names in JSON are kept.
#pragma once

#include <string>
#include <vector>

#include "image/backup.h"
#include "image/create.h"
#include "image/inspect.h"
#include "vmm/option_type.h"

namespace ringside {

Json CreateJson(const CreateResult& result);
Json InfoJson(const ImageInfo& info);
std::string InfoText(const ImageInfo& info);
bool IsSound(const std::vector<CheckFinding>& findings);
Json CheckJson(const std::vector<CheckFinding>& findings);
std::string CheckText(const std::vector<CheckFinding>& findings);
Json DiffJson(const DiffResult& result);
std::string DiffText(const DiffResult& result);
Json ApplyJson(const ApplyResult& result);

}  // namespace ringside
