// SPDX-License-Identifier: Apache-2.0
//
// Texts of the native methods. The first line is the signature that `help()` shows; "\n--\n\n" ends
// it (CPython's convention).
#pragma once

namespace hixl_rma::docs {

#define HIXL_RMA_ORIGIN_AND_TARGET                                                                \
  "origin : buffer\n"                                                                             \
  "    Memory of the caller: numpy array, torch tensor on the CPU, any object with a buffer or\n" \
  "    DLPack; any shape and strides, in C order.\n"                                              \
  "target_rank : int\n"                                                                           \
  "    Whose memory, 0 to size - 1.\n"                                                            \
  "target_disp : int or basic index, default 0\n"                                                 \
  "    Displacement in units of the target, or an index of the target's shape (np.s_[:, 3]);\n"   \
  "    a selection has as many bytes as the origin.\n"

#define HIXL_RMA_ACCESS_ERRORS                                                         \
  "EpochError\n"                                                                       \
  "    When no access epoch is open to the target.\n"                                  \
  "RangeError\n"                                                                       \
  "    When a byte would lie outside the target's memory, or there is no such rank.\n" \
  "PeerLostError\n"                                                                    \
  "    When the target has left the window.\n"

inline constexpr char kPut[] =
    "put($self, /, origin, target_rank, target_disp=0)\n--\n\n"
    "Copy the origin's bytes into the memory of a target.\n\n"
    "Parameters\n----------\n" HIXL_RMA_ORIGIN_AND_TARGET
    "\nRaises\n------\n" HIXL_RMA_ACCESS_ERRORS
    "ArgumentTypeError\n    When the origin has no memory that can be read.\n\n"
    "Notes\n-----\n"
    "Completion: on return nothing is promised; `flush_local` lets the origin be reused, `flush`,\n"
    "`unlock`, `fence` or `complete` place the bytes at the target. See MPI-4.1, 12.3.1.";

inline constexpr char kGet[] =
    "get($self, /, origin, target_rank, target_disp=0)\n--\n\n"
    "Copy bytes of a target's memory into the origin.\n\n"
    "Parameters\n----------\n" HIXL_RMA_ORIGIN_AND_TARGET
    "\nRaises\n------\n" HIXL_RMA_ACCESS_ERRORS
    "ReadOnlyBufferError\n    When the origin cannot be written.\n\n"
    "Notes\n-----\n"
    "Completion: the bytes are there after `flush_local`, `flush`, or the end of the epoch.\n"
    "See MPI-4.1, 12.3.2.";

inline constexpr char kPutNotify[] =
    "put_notify($self, /, origin, target_rank, target_disp=0, *, notification, value=1, "
    "order='all')"
    "\n--\n\n"
    "Put, and tell the target once the bytes are there.\n\n"
    "Parameters\n----------\n" HIXL_RMA_ORIGIN_AND_TARGET
    "notification : int\n    Id at the target.\n"
    "value : int, default 1\n    Added to the id's sum, mod 2^64; 0 is legal.\n"
    "order : str, default 'all'\n"
    "    'all': whoever sees the notification also sees what this rank put or accumulated to that\n"
    "    target on this window earlier; 'self': these bytes.\n"
    "\nRaises\n------\n" HIXL_RMA_ACCESS_ERRORS
    "\nNotes\n-----\n"
    "A put that fails delivers no notification.";

inline constexpr char kGetNotify[] =
    "get_notify($self, /, origin, target_rank, target_disp=0, *, notification, value=1, "
    "order='all')"
    "\n--\n\n"
    "Get, and tell the target that its memory was read and may be reused.\n\n"
    "Parameters\n----------\n" HIXL_RMA_ORIGIN_AND_TARGET
    "notification, value, order\n    As for `put_notify`.\n"
    "\nRaises\n------\n" HIXL_RMA_ACCESS_ERRORS;

inline constexpr char kPutV[] =
    "put_v($self, /, ops, target_rank)\n--\n\n"
    "Put many pieces in one call; neighbours are merged.\n\n"
    "Parameters\n----------\n"
    "ops : sequence of (origin, target_disp), or (N, 3) array of uint64\n"
    "    Rows of the array are (address here, displacement, bytes): the caller vouches for the\n"
    "    addresses.\n"
    "target_rank : int\n    Whose memory.\n"
    "\nRaises\n------\n" HIXL_RMA_ACCESS_ERRORS
    "\nNotes\n-----\nEvery piece is checked before a byte moves. Completion as for `put`.";

inline constexpr char kGetV[] =
    "get_v($self, /, ops, target_rank)\n--\n\n"
    "Get many pieces in one call; arguments as for `put_v`, completion as for `get`.";

inline constexpr char kPutNotifyV[] =
    "put_notify_v($self, /, ops, target_rank, *, notification, value=1, order='all')\n--\n\n"
    "Put many pieces, then one notification after all of them.\n\n"
    "Arguments as for `put_v` and `put_notify`.";

inline constexpr char kAccumulate[] =
    "accumulate($self, /, origin, target_rank, target_disp=0, *, op='sum')\n--\n\n"
    "Combine the origin's elements with those of a target, each one atomically.\n\n"
    "Parameters\n----------\n" HIXL_RMA_ORIGIN_AND_TARGET
    "op : str, default 'sum'\n"
    "    sum prod min max land lor lxor band bor bxor replace no_op.\n"
    "\nRaises\n------\n" HIXL_RMA_ACCESS_ERRORS
    "ArgumentTypeError\n"
    "    When the elements are no integers, floats, complex numbers or bool, or the operation has\n"
    "    no meaning for them.\n\n"
    "Notes\n-----\n"
    "Atomic for each element against every accumulate, fetch_and_op and compare_and_swap of any\n"
    "rank. Results are those of numpy. See MPI-4.1, 12.3.4.";

inline constexpr char kGetAccumulate[] =
    "get_accumulate($self, /, origin, result, target_rank, target_disp=0, *, op='sum')\n--\n\n"
    "Like `accumulate`; `result` receives the values from before. With op='no_op' the origin may\n"
    "be None: an atomic get.";

inline constexpr char kFetchAndOp[] =
    "fetch_and_op($self, /, origin, result, target_rank, target_disp=0, *, op='sum')\n--\n\n"
    "`get_accumulate` of exactly one element.";

inline constexpr char kCompareAndSwap[] =
    "compare_and_swap($self, /, origin, compare, result, target_rank, target_disp=0)\n--\n\n"
    "Replace one element by `origin` where it equals `compare`; `result` receives the value from\n"
    "before. Integers and bool.";

inline constexpr char kNotify[] =
    "notify($self, /, target_rank, *, notification, value=1, order='all')\n--\n\n"
    "Send a notification without bytes of its own; arguments as for `put_notify`.";

inline constexpr char kWaitNotify[] =
    "wait_notify($self, /, notification=ANY, *, count=1, source=ANY_SOURCE, consume=True, "
    "timeout=None)\n--\n\n"
    "Wait until one of some notification ids has arrived `count` times, and take them.\n\n"
    "Parameters\n----------\n"
    "notification : int, range or sequence of int, default ANY\n    Ids to look at.\n"
    "count : int, default 1\n    How many; exactly these are taken, the surplus stays.\n"
    "source : int, default ANY_SOURCE\n    Count those of one origin alone.\n"
    "consume : bool, default True\n    False looks and takes nothing.\n"
    "timeout : float or None, default None\n    Seconds.\n\n"
    "Returns\n-------\n"
    "Notification\n"
    "    id; source, the rank when one origin supplied all, else ANY_SOURCE; count; value, the "
    "sum\n"
    "    (mod 2^64) of what arrived from these origins and was not reported before.\n\n"
    "Raises\n------\n"
    "NotifyTimeoutError\n    When the time is up; nothing is taken; the text says what was seen.\n"
    "PeerLostError\n"
    "    When `source` has left; with ANY_SOURCE once for each rank that left.\n\n"
    "Notes\n-----\nNeeds no epoch. What has arrived comes first. Fair among the ids.";

inline constexpr char kWaitNotifySome[] =
    "wait_notify_some($self, /, notification=ANY, *, count=1, source=ANY_SOURCE, consume=True, "
    "timeout=None)\n--\n\n"
    "Like `wait_notify`, but takes and returns every id that has arrived `count` times.";

inline constexpr char kWaitNotifyAll[] =
    "wait_notify_all($self, /, notifications, *, count=1, source=ANY_SOURCE, consume=True, "
    "timeout=None)\n--\n\n"
    "Wait until all of the ids have arrived `count` times; takes all or nothing. Returns a list "
    "in\n"
    "the order asked.";

inline constexpr char kTestNotify[] =
    "test_notify($self, /, notification=ANY, *, count=1, source=ANY_SOURCE, consume=True)\n--\n\n"
    "Like `wait_notify`, but returns None where it would wait. Call it until it returns None to\n"
    "drain `notify_fileno`.\n\n"
    "Raises\n------\nPeerLostError\n    When the source, or with ANY_SOURCE one more rank, was "
    "lost.";

inline constexpr char kNotifyCount[] =
    "notify_count($self, /, notification, source=ANY_SOURCE)\n--\n\n"
    "Return how many of an id have arrived and were not taken.";

inline constexpr char kResetNotify[] =
    "reset_notify($self, /, notification)\n--\n\n"
    "Take everything that has arrived of an id from all sources; return (count, value).";

inline constexpr char kNotifyFileno[] =
    "notify_fileno($self, /)\n--\n\n"
    "Return a file descriptor that is readable when a notification may have arrived or a rank was\n"
    "lost: look with `test_notify` until it returns None or raises. One for the life of the "
    "window;\n"
    "do not close it.";

inline constexpr char kFlush[] =
    "flush($self, /, rank, *, timeout=None)\n--\n\n"
    "Complete every operation of this rank to `rank`, there and here.\n\n"
    "Raises\n------\nEpochError\n    When the rank is not locked.\n"
    "RmaTimeoutError\n    When the time is up; the operations stay outstanding.";

inline constexpr char kFlushLocal[] =
    "flush_local($self, /, rank, *, timeout=None)\n--\n\n"
    "Complete every operation to `rank` here: origins may be reused, results are there.";

inline constexpr char kFlushAll[] =
    "flush_all($self, /, *, timeout=None)\n--\n\n`flush` of every rank.";

inline constexpr char kFlushLocalAll[] =
    "flush_local_all($self, /, *, timeout=None)\n--\n\n`flush_local` of every rank.";

inline constexpr char kFence[] =
    "fence($self, /, assertion=0, *, timeout=None)\n--\n\n"
    "End the epoch before and begin one in which every rank may access every other.\n\n"
    "Parameters\n----------\n"
    "assertion : int, default 0\n"
    "    NOSTORE, NOPUT, NOPRECEDE, NOSUCCEED or'ed together; NOSUCCEED begins no epoch.\n"
    "timeout : float or None, default None\n"
    "    Seconds. A fence that timed out is pending: calling it again goes on with it.\n\n"
    "Returns\n-------\n"
    "EpochGuard\n    ``with win.fence():`` fences again at the end of the body.\n\n"
    "Raises\n------\n"
    "EpochError\n    Inside a lock, start or post epoch.\n"
    "PeerLostError\n    When a rank left the window.\n"
    "RmaTimeoutError\n    When the time is up.\n"
    "TransferError\n"
    "    When an operation of this rank failed: the fence is through nevertheless.\n\n"
    "Notes\n-----\n"
    "Collective. When it returns, every operation of the epoch before is complete on every rank.";

inline constexpr char kStart[] =
    "start($self, /, ranks, assertion=0, *, timeout=None)\n--\n\n"
    "Begin an access epoch to `ranks`, after each has posted.\n\n"
    "Returns\n-------\n"
    "EpochGuard\n    Completes the epoch at the end of a ``with`` body.";

inline constexpr char kPost[] =
    "post($self, /, ranks, assertion=0)\n--\n\n"
    "Begin an exposure epoch: let `ranks` access this rank's memory. Does not wait.\n\n"
    "Returns\n-------\n"
    "EpochGuard\n    Waits for the end of the epoch at the end of a ``with`` body.";

inline constexpr char kLock[] =
    "lock($self, /, rank, *, exclusive=True, assertion=0, timeout=None)\n--\n\n"
    "Begin a passive-target epoch: the target takes no part.\n\n"
    "Parameters\n----------\n"
    "rank : int\n    Whose memory.\n"
    "exclusive : bool, default True\n"
    "    Whether nobody else may hold the lock meanwhile; else shared holders may.\n"
    "assertion : int, default 0\n    0 or NOCHECK.\n"
    "timeout : float or None, default None\n    Seconds. A lock that timed out is withdrawn.\n\n"
    "Returns\n-------\n"
    "EpochGuard\n    Unlocks at the end of a ``with`` body.";

inline constexpr char kLockAll[] =
    "lock_all($self, /, assertion=0, *, timeout=None)\n--\n\n"
    "Begin a passive-target epoch to every rank, shared.\n\n"
    "Returns\n-------\n"
    "EpochGuard\n    Unlocks all at the end of a ``with`` body.";

inline constexpr char kComplete[] =
    "complete($self, /, *, timeout=None)\n--\n\n"
    "End the access epoch that `start` began: its operations are complete here, and at the "
    "targets\n"
    "when their `wait` returns.";

inline constexpr char kWait[] =
    "wait($self, /, *, timeout=None)\n--\n\n"
    "End the exposure epoch that `post` began, once every origin has completed. A wait that timed\n"
    "out is pending: call it again.";

inline constexpr char kTest[] =
    "test($self, /)\n--\n\n"
    "Like `wait`, but return False where it would wait; True has ended the epoch.";

inline constexpr char kUnlock[] =
    "unlock($self, /, rank, *, timeout=None)\n--\n\n"
    "End the passive-target epoch to `rank`: its operations are complete there and here.";

inline constexpr char kUnlockAll[] =
    "unlock_all($self, /, *, timeout=None)\n--\n\nEnd the epoch that `lock_all` began.";

inline constexpr char kSync[] =
    "sync($self, /)\n--\n\n"
    "Order this rank's loads and stores of its own memory against the operations of others.";

#undef HIXL_RMA_ORIGIN_AND_TARGET
#undef HIXL_RMA_ACCESS_ERRORS

}  // namespace hixl_rma::docs
