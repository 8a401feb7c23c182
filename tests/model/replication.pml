/* Lease, election and commit of design 4 as a finite model: three nodes, one log of two records, three leader epochs.
 *
 * Shape:    one process that takes any enabled step of any node. What is on disk: promised, installed, the log; the rest is
 *           of a node's life. Messages are not modelled one by one: what they carry is read when they are used, and each
 *           may come late or never, since no step has to be taken. What a promise says is kept from when it was given.
 *           A leader's own sync is instant, so with three nodes a record is committed when one follower has it: the
 *           earliest moment at which anyone could say so.
 * Units:    time is ticks of true time. A follower's promise lasts LEASE ticks; a leader counts HELD by its own clock, which
 *           may stand still for one tick in any LEASE ticks: the drift that the margin LEASE - HELD allows.
 * Checks:   no two leaders in an epoch, no two valid leases at once, committed never lost.
 * Guards:   compiled with -DNO_<guard> one rule is missing, and the search must find what it is for:
 *           NO_VOTE_ONCE           a node promises one epoch to two candidates
 *           NO_PROMISE_ON_DISK     a node that restarts knows only what it has installed
 *           NO_VOTE_OUTSIDE_LEASE  a follower votes while its promise to the leader lasts
 *           NO_RESTART_WAIT        a node votes at once after a restart
 *           NO_MARGIN              a leader counts the whole LEASE
 *           NO_SENT_TIME           a leader counts from the answer, not from the sending of the heartbeat
 *           NO_RELEASE_STOP        a leader that released its lease goes on
 *           NO_FENCE               a node that promised a new epoch still takes records of the one that it installed
 *           NO_INSTALLED_FIRST     the longest copy wins, whoever installed last
 *           NO_MAJORITY            a candidate is content with its own promise
 */
#define NODES 3
#define RECORDS 2
#ifndef EPOCHS
#define EPOCHS 3
#endif
#ifndef CRASHES
#define CRASHES 1
#endif

#define LEASE 2
#ifdef NO_MARGIN
#define HELD LEASE
#else
#define HELD 1
#endif

#define FOLLOWER 0
#define CANDIDATE 1
#define INSTALLING 2
#define IN_OFFICE 3

#define BIT(n) (1 << (n))
#define REC(n, k) log[(n) * RECORDS + (k)]
#define BEST(n, k) best_log[(n) * RECORDS + (k)]

/* On disk. A record is the epoch in which it was appended. */
byte promised[NODES] = 1;
byte installed[NODES] = 1;
byte length[NODES];
byte log[NODES * RECORDS];

/* Of a node's life. */
byte no_vote_ticks[NODES];
byte role[NODES];
byte term[NODES];
byte votes[NODES];
byte best_node[NODES];
byte best_installed[NODES];
byte best_length[NODES];
byte best_log[NODES * RECORDS];
byte heartbeat[NODES]; /* 0: none on its way; else 1 + its age by the leader's clock */
byte heard[NODES];     /* who will answer it */
byte held_ticks[NODES];
byte drift_wait[NODES]; /* ticks until the clock may stand still again */

/* Of the world. */
byte crashes;
bool released[EPOCHS + 1];
byte leader_of[EPOCHS + 1]; /* 1 + node */
byte committed[RECORDS];

#ifdef NO_VOTE_ONCE
#define MAY_PROMISE(j, i) (promised[j] <= term[i])
#else
#define MAY_PROMISE(j, i) (promised[j] < term[i])
#endif

#ifdef NO_VOTE_OUTSIDE_LEASE
#define IS_OUTSIDE_LEASE(j) true
#else
#define IS_OUTSIDE_LEASE(j) (no_vote_ticks[j] == 0)
#endif

#ifdef NO_MAJORITY
#define IS_MAJORITY(mask) true
#else
#define IS_MAJORITY(mask) ((mask) != 1 && (mask) != 2 && (mask) != 4)
#endif

#ifdef NO_FENCE
#define TAKES_FROM(j, i) (installed[j] == term[i])
#else
#define TAKES_FROM(j, i) (installed[j] == term[i] && promised[j] == term[i])
#endif

#ifdef NO_INSTALLED_FIRST
#define IS_BETTER(j, i) (length[j] > best_length[i])
#else
#define IS_BETTER(j, i)               \
    (installed[j] > best_installed[i] \
     || (installed[j] == best_installed[i] && length[j] > best_length[i]))
#endif

#ifdef NO_SENT_TIME
#define AGE_MAX LEASE
#define COUNTED_AGE(i) 0
#else
#define AGE_MAX (HELD - 1)
#define COUNTED_AGE(i) (heartbeat[i] - 1)
#endif

/* Whatever is dead is zero, so that states that differ in nothing are one. */
#define FORGET_PROMISES(i)                                          \
    votes[i] = 0;                                                   \
    best_node[i] = 0;                                               \
    best_installed[i] = 0;                                          \
    best_length[i] = 0;                                             \
    BEST(i, 0) = 0;                                                 \
    BEST(i, 1) = 0

