// The control interface as an OpenAPI 3.1 document: docs/openapi.json, and what a server answers
// for /ringside/v1/openapi.json. Made from the table of calls; the schemas of what is answered are
// taken from answers, made of statistics with one of everything.
//
// Threads: any.
#pragma once

#include "vmm/option_type.h"

namespace ringside {

Json OpenApiDocument();

}  // namespace ringside
