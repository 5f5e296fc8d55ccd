// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/fork.h"
#include "hixl_rma/engine.h"
#include "memory/host/shared_segment.h"
#include "window/control_layout.h"
#include "window/control_link.h"
#include "window/epochs.h"
#include "window/notify_board.h"
#include "window/peer_watch.h"
#include "window/short_waits.h"
#include "window/statistics.h"
#include "window/strided.h"
#include "window/waiting.h"
#include "window/window_lock.h"

namespace hixl_rma {

class NotifyWatcher;

struct WindowOptions {
  int rank = 0;
  int size = 1;
  std::size_t notifications = 256;
  std::uint64_t disp_unit = 1;
  std::size_t nbytes = 0;
  /// Memory of the caller's own (create), or null to have it allocated in the shared segment.
  std::byte* memory = nullptr;
  /// Most bytes of notification records that this rank holds.
  std::size_t notification_cap = std::size_t{1} << 30;
  WaitPolicy wait;
};

/// What this process issued to one target.
struct PeerStats {
  OperationCounts puts;
  OperationCounts gets;
  OperationCounts accumulates;
  std::uint64_t notifications = 0;
  WaitCounts waits;  ///< for this rank alone
};

/// Where at the target: one run as long as the origin at a displacement in the target's units, or,
/// with a layout, a selection whose first element lies `displacement` bytes into the memory.
struct TargetPlace {
  std::uint64_t displacement = 0;
  const StridedRuns* layout = nullptr;
};

/// An origin array: first element and layout.
struct OriginArray {
  std::byte* base = nullptr;
  StridedRuns runs;
};

/// One element type's accumulate, as the window is asked for it.
struct ReduceRequest {
  DataType type = DataType::kUint8;
  ReduceOp op = ReduceOp::kSum;
};

enum class NotifyOrder : std::uint8_t { kAll, kSelf };

struct NotifySpec {
  std::size_t id = 0;
  std::uint64_t value = 1;
  NotifyOrder order = NotifyOrder::kAll;
};

/// Which notifications a wait takes.
enum class TakeMode : std::uint8_t { kAny, kSome, kAll };

/// What a wait took: one notification, kept without an allocation (kAny), or a list.
struct Taken {
  std::optional<Notification> any;
  std::vector<Notification> list;

  void clear() {
    any.reset();
    list.clear();
  }
  [[nodiscard]] bool empty() const { return !any && list.empty(); }
  [[nodiscard]] std::size_t size() const { return any ? 1 : list.size(); }
  [[nodiscard]] const Notification& operator[](std::size_t i) const { return any ? *any : list[i]; }
};

struct NotifyWait {
  NotificationSet ids;
  std::uint64_t count = 1;
  int source = kAnySource;
  bool consume = true;
};

/// Memory that the ranks of a group expose to each other.
///
/// Made in steps around exchanges of bytes and errors (the caller's bootstrap): prepare -> describe
/// ... connect -> verdicts written ... settle -> memory imported ... finish -> usable.
/// Thread: operations and waits from any thread; what opens and closes epochs is serialised here.
/// Errors: every argument is checked before a byte moves.
class Window {
 public:
  static Result<std::unique_ptr<Window>> prepare(std::shared_ptr<Engine> engine,
                                                 const WindowOptions& options);
  Window(const Window&) = delete;
  Window& operator=(const Window&) = delete;
  ~Window();

  // ---- creation (creation.cc)
  [[nodiscard]] const Bytes& description() const { return description_; }
  /// Connects to every rank and imports its control memory. `descriptions` by rank.
  Status connect(std::span<const Bytes> descriptions, const Deadline& deadline);
  /// How long a wait spins before it sleeps; before the window is used.
  void set_spin(Nanoseconds spin) { options_.wait.spin = spin; }
  /// Chooses the transport for each rank, once every rank is through connect, and imports the
  /// rank's memory on that one.
  Status settle(const Deadline& deadline);
  /// Gives back what only importing needed, once every rank is through settle.
  void finish();

