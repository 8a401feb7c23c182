// Prints docs/errors.md.
#include "tools/errors_doc.h"

#include <cstdio>

int main() {
    const std::string text = mortar::render_errors_doc();
    return std::fputs(text.c_str(), stdout) < 0 || std::fflush(stdout) != 0 ? 1 : 0;
}