#define STEP_DOWN(i)    \
    role[i] = FOLLOWER; \
    term[i] = 0;        \
    heartbeat[i] = 0;   \
    heard[i] = 0;       \
    held_ticks[i] = 0;  \
    drift_wait[i] = 0;  \
    FORGET_PROMISES(i)

#define OFFER_COPY(j, i)              \
    best_node[i] = j;                 \
    best_installed[i] = installed[j]; \
    best_length[i] = length[j];       \
    BEST(i, 0) = REC(j, 0);           \
    BEST(i, 1) = REC(j, 1)

#define COMMIT(i, k)                                                                   \
    if                                                                                 \
    :: length[i] > k ->                                                                \
        assert(committed[k] == 0 || committed[k] == REC(i, k)); /* committed is lost */ \
        committed[k] = REC(i, k)                                                       \
    :: else                                                                            \
    fi

#define HAS_COMMITTED(i, k) (committed[k] == 0 || (length[i] > k && REC(i, k) == committed[k]))

/* --- election */
#define STAND(i)                                                     \
    :: d_step {                                                      \
        promised[i] < EPOCHS && IS_OUTSIDE_LEASE(i) && held_ticks[i] == 0 -> \
        STEP_DOWN(i);                                                \
        promised[i]++;                                               \
        role[i] = CANDIDATE;                                         \
        term[i] = promised[i];                                       \
        votes[i] = BIT(i);                                           \
        OFFER_COPY(i, i)                                             \
    }

#define PROMISE(j, i)                                                           \
    :: d_step {                                                                 \
        role[i] == CANDIDATE && MAY_PROMISE(j, i) && IS_OUTSIDE_LEASE(j) && !(votes[i] & BIT(j)) -> \
        STEP_DOWN(j);                                                           \
        promised[j] = term[i];                                                  \
        votes[i] = votes[i] | BIT(j);                                           \
        if                                                                      \
        :: IS_BETTER(j, i) -> OFFER_COPY(j, i)                                  \
        :: else                                                                 \
        fi                                                                      \
    }

/* What it lacks it fetches, from a node that still stands by its promise. */
#define CHOOSE(i)                                                        \
    :: d_step {                                                          \
        role[i] == CANDIDATE && IS_MAJORITY(votes[i])                    \
            && (best_node[i] == i || promised[best_node[i]] == term[i]) -> \
        length[i] = best_length[i];                                      \
        REC(i, 0) = BEST(i, 0);                                          \
        REC(i, 1) = BEST(i, 1);                                          \
        installed[i] = term[i];                                          \
        role[i] = INSTALLING;                                            \
        FORGET_PROMISES(i)                                               \
    }

#define INSTALL(j, i)                                                                        \
    :: d_step {                                                                              \
        role[i] >= INSTALLING && promised[j] == term[i] && installed[j] != term[i] ->        \
        length[j] = length[i];                                                               \
        REC(j, 0) = REC(i, 0);                                                               \
        REC(j, 1) = REC(i, 1);                                                               \
        installed[j] = term[i];                                                              \
        role[i] = IN_OFFICE;                                                                 \
        assert(HAS_COMMITTED(i, 0)); /* committed is lost */                                 \
        assert(HAS_COMMITTED(i, 1)); /* committed is lost */                                 \
        assert(leader_of[term[i]] == 0 || leader_of[term[i]] == i + 1); /* two leaders */    \
        leader_of[term[i]] = i + 1;                                                          \
        COMMIT(i, 0);                                                                        \
        COMMIT(i, 1)                                                                         \
    }

/* --- the normal case */
#define APPEND(i)                                        \
    :: d_step {                                          \
        role[i] == IN_OFFICE && length[i] < RECORDS ->   \
        REC(i, length[i]) = term[i];                     \
        length[i]++                                      \
    }

#define REPLICATE(j, i)                                                          \
    :: d_step {                                                                  \
        role[i] == IN_OFFICE && TAKES_FROM(j, i) && length[j] < length[i]        \
            && (length[j] == 0 || REC(j, 0) == REC(i, 0)) ->                     \
        REC(j, length[j]) = REC(i, length[j]);                                   \
        length[j]++;                                                             \
        if                                                                       \
        :: length[j] == 1 -> COMMIT(j, 0)                                        \
        :: else -> COMMIT(j, 1)                                                  \
        fi                                                                       \
    }

/* --- lease */
#define SEND_HEARTBEAT(i)                            \
    :: d_step {                                      \
        role[i] == IN_OFFICE && heartbeat[i] != 1 -> \
        heartbeat[i] = 1;                            \
        heard[i] = 0                                 \
    }

