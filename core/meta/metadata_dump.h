// metadata_dump: MMML and MMMS files as text, a line a record, checksums verified.
// Shape:   each function hands lines to a sink, damage too, and says whether the file is sound. Nothing is changed.
//          A record that is not there at the end of a log (a torn tail) counts as damage: a person asked.
#pragma once

#include <functional>
#include <string>

#include "core/meta/catalog.h"

namespace mortar {

using DumpLine = std::function<void(const std::string& line)>;

std::string describe_mutation(const Mutation& mutation);
// path: for messages. UNSUPPORTED_FORMAT is reported as a line, too.
bool dump_metadata_log(ByteSpan file, const std::string& path, const DumpLine& line);
bool dump_metadata_snapshot(ByteSpan file, const std::string& path, const DumpLine& line);

}  // namespace mortar