  // ---- facts
  [[nodiscard]] int rank() const { return options_.rank; }
  [[nodiscard]] int size() const { return options_.size; }
  [[nodiscard]] std::size_t notifications() const { return options_.notifications; }
  [[nodiscard]] std::byte* local_memory() const { return memory_; }
  [[nodiscard]] std::size_t local_bytes() const { return options_.nbytes; }
  [[nodiscard]] std::shared_ptr<SharedSegment> segment() const { return segment_; }
  [[nodiscard]] std::uint64_t bytes_of(int target) const { return link(target).nbytes; }
  [[nodiscard]] std::uint64_t unit_of(int target) const { return link(target).disp_unit; }
  [[nodiscard]] std::string transport_of(int target) const;
  /// Address of the target's memory here, or null; `keep` keeps the mapping alive.
  [[nodiscard]] std::byte* mapped(int target, std::shared_ptr<const void>* keep) const;
  [[nodiscard]] PeerStats stats(int target) const;
  /// Waits of this rank, whomever it waited for.
  [[nodiscard]] WaitCounts waits(WaitKind kind) const {
    return waits_[static_cast<std::size_t>(kind)].counts();
  }
  [[nodiscard]] std::vector<int> failed_ranks();

  // ---- operations (transfer.cc); `own` collects completion for a request, null leaves it to flush
  struct Issue {
    Completion* own = nullptr;
    bool pending = false;  ///< out: local memory is still in use when the call returns
    bool behind = false;   ///< out: the engine's thread carries it out
  };
  Status put(const std::byte* origin, std::size_t nbytes, int target, std::uint64_t displacement,
             Issue& issue);
  Status get(std::byte* origin, std::size_t nbytes, int target, std::uint64_t displacement,
             Issue& issue);
  Status put_array(OriginArray origin, int target, const TargetPlace& place, Issue& issue);
  Status get_array(OriginArray origin, int target, const TargetPlace& place, Issue& issue);
  /// Usable, the target alive, an access epoch open to it.
  Status access(int target) {
    if (!ready() || !known_alive(target)) [[unlikely]] {
      if (Status status = check_target(target); !status.ok()) return status;
    }
    return epochs_.may_access(static_cast<std::size_t>(target));
  }
  /// Byte offset of `nbytes` at a displacement, checked to lie inside the target's memory.
  Status locate(int target, std::uint64_t displacement, std::uint64_t nbytes,
                std::uint64_t* offset) const;
  /// Pieces at located byte offsets. Neighbours are merged.
  Status put_pieces(std::vector<Piece> pieces, int target, Issue& issue);
  Status get_pieces(std::vector<Piece> pieces, int target, Issue& issue);
  /// `result.base` may be null. Origin and result have the same layout size; places as for put.
  Status accumulate(const ReduceRequest& request, OriginArray origin, OriginArray result,
                    int target, const TargetPlace& place, Issue& issue);
  Status compare_and_swap(DataType type, const std::byte* desired, const std::byte* compare,
                          std::byte* result, int target, std::uint64_t displacement, Issue& issue);
  Status flush(int target, FlushScope scope, const Deadline& deadline);  ///< target -1: all
  void progress() {
    engine_->progress();
    peers_->look();
    refresh_lost();
  }
  /// Waits for one request's operations; `peer` (-1: none) has the wait counted.
  Status wait(const Completion& completion, const Deadline& deadline, int peer = -1,
              WaitKind kind = WaitKind::kRequest);
  /// What came of them, once they are done.
  [[nodiscard]] Status outcome(const Completion& completion) const {
    return settled(completion.status());
  }
  /// The error of a displacement that is no unsigned 64-bit number, in its place among the checks.
  Status refuse_displacement(int target, const std::string& displacement, std::uint64_t nbytes);
  /// Keeps what an operation that is pending works on until the target is flushed. What belongs to
  /// a request's completion, itself in there, goes when that is done, but not before.
  void hold(int target, std::shared_ptr<void> memory, const Completion* own = nullptr);
  /// Whether completing operations to the target (-1: to anybody) may take a wait.
  [[nodiscard]] bool may_wait(int target) const {
    if (target < 0) return any_waits_ || behind_.load(std::memory_order_relaxed) != 0;
    return !link(target).inline_data || !link(target).behind.done();
  }

  /// Whether nothing but waiting for other ranks takes time: every post, of data and of control
  /// memory, is done when it returns.
  [[nodiscard]] bool answers_at_once() const { return !any_waits_ && inline_control_; }

