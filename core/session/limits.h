// limits: every bound of a client connection that the wire itself does not name.
// Source: contract S3, S5, R1, R2.
#pragma once

#include <cstddef>

#include "core/env/clock.h"

namespace mortar {

inline constexpr std::size_t CONNECTION_COUNT_MAX = 10'000;
inline constexpr std::size_t REFUSING_COUNT_MAX =
    64;  // connections over the maximum that are told so at one time

// Past one of these the connection is not read any further, at a frame boundary.
inline constexpr std::size_t UNANSWERED_COUNT_MAX = 1024;
inline constexpr std::size_t UNANSWERED_BYTES_MAX = 32u << 20;
inline constexpr std::size_t OUTBOX_BYTES_MAX = 8u << 20;
inline constexpr std::size_t PRE_CONNECT_OUTBOX_BYTES_MAX = 64 * 1024;  // a stranger's PINGs
// So many frames in a row, then everybody else goes first.
inline constexpr int FRAMES_A_TURN = 128;

inline constexpr Duration AUTH_FAILURE_DELAY = milliseconds(100);

inline constexpr std::size_t WRITE_BYTES_MAX = 256 * 1024;  // one gather write
inline constexpr std::size_t WRITE_PARTS_MAX = 64;
inline constexpr Duration SLOW_CONSUMER_TIMEOUT = seconds(30);  // without a byte that goes out
inline constexpr Duration SLOW_CONSUMER_GRACE =
    seconds(10);  // for telling it so, should it read again

// From the decision to close to the close: earlier answers and the last ERR leave. Renewed while
// bytes go out to a client that has connected.
inline constexpr Duration CLOSE_TIMEOUT = seconds(5);
// What the peer still sends is read and dropped for so long: a close with unread bytes would take
// back the last ERR.
inline constexpr Duration LINGER_TIMEOUT = seconds(1);
inline constexpr std::size_t LINGER_BYTES_MAX = 32u << 20;

// Of DECLARE, SUB and HEARTBEAT, from the frame to the answer: quorum_timeout.
inline constexpr Duration REQUEST_TIMEOUT = milliseconds(2000);
// While an election is under way a request waits: the client would come back later than its end otherwise.
inline constexpr Duration LEADER_WAIT_MAX = milliseconds(1000);
// Connections of which such a request may be under way at one time; each holds a fiber for it.
inline constexpr std::size_t REQUEST_FIBERS_MAX = 4096;
inline constexpr std::size_t CONNECTION_FIBERS = 2;  // reader and writer

}  // namespace mortar
