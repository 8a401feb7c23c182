// os_error: what the OS says went wrong, as text and as our codes.
#pragma once

#include <string>
#include <system_error>

#include "core/base/result.h"

namespace mortar {

inline std::string os_reason(int error_number) {
    return std::generic_category().message(error_number);
}

}  // namespace mortar