  // ---- synchronisation (sync.cc)
  Status fence(unsigned assertion, const Deadline& deadline);
  Status start(const std::vector<int>& group, const Deadline& deadline);
  Status complete(const Deadline& deadline);
  Status post(const std::vector<int>& group);
  Status wait_exposure(const Deadline& deadline);
  Status test_exposure(bool* over);
  Status lock(int target, bool exclusive, const Deadline& deadline);
  Status unlock(int target, const Deadline& deadline);
  Status lock_all(const Deadline& deadline);
  Status unlock_all(const Deadline& deadline);
  void sync() const { std::atomic_thread_fence(std::memory_order_seq_cst); }

  // ---- notifications (notify.cc)
  /// May the caller notify this target now: checked before its payload moves.
  Status check_notify(int target, const NotifySpec& spec);
  /// Publishes one notification, after everything of this link that `order` asks for. Of a request
  /// whose payload is still on its way, or follows one that is, the engine's thread publishes it.
  Status publish(int target, const NotifySpec& spec, const Deadline& deadline, Issue& issue);
  /// Takes what is there now or comes within a few microseconds, without making progress. For a
  /// caller who holds a lock that is dearer to give away and take back than so short a wait: the
  /// GIL. Nothing is taken when nothing came.
  Status glance_notify(TakeMode mode, const NotifyWait& what, Taken* taken);
  Status test_notify(TakeMode mode, const NotifyWait& what, Taken* taken);
  Status wait_notify(TakeMode mode, const NotifyWait& what, const Deadline& deadline, Taken* taken);
  Result<std::uint64_t> notify_count(std::size_t id, int source);
  Result<Notification> reset_notify(std::size_t id);
  /// An eventfd that is readable when there may be something to look at.
  Result<int> notify_fileno();

  // ---- the end (teardown.cc)
  /// Collective. Ok, or freed() and the failure of an operation: nothing of the window is left here
  /// but mappings that views hold.
  Status free(const Deadline& deadline);
  /// A free is through, and release() may follow.
  [[nodiscard]] bool freed() const { return freed_.load(std::memory_order_acquire); }
  /// Local: withdraws the memory and tells every rank that this one is lost. A lock it holds stays
  /// taken: what it guards may be half done.
  void abort();
  /// After free or abort every call gives ClosedError.
  [[nodiscard]] bool closed() const { return closing_.load(std::memory_order_acquire); }
  /// Gives back what a closed window still has. Not while another thread may be inside an
  /// operation: the bindings call it with the GIL, which short operations never release.
  void release();
  Status usable() const { return ready() ? Status() : not_usable(); }

  /// Keeps the window from being taken down while a thread works in it without the GIL.
  class Inside {
   public:
    explicit Inside(Window& window) : window_(window) { window_.inside_.fetch_add(1); }
    Inside(const Inside&) = delete;
    Inside& operator=(const Inside&) = delete;
    ~Inside() { window_.inside_.fetch_sub(1); }

   private:
    Window& window_;
  };

 private:
  friend class ShortWaits;
  struct Link {
    std::shared_ptr<Peer> peer;
    ImportedRegion control_regions;
    ImportedRegion data_regions;
    int control_transport = -1;
    int data_transport = -1;
    Endpoint* data = nullptr;  // endpoint of data_transport
    RemoteRegion* data_region = nullptr;
    bool inline_data = true;  // every post is done when it returns
    bool ordered = true;      // a notify follows earlier puts without a flush
    std::uint64_t nbytes = 0;
    std::uint64_t disp_unit = 1;
    std::uint64_t last_displacement = 0;  // nbytes / disp_unit: divisions are slow
    bool withdrawable = false;            // created memory: may go while its owner lives
    std::uint64_t generation = 0;         // of the target's data memory when it was imported
    std::uint64_t salt = 0;               // of the records in the target's control memory
    Bytes data_keys;                      // until the memory is imported
    std::atomic<bool> lost{false};
    bool ended = false;  // its process has; guarded by lost_mutex_
    struct Held {
      std::shared_ptr<void> memory;
      const Completion* own;  // null: one of `outstanding`
    };
    Completion outstanding;
    Completion local_flushes;
    Completion behind;            // NOTE [asynchronous copies]
    std::vector<Held> held;       // what outstanding operations work on
    std::size_t held_check = 64;  // look through them when there are so many
    std::mutex publish_mutex;     // NOTE [publication]
    std::uint64_t sent_total = 0;
    std::uint64_t last_ids = 0;
    struct Sent {
      std::uint64_t count = 0;
      std::uint64_t sum = 0;
    };
    std::vector<Sent> sent;  // by id, made with the first notification
    OperationCounter puts;
    OperationCounter gets;
    OperationCounter accumulates;
    OperationCounter notifies;
    WaitCounter waits;
  };
  struct Barrier {
    std::uint64_t epoch = 0;
    std::size_t round = 0;
    bool signalled = false;
    bool running = false;
  };
  struct Described;  // a rank's description, parsed

