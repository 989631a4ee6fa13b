// Mutex, MutexLock and CondVar: the standard ones, annotated for clang's thread-safety analysis.
//
// A member declared PENSTOCK_GUARDED_BY(mutex_) is read and written only while mutex_ is locked;
// tools/lint has clang check that. The analysis does not see into lambdas, so a wait is a loop:
//
//   MutexLock lock(mutex_);
//   while (!done_) changed_.Wait(lock);
#pragma once

#include <condition_variable>
#include <mutex>

#ifdef __clang__
#define PENSTOCK_THREAD_ANNOTATION(x) __attribute__((x))
#else
#define PENSTOCK_THREAD_ANNOTATION(x)
#endif

#define PENSTOCK_GUARDED_BY(mutex) PENSTOCK_THREAD_ANNOTATION(guarded_by(mutex))
// On a function: the caller has locked the mutex.
#define PENSTOCK_REQUIRES(mutex) PENSTOCK_THREAD_ANNOTATION(requires_capability(mutex))

namespace penstock {

#ifdef __wasm__  // libc++ has no threads there: nothing is ever locked by another one

class Mutex {
 public:
  void Lock() {}
  bool TryLock() { return true; }
  void Unlock() {}
};

class MutexLock {
 public:
  explicit MutexLock(Mutex& /*mutex*/) {}
  ~MutexLock() {}
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

  void Unlock() {}
  void Lock() {}
};

#else

class PENSTOCK_THREAD_ANNOTATION(capability("mutex")) Mutex {
 public:
  void Lock() PENSTOCK_THREAD_ANNOTATION(acquire_capability()) { mutex_.lock(); }
  bool TryLock() PENSTOCK_THREAD_ANNOTATION(try_acquire_capability(true)) {
    return mutex_.try_lock();
  }
  void Unlock() PENSTOCK_THREAD_ANNOTATION(release_capability()) { mutex_.unlock(); }

 private:
  friend class MutexLock;
  std::mutex mutex_;
};

// Holds a mutex until the end of its scope.
class PENSTOCK_THREAD_ANNOTATION(scoped_lockable) MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) PENSTOCK_THREAD_ANNOTATION(acquire_capability(mutex))
      : lock_(mutex.mutex_) {}
  ~MutexLock() PENSTOCK_THREAD_ANNOTATION(release_capability()) {}
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

  // For work that others need not wait for, in the middle of the scope.
  void Unlock() PENSTOCK_THREAD_ANNOTATION(release_capability()) { lock_.unlock(); }
  void Lock() PENSTOCK_THREAD_ANNOTATION(acquire_capability()) { lock_.lock(); }

 private:
  friend class CondVar;
  std::unique_lock<std::mutex> lock_;
};

class CondVar {
 public:
  // Unlocks while it waits. May return early: check the condition in a loop.
  void Wait(MutexLock& lock) { changed_.wait(lock.lock_); }
  // Returns false once `deadline` has passed.
  template <class TimePoint>
  [[nodiscard]] bool WaitUntil(MutexLock& lock, const TimePoint& deadline) {
    return changed_.wait_until(lock.lock_, deadline) == std::cv_status::no_timeout;
  }
  void NotifyOne() { changed_.notify_one(); }
  void NotifyAll() { changed_.notify_all(); }

 private:
  std::condition_variable changed_;
};

#endif

}  // namespace penstock
