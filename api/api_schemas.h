// The JSON Schemas that the OpenAPI document names.
#pragma once

#include "vmm/option_type.h"

namespace ringside {

// By name. What has "*" as a key stands for keys that are not known beforehand.
Json ApiSchemas();

}  // namespace ringside
