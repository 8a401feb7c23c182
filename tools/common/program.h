// program: what every program does the same way: its standard files, small files read whole, the end of its output.
// Errors:   read_text_file: INVALID_ARGUMENT; the detail is a whole sentence for a person, path included.
#pragma once

#include <string>

#include "core/base/result.h"

namespace mortar {

// First thing in main. A closed standard descriptor would become the number of the next file that is opened: what is
// printed would then go into a data file or a socket. Writing to a standard output that was closed fails afterwards.
void open_standard_files();

// Of a regular file or a pipe; never more than bytes_max.
Result<std::string> read_text_file(const std::string& path, std::size_t bytes_max);

// Last thing in main: exit_code, or lost_exit_code with a line on stderr when something of what was printed to the standard
// output did not get there.
int finish_output(const char* program, int exit_code, int lost_exit_code);

}  // namespace mortar