#define HEAR(j, i)                                                             \
    :: d_step {                                                                \
        heartbeat[i] > 0 && promised[j] == term[i] && !(heard[i] & BIT(j)) ->  \
        no_vote_ticks[j] = LEASE;                                              \
        heard[i] = heard[i] | BIT(j)                                           \
    }

#define ANSWER(i, a, b)                                          \
    :: d_step {                                                  \
        heard[i] != 0 ->                                         \
        if                                                       \
        :: held_ticks[i] < HELD - COUNTED_AGE(i) ->              \
            held_ticks[i] = HELD - COUNTED_AGE(i)                \
        :: else                                                  \
        fi;                                                      \
        heartbeat[i] = 0;                                        \
        heard[i] = 0;                                            \
        assert(held_ticks[a] == 0 && held_ticks[b] == 0) /* two valid leases */ \
    }

#ifdef NO_RELEASE_STOP
#define RELEASE(i) :: d_step { role[i] == IN_OFFICE && !released[term[i]] -> released[term[i]] = true }
#else
#define RELEASE(i)              \
    :: d_step {                 \
        role[i] == IN_OFFICE -> \
        released[term[i]] = true; \
        STEP_DOWN(i)            \
    }
#endif

#define HEAR_RELEASE(j) \
    :: d_step { no_vote_ticks[j] > 0 && released[promised[j]] -> no_vote_ticks[j] = 0 }

/* --- time and power */
#define AGE_FOLLOWER(j)                              \
    if                                               \
    :: no_vote_ticks[j] > 0 -> no_vote_ticks[j]--    \
    :: else                                          \
    fi;                                              \
    if                                               \
    :: drift_wait[j] > 0 -> drift_wait[j]--          \
    :: else                                          \
    fi

#define AGE_LEADER(i)                                \
    if                                               \
    :: held_ticks[i] > 0 -> held_ticks[i]--          \
    :: else                                          \
    fi;                                              \
    if                                               \
    :: heartbeat[i] > AGE_MAX -> heartbeat[i] = 0; heard[i] = 0 \
    :: heartbeat[i] > 0 && heartbeat[i] <= AGE_MAX -> heartbeat[i]++ \
    :: else                                          \
    fi

#define HAS_CLOCK(i) (held_ticks[i] > 0 || heartbeat[i] > 0)

/* All clocks go on. */
#define TICK                                                                               \
    :: d_step {                                                                            \
        no_vote_ticks[0] + no_vote_ticks[1] + no_vote_ticks[2] > 0                         \
            || HAS_CLOCK(0) || HAS_CLOCK(1) || HAS_CLOCK(2) ->                             \
        AGE_FOLLOWER(0); AGE_FOLLOWER(1); AGE_FOLLOWER(2);                                 \
        AGE_LEADER(0); AGE_LEADER(1); AGE_LEADER(2)                                        \
    }

/* All but this leader's, which stands still. */
#define TICK_WITHOUT(i, a, b)                              \
    :: d_step {                                            \
        HAS_CLOCK(i) && drift_wait[i] == 0 ->              \
        AGE_FOLLOWER(0); AGE_FOLLOWER(1); AGE_FOLLOWER(2); \
        AGE_LEADER(a); AGE_LEADER(b);                      \
        drift_wait[i] = LEASE - 1                          \
    }

#ifdef NO_RESTART_WAIT
#define WAIT_AFTER_RESTART 0
#else
#define WAIT_AFTER_RESTART LEASE
#endif
#ifdef NO_PROMISE_ON_DISK
#define FORGET_PROMISE(i) promised[i] = installed[i]
#else
#define FORGET_PROMISE(i) skip
#endif

#define CRASH(i)                               \
    :: d_step {                                \
        crashes < CRASHES ->                   \
        crashes++;                             \
        STEP_DOWN(i);                          \
        FORGET_PROMISE(i);                     \
        no_vote_ticks[i] = WAIT_AFTER_RESTART  \
    }

#define OF_NODE(i) STAND(i) CHOOSE(i) APPEND(i) SEND_HEARTBEAT(i) RELEASE(i) HEAR_RELEASE(i) CRASH(i)
#define OF_PAIR(j, i) PROMISE(j, i) INSTALL(j, i) REPLICATE(j, i) HEAR(j, i)

/* It begins with node 0 in office in epoch 1, installed everywhere: who was first makes no difference. */
init {
    d_step {
        role[0] = IN_OFFICE;
        term[0] = 1;
        leader_of[1] = 1
    }
end:
    do
    OF_NODE(0) OF_NODE(1) OF_NODE(2)
    OF_PAIR(0, 1) OF_PAIR(0, 2) OF_PAIR(1, 0) OF_PAIR(1, 2) OF_PAIR(2, 0) OF_PAIR(2, 1)
    ANSWER(0, 1, 2) ANSWER(1, 0, 2) ANSWER(2, 0, 1)
    TICK TICK_WITHOUT(0, 1, 2) TICK_WITHOUT(1, 0, 2) TICK_WITHOUT(2, 0, 1)
    od
}