  Window(std::shared_ptr<Engine> engine, const WindowOptions& options);

  [[nodiscard]] Link& link(int target) { return links_[static_cast<std::size_t>(target)]; }
  [[nodiscard]] const Link& link(int target) const {
    return links_[static_cast<std::size_t>(target)];
  }

  // creation.cc
  Status make_memory();
  Status register_regions();
  Status connect_rank(int peer_rank, const Described& described, const Deadline& deadline);
  struct Choice;
  [[nodiscard]] RegionSync sync_with(int peer_rank);
  Status settle_rank(int peer_rank, const Deadline& deadline);
  Status import_data(int peer_rank, const Deadline& deadline);
  [[nodiscard]] std::string refusal(std::size_t transport, const Choice& choice) const;
  [[nodiscard]] Status no_transport(const Choice& choice) const;
  void log_choice(const Choice& choice, std::size_t chosen) const;

  // transfer.cc
  [[nodiscard]] bool ready() const {
    return fork_generation_ == fork_generation() && !closing_.load(std::memory_order_acquire);
  }
  /// A rank of the group, and no news that it was lost.
  [[nodiscard]] bool known_alive(int target) const {
    return static_cast<unsigned>(target) < static_cast<unsigned>(options_.size) &&
           !news_of_loss() && !link(target).lost.load(std::memory_order_relaxed);
  }
  Status not_usable() const;
  Status flush_rank(int rank, FlushScope scope, const Deadline& deadline);
  Status check_target(int target);
  Status range_error(int target, const std::string& displacement, std::uint64_t nbytes) const;
  /// Byte offset of a displacement, after checking that [lowest, highest) around it is inside.
  Status place_offset(int target, const TargetPlace& place, std::ptrdiff_t lowest,
                      std::ptrdiff_t highest, std::uint64_t* offset) const;
  Status post_error(int target, const Status& status);
  template <class PostOperation>
  Status issue_post(Link& to, Issue& issue, PostOperation&& post);
  Status move_pieces(int target, bool put, std::span<const Piece> pieces, Issue& issue);
  Status post_pieces(int target, bool put, std::span<const Piece> pieces, Issue& issue);
  Status move_list(std::vector<Piece>& pieces, int target, bool put, Issue& issue);
  Status move_array(OriginArray& origin, int target, bool put, const TargetPlace& place,
                    Issue& issue);
  Status flush_pending(int target, FlushScope scope, const Deadline& deadline);
  Status post_flush(Link& to, FlushScope scope, Completion& completion);

  // asynchronous.cc
  [[nodiscard]] static bool goes_behind(const Link& to, const Issue& issue, std::uint64_t nbytes);
  void move_behind(int target, bool put, std::span<const Piece> pieces, Issue& issue);
  void publish_behind(int target, const NotifySpec& spec, Issue& issue);
  template <class Work>
  void do_behind(int target, Issue& issue, Work&& work);
  void release_held(Link& to);

