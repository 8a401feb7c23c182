#include "core/admin/http.h"

#include <string_view>

#include "core/admin/http_request.h"
#include "core/fiber/deadline.h"
#include "core/fiber/group.h"

namespace mortar {
namespace {
constexpr Duration IDLE_MAX = seconds(30);
constexpr Duration HEAD_MAX = seconds(10);
constexpr Duration ANSWER_MAX = seconds(10);
constexpr Duration DRAIN_MAX = seconds(1);
constexpr std::size_t READ_BYTES = 4096;
constexpr std::size_t DRAIN_BYTES_MAX = 256 * 1024;
constexpr int TOO_LARGE = 431;
constexpr int BAD_REQUEST = 400;
constexpr int METHOD_NOT_ALLOWED = 405;
constexpr int UNAVAILABLE = 503;

std::string_view reason_of(int status) {
    switch (status) {
        case 200:
            return "OK";
        case BAD_REQUEST:
            return "Bad Request";
        case 404:
            return "Not Found";
        case METHOD_NOT_ALLOWED:
            return "Method Not Allowed";
        case TOO_LARGE:
            return "Request Header Fields Too Large";
        case UNAVAILABLE:
            return "Service Unavailable";
        default:
            MORTAR_UNREACHABLE();
    }
}

std::string head_of(const AdminAnswer& answer, bool keep_alive) {
    std::string head = "HTTP/1.1 " + std::to_string(answer.status) + " ";
    head.append(reason_of(answer.status));
    head.append(
        "\r\nContent-Type: application/json\r\nCache-Control: no-store\r\nContent-Length: ");
    head.append(std::to_string(answer.body.size()));
    if (answer.status == METHOD_NOT_ALLOWED) head.append("\r\nAllow: GET, HEAD");
    head.append(keep_alive ? "\r\nConnection: keep-alive\r\n\r\n"
                           : "\r\nConnection: close\r\n\r\n");
    return head;
}

class HttpAdminServer : public AdminServer {
  public:
    HttpAdminServer(Env& env, const AdminState& state, std::unique_ptr<Listener> listener)
        : env_(env), state_(state), listener_(std::move(listener)), fibers_(env.scheduler) {
        fibers_.spawn("admin.accept", [this](Fiber& fiber) { accept_all(fiber); });
    }
    std::uint16_t port() const override { return listener_->port(); }
    void stop(Fiber& fiber) override {
        listener_->close();
        fibers_.cancel_and_join(fiber);
    }

  private:
    void accept_all(Fiber& fiber);
    void serve(Fiber& fiber, Conn& conn);
    // False when the connection is over.
    bool serve_one(Fiber& fiber, Conn& conn, ByteVector& received);
    bool answer(Fiber& fiber, Conn& conn, const AdminAnswer& answer, bool keep_alive,
                bool with_body);
    void drain(Fiber& fiber, Conn& conn);

    Env& env_;
    const AdminState& state_;
    std::unique_ptr<Listener> listener_;
    std::size_t connection_count_ = 0;
    Group fibers_;
};

void HttpAdminServer::accept_all(Fiber& fiber) {
    while (true) {
        Result<std::unique_ptr<Conn>> accepted = listener_->accept(fiber);
        if (!accepted.ok()) return;
        const std::shared_ptr<Conn> conn = std::move(accepted).value();
        // One more than the limit is served, and only to be told so.
        if (connection_count_ > ADMIN_CONNECTION_COUNT_MAX) continue;
        ++connection_count_;
        fibers_.spawn("admin.connection", [this, conn](Fiber& own) {
            serve(own, *conn);
            --connection_count_;
        });
    }
}

void HttpAdminServer::serve(Fiber& fiber, Conn& conn) {
    if (connection_count_ > ADMIN_CONNECTION_COUNT_MAX) {
        const AdminAnswer busy{UNAVAILABLE, error_json("too many admin connections")};
        (void)answer(fiber, conn, busy, false, true);
        return;
    }
    ByteVector received;
    while (serve_one(fiber, conn, received)) {
    }
}

bool HttpAdminServer::serve_one(Fiber& fiber, Conn& conn, ByteVector& received) {
    HttpRequest request;
    std::size_t head_bytes = 0;
    HttpHead head = parse_http_head(received, request, head_bytes);
    MonoTime deadline = deadline_after(env_.clock, received.empty() ? IDLE_MAX : HEAD_MAX);
    while (head == HttpHead::INCOMPLETE) {
        const std::size_t before = received.size();
        received.resize(before + READ_BYTES);
        const Result<std::size_t> count =
            conn.read(fiber, MutableByteSpan(received).subspan(before), deadline);
        if (!count.ok() || *count == 0) return false;
        received.resize(before + *count);
        if (before == 0) deadline = deadline_after(env_.clock, HEAD_MAX);
        head = parse_http_head(received, request, head_bytes);
    }
    if (head == HttpHead::TOO_LARGE) {
        const AdminAnswer refusal{TOO_LARGE, error_json("the head is larger than 16 KiB")};
        return answer(fiber, conn, refusal, false, true);
    }
    if (head == HttpHead::MALFORMED) {
        return answer(fiber, conn, {BAD_REQUEST, error_json("not an HTTP request")}, false, true);
    }
    received.erase(received.begin(), received.begin() + static_cast<std::ptrdiff_t>(head_bytes));
    const bool keep_alive = request.keep_alive && !request.has_body;
    const AdminAnswer made = answer_admin(state_, request.method, request.target);
    return answer(fiber, conn, made, keep_alive, request.method != "HEAD");
}

bool HttpAdminServer::answer(Fiber& fiber, Conn& conn, const AdminAnswer& answer, bool keep_alive,
                             bool with_body) {
    const std::string head = head_of(answer, keep_alive);
    const ByteSpan parts[] = {as_byte_span(head),
                              as_byte_span(with_body ? answer.body : std::string_view())};
    const Result<void> written = conn.write(fiber, parts, deadline_after(env_.clock, ANSWER_MAX));
    if (written.ok() && !keep_alive) drain(fiber, conn);
    return written.ok() && keep_alive;
}

// To close with bytes unread resets the connection, and a reset may overtake the answer.
void HttpAdminServer::drain(Fiber& fiber, Conn& conn) {
    conn.shutdown_write();
    const MonoTime deadline = deadline_after(env_.clock, DRAIN_MAX);
    ByteVector rest(READ_BYTES);
    for (std::size_t drained = 0; drained < DRAIN_BYTES_MAX;) {
        const Result<std::size_t> count = conn.read(fiber, rest, deadline);
        if (!count.ok() || *count == 0) return;
        drained += *count;
    }
}
}  // namespace

Result<std::unique_ptr<AdminServer>> AdminServer::start(Env& env, const AdminState& state,
                                                        const std::string& address) {
    std::unique_ptr<Listener> listener = MORTAR_TRY(env.net.listen(address));
    return std::unique_ptr<AdminServer>(
        std::make_unique<HttpAdminServer>(env, state, std::move(listener)));
}

}  // namespace mortar
