#include "core/base/errors.h"

#include <algorithm>
#include <iterator>

#include "core/base/assert.h"

namespace mortar {
namespace {
constexpr bool CLOSES = true;
constexpr bool STAYS = false;
constexpr bool YES = true;
constexpr bool NO = false;
constexpr ErrorInfo TABLE[] = {
#define MORTAR_ERROR(number, name, closes, outcome, retryable, text) \
    {ErrorCode::name, #name, closes, ErrorOutcome::outcome, retryable, text},
#include "core/base/errors.def"
#undef MORTAR_ERROR
};
}  // namespace

std::span<const ErrorInfo> all_errors() {
    return TABLE;
}

const ErrorInfo* find_error(std::uint16_t number) {
    const auto* row = std::lower_bound(std::begin(TABLE), std::end(TABLE), number,
                                       [](const ErrorInfo& info, std::uint16_t n) {
                                           return static_cast<std::uint16_t>(info.code) < n;
                                       });
    if (row == std::end(TABLE) || static_cast<std::uint16_t>(row->code) != number) return nullptr;
    return row;
}

const ErrorInfo& error_info(ErrorCode code) {
    const ErrorInfo* info = find_error(static_cast<std::uint16_t>(code));
    MORTAR_ASSERT(info != nullptr);
    return *info;
}

}  // namespace mortar
