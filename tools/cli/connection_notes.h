// connection_notes: tells on stderr that the broker is not there yet, that it was lost, and that it is back.
// Shape:    a fiber that looks at the link a few times a second; one line a change.
// Suspends: stop.
#pragma once

#include "core/fiber/group.h"
#include "tools/cli/cli.h"

namespace mortar::cli {

class ConnectionNotes {
  public:
    ConnectionNotes(Session& session, client::Link& link);
    void start();
    // Before the link is closed, which would look like a loss.
    void stop(Fiber& fiber);

  private:
    void watch(Fiber& fiber);
    void look();
    std::string addresses() const;
    std::string reason() const;

    Session& session_;
    client::Link& link_;
    Group group_;
    MonoTime begin_;
    std::uint64_t seen_session_ = 0;
    bool is_told_ = false;  // that it is not there
};

}  // namespace mortar::cli
