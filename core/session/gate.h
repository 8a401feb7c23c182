// gate: may a client be served by this node now, and by what.
// Shape:    Serving is what exists only while this node leads. A session enters with each request and lets go of it when the
//           request is answered: the parts live as long as somebody holds it.
// Errors:   check: STALE_LEADER_EPOCH with the hint, LEASE_EXPIRED, IN_SYNC_REPLICAS_NOT_ENOUGH, QUORUM_LOST.
// Suspends: await_leader.
// Source:   contract R2, R3, R4, 8 (levels).
#pragma once

#include <memory>

#include "core/deliver/delivery.h"
#include "core/produce/pace.h"
#include "core/produce/publish.h"
#include "core/session/declare.h"

namespace mortar {

struct Serving {
    Delivery& delivery;
    Publisher& publisher;
    DeclareHandler& declare;
};

class Gate {
  public:
    virtual ~Gate() = default;
    // Nothing while this node does not lead.
    virtual std::shared_ptr<Serving> serving() const = 0;
    // While an election is under way: until it is over, or the deadline. Else it returns at once.
    virtual void await_leader(Fiber& fiber, MonoTime deadline) const = 0;
    // OK only while serving() is there.
    virtual Result<void> check(wire::Op op) const = 0;
    // Who publishes is held back by it.
    virtual ProducePace& pace() const = 0;
};

}  // namespace mortar
