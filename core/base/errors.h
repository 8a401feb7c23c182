// errors: the registry of codes, one table (errors.def) that wire, client library and docs share.
// Shape:  ErrorCode is the u16 of the wire; codes >= 0xf000 are local and never leave the node.
// Source: contract 3, contract R2 (outcome).
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace mortar {

enum class ErrorCode : std::uint16_t {
#define MORTAR_ERROR(number, name, closes, outcome, retryable, text) name = number,
#include "core/base/errors.def"
#undef MORTAR_ERROR
};

enum class ErrorOutcome : std::uint8_t { REFUSED, NOT_EXECUTED, UNKNOWN };

struct ErrorInfo {
    ErrorCode code;
    std::string_view name;
    bool closes;           // the broker closes the connection after sending it
    ErrorOutcome outcome;  // what the sender of the request may assume
    bool retryable;        // the client library sends the same request again by itself
    std::string_view client_does;
};

inline constexpr std::uint16_t FIRST_LOCAL_CODE = 0xf000;

// All rows, ascending by number; registered ones first.
std::span<const ErrorInfo> all_errors();
// nullptr for a number that is not in the table.
const ErrorInfo* find_error(std::uint16_t number);
const ErrorInfo& error_info(ErrorCode code);
inline std::string_view error_name(ErrorCode code) {
    return error_info(code).name;
}
inline bool is_local(ErrorCode code) {
    return static_cast<std::uint16_t>(code) >= FIRST_LOCAL_CODE;
}

}  // namespace mortar
