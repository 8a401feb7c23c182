// errors_doc: docs/errors.md as text, from the one table of codes.
// Source: contract 3, contract R2.
#pragma once

#include <fmt/format.h>

#include <string>

#include "core/base/errors.h"

namespace mortar {

inline std::string render_errors_doc() {
    struct Segment {
        unsigned first;
        const char* title;
    };
    constexpr Segment SEGMENTS[] = {{0x0000, "0x0xxx: protocol and session"},
                                    {0x2000, "0x2xxx: metadata"},
                                    {0x4000, "0x4xxx: backpressure and quota"},
                                    {0x6000, "0x6xxx: replication"}};
    constexpr const char* OUTCOMES[] = {"refused", "not executed", "unknown"};

    std::string text =
        "# Error codes\n\n"
        "Generated from `core/base/errors.def` by `errors_doc > docs/errors.md`; do not edit.\n\n"
        "The code is the first field of ERR. Codes only grow: none changes its meaning, none is "
        "used again.\n\n"
        "- **closes**: the broker closes the connection after the ERR.\n"
        "- **outcome**: *not executed*: the request changed nothing. *unknown*: it may have been "
        "executed, and sending the\n"
        "  same request again is safe (a PUB with producer_id 0 may double). *refused*: it was "
        "judged, and will be judged\n"
        "  the same again.\n"
        "- **library retries**: the client library sends the same request again by itself; it "
        "reports every other error.\n";
    for (const Segment& segment : SEGMENTS) {
        text += fmt::format(
            "\n## {}\n\n| code | name | closes | outcome | library retries | client does "
            "|\n|---|---|---|---|---|---|\n",
            segment.title);
        for (const ErrorInfo& info : all_errors()) {
            const unsigned number = static_cast<unsigned>(info.code);
            if (number < segment.first || number > segment.first + 0x0FFF) continue;
            text += fmt::format("| 0x{:04x} | {} | {} | {} | {} | {} |\n", number, info.name,
                                info.closes ? "yes" : "", OUTCOMES[static_cast<int>(info.outcome)],
                                info.retryable ? "yes" : "", info.client_does);
        }
    }
    return text;
}

}  // namespace mortar