  // sync.cc
  Status check_group(const std::vector<int>& group) const;
  template <class Arrived>
  Status wait_for_all(WaitKind kind, std::span<const int> group, const Arrived& arrived,
                      const Deadline& deadline);
  Status advance_barrier(const Deadline& deadline, WaitKind kind);
  /// Until ready() holds; `peer` is the one rank that is waited for, or -1.
  template <class Ready>
  WaitEnd wait_until(WaitKind kind, int peer, const Deadline& deadline, Ready ready) {
    WaitTimer timer(waits_[static_cast<std::size_t>(kind)], peer < 0 ? nullptr : &link(peer).waits);
    return wait_on(control_.header().doorbell, *engine_, options_.wait, deadline, ready, &timer);
  }
  Status waited(WaitEnd end) const;
  Status lost_holder(int target, bool exclusive);
  Status lock_one(int target, bool exclusive, const Deadline& deadline);
  Status recover_lock(int target, std::uint64_t* known_losses, const Deadline& deadline);
  [[nodiscard]] Status first_lost(std::span<const int> group);
  [[nodiscard]] Status any_lost();
  Status complete_outstanding(const Deadline& deadline);
  Status complete_rank(int rank, const Deadline& deadline);
  Status closed_with(const Status& status);

  // notify.cc
  Status write_notification(int target, const NotifySpec& spec);
  Status check_wait(const NotifyWait& what) const;
  [[nodiscard]] bool all_others_lost() const;
  bool take(TakeMode mode, const NotifyWait& what, Taken* taken);
  bool lost_matters(const NotifyWait& what);
  Status untaken(TakeMode mode, const NotifyWait& what, Taken* taken);
  bool unreported_loss();
  Status lost_waiting(const NotifyWait& what);
  Status notify_timeout(const NotifyWait& what, TakeMode mode);

  // teardown.cc
  void quiesce();
  void withdraw_memory();
  void tell_lost();
  /// Looks at the loss words when their count changed.
  void refresh_lost() {
    const std::uint64_t count = control_.header().lost_count.load(std::memory_order_acquire);
    if (count != lost_seen_.load(std::memory_order_relaxed)) learn_lost(count);
  }
  void learn_lost(std::uint64_t count);
  [[nodiscard]] Status loss_of(int rank) const;
  [[nodiscard]] Status settled(const Status& status) const;
  [[nodiscard]] bool news_of_loss() const {
    return control_.header().lost_count.load(std::memory_order_relaxed) !=
           lost_seen_.load(std::memory_order_relaxed);
  }

  std::shared_ptr<Engine> engine_;
  WindowOptions options_;
  int fork_generation_ = fork_generation();
  ControlLayout layout_;
  std::shared_ptr<SharedSegment> segment_;
  std::byte* memory_ = nullptr;
  ControlView control_;
  ShortWaits short_waits_{*this};
  std::unique_ptr<PeerWatch> peers_;  // outlives the regions, whose threads may ask it
  std::unique_ptr<LocalRegion> control_region_;
  std::unique_ptr<LocalRegion> data_region_;
  Bytes description_;
  std::unique_ptr<Link[]> links_;
  std::vector<ControlLink> control_links_;
  bool any_waits_ = false;      // a link's posts are not all done when they return
  bool inline_control_ = true;  // those of control memory are, on every link
  std::unique_ptr<WindowLock> lock_;
  Epochs epochs_;
  std::unique_ptr<NotifyBoard> board_;
  std::unique_ptr<NotifyWatcher> watcher_;         // guarded by sync_mutex_
  std::atomic<NotifyWatcher*> watching_{nullptr};  // the same, for who is inside
  std::mutex sync_mutex_;                          // epochs; never held while waiting
  Status failure_;  // guarded by sync_mutex_: what the call that closes the epoch has to report
  std::atomic<bool> sync_busy_{false};  // a fence, start, complete, wait or free is running
  Barrier barrier_;
  std::vector<std::uint64_t> posts_taken_;  // by target: its posts that a start consumed
  std::vector<std::uint64_t> posts_made_;   // by origin
  std::vector<std::uint64_t> completes_taken_;
  std::vector<std::uint64_t> completes_made_;
  std::uint64_t salt_ = 0;  // of the records in this rank's control memory
  std::atomic<std::uint64_t> lost_seen_{0};
  std::mutex lost_mutex_;
  std::vector<int> lost_;          // in the order they were lost
  std::size_t lost_reported_ = 0;  // how many of them a wait on any source reported
  std::atomic<bool> closing_{false};
  std::atomic<bool> freed_{false};
  bool released_ = false;
  std::atomic<int> inside_{0};  // waits and long copies that run without the GIL
  std::array<WaitCounter, kWaitKinds> waits_;
  std::atomic<int> behind_{0};  // operations that the engine's thread still has to do
};

}  // namespace hixl_rma
