// result: a value or an Error; cannot be dropped, access is checked.
// Shape:  Result<T> holds a T or an Error{code, detail, file, line}. Result<void> holds nothing or an Error.
// Errors: value() on an error and error() on a value stop the process.
// Use:    T x = MORTAR_TRY(expr);  passes an error on to the caller of the enclosing function.
#pragma once

#include <string>
#include <utility>
#include <variant>

#include "core/base/assert.h"
#include "core/base/errors.h"

namespace mortar {

struct [[nodiscard]] Error {
    ErrorCode code;
    std::string detail;  // for a person; names what and where, and where possible what to do
    const char* file;
    int line;

    // e.g. "NO_SPACE: write of 4096 bytes at 81920 in topics/1/0/...seg"
    std::string to_string() const {
        std::string text(error_name(code));
        if (!detail.empty()) text.append(": ").append(detail);
        return text;
    }
};

inline Error make_error(ErrorCode code, std::string detail = {},
                        const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return Error{code, std::move(detail), file, line};
}

template <class T>
class [[nodiscard]] Result {
  public:
    // NOLINTNEXTLINE(google-explicit-constructor): `return value;` and `return error;` are the point.
    Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
    // NOLINTNEXTLINE(google-explicit-constructor)
    Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

    bool ok() const { return state_.index() == 0; }
    explicit operator bool() const { return ok(); }
    T& value() & {
        MORTAR_ASSERT(ok());
        return *std::get_if<0>(&state_);
    }
    const T& value() const& {
        MORTAR_ASSERT(ok());
        return *std::get_if<0>(&state_);
    }
    T&& value() && {
        MORTAR_ASSERT(ok());
        return std::move(*std::get_if<0>(&state_));
    }
    T& operator*() & { return value(); }
    const T& operator*() const& { return value(); }
    T&& operator*() && { return std::move(*this).value(); }
    T* operator->() { return &value(); }
    const T* operator->() const { return &value(); }
    const Error& error() const& {
        MORTAR_ASSERT(!ok());
        return *std::get_if<1>(&state_);
    }
    Error&& error() && {
        MORTAR_ASSERT(!ok());
        return std::move(*std::get_if<1>(&state_));
    }
    bool is(ErrorCode code) const { return !ok() && error().code == code; }

  private:
    std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
  public:
    Result() = default;
    // NOLINTNEXTLINE(google-explicit-constructor)
    Result(Error error) : state_(std::move(error)) {}

    bool ok() const { return state_.index() == 0; }
    explicit operator bool() const { return ok(); }
    void value() const { MORTAR_ASSERT(ok()); }
    const Error& error() const& {
        MORTAR_ASSERT(!ok());
        return *std::get_if<1>(&state_);
    }
    Error&& error() && {
        MORTAR_ASSERT(!ok());
        return std::move(*std::get_if<1>(&state_));
    }
    bool is(ErrorCode code) const { return !ok() && error().code == code; }

  private:
    std::variant<std::monostate, Error> state_;
};

}  // namespace mortar

// Yields the value, or returns the error from the enclosing function.
#define MORTAR_TRY(expression)                        \
    __extension__({                                   \
        auto mortar_result_ = (expression);           \
        if (!mortar_result_.ok()) [[unlikely]]        \
            return std::move(mortar_result_).error(); \
        std::move(mortar_result_).value();            \
    })
