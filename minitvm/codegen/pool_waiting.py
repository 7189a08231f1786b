"""How threads of the pool wait and are woken, as LLVM IR: `STATE` and `FUNCTIONS`.

    pool.await(number, known) -> word    until the word of a slot is another than `known`
    pool.notify(number, word)            sets the word of a slot

Each thread has a slot with a word that it waits for: for a short while in a loop, then asleep on a
condition variable. Setting a word and then looking whether its owner sleeps, against saying that
one sleeps and then looking at the word, both sequentially consistent, loses no wake-up.

The loop lets others go first, after a microsecond or two: where the processor is shared, a thread
that looks for work may stand in the way of the very one that would give it some. With two threads
on one processor, that makes a region of nothing 0.1 instead of 20 microseconds long.

Sizes of pthread's types differ by platform: they get more room than any needs.
"""

from __future__ import annotations

SPIN_NANOSECONDS = 20_000
"""How long a thread looks for work before it sleeps: about what waking it would take."""

STATE = """
; the word that a thread waits for, whether it sleeps, its handle, its claim (see pool_regions),
; its mutex and its condition: what is written at the start of a region is in one line of the cache
%slot = type { i32, i32, i64, i64, [5 x i64], [16 x i64], [16 x i64] }
@pool.slots = internal global [@slots@ x %slot] zeroinitializer, align 64

declare i32 @pthread_mutex_init(ptr, ptr)
declare i32 @pthread_mutex_lock(ptr)
declare i32 @pthread_mutex_unlock(ptr)
declare i32 @pthread_cond_init(ptr, ptr)
declare i32 @pthread_cond_wait(ptr, ptr)
declare i32 @pthread_cond_signal(ptr)
declare i32 @sched_yield()
declare i32 @clock_gettime(i32, ptr)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
"""

FUNCTIONS = """
define internal ptr @pool.slot(i64 %number) alwaysinline {
  %slot = getelementptr [@slots@ x %slot], ptr @pool.slots, i64 0, i64 %number
  ret ptr %slot
}

define internal void @pool.prepare(i64 %number) {
  %slot = call ptr @pool.slot(i64 %number)
  %asleep = getelementptr %slot, ptr %slot, i64 0, i32 1
  %mutex = getelementptr %slot, ptr %slot, i64 0, i32 5
  %condition = getelementptr %slot, ptr %slot, i64 0, i32 6
  store atomic i32 0, ptr %slot monotonic, align 4
  store atomic i32 0, ptr %asleep monotonic, align 4
  %claim = getelementptr %slot, ptr %slot, i64 0, i32 3
  store atomic i64 0, ptr %claim monotonic, align 8
  call void @llvm.memset.p0.i64(ptr %mutex, i8 0, i64 256, i1 false)
  %a = call i32 @pthread_mutex_init(ptr %mutex, ptr null)
  %b = call i32 @pthread_cond_init(ptr %condition, ptr null)
  ret void
}

define internal i64 @pool.nanoseconds() {
  %time = alloca { i64, i64 }
  %ignored = call i32 @clock_gettime(i32 1, ptr %time)
  %seconds = load i64, ptr %time
  %place = getelementptr { i64, i64 }, ptr %time, i64 0, i32 1
  %rest = load i64, ptr %place
  %whole = mul i64 %seconds, 1000000000
  %sum = add i64 %whole, %rest
  ret i64 %sum
}

; waits until the word of a slot is another than `known`
define internal i32 @pool.await(i64 %number, i32 %known) noinline {
entry:
  %slot = call ptr @pool.slot(i64 %number)
  br label %spin
spin:
  %count = phi i32 [ 0, %entry ], [ %next, %again ], [ %next, %timed ]
  %deadline = phi i64 [ 0, %entry ], [ %deadline, %again ], [ %until, %timed ]
  %word = load atomic i32, ptr %slot acquire, align 4
  %came = icmp ne i32 %word, %known
  br i1 %came, label %done, label %again
again:
  @pause@
  %next = add i32 %count, 1
  %low = and i32 %next, 31
  %look = icmp eq i32 %low, 0
  br i1 %look, label %clock, label %spin
clock:
  %now = call i64 @pool.nanoseconds()
  %first = icmp eq i64 %deadline, 0
  %end = add i64 %now, @spin@
  %until = select i1 %first, i64 %end, i64 %deadline
  %late = icmp sge i64 %now, %until
  br i1 %late, label %sleep, label %timed
timed:
  %yielded = call i32 @sched_yield()
  br label %spin
sleep:
  %asleep = getelementptr %slot, ptr %slot, i64 0, i32 1
  %mutex = getelementptr %slot, ptr %slot, i64 0, i32 5
  %condition = getelementptr %slot, ptr %slot, i64 0, i32 6
  %a = call i32 @pthread_mutex_lock(ptr %mutex)
  store atomic i32 1, ptr %asleep seq_cst, align 4
  br label %check
check:
  %seen = load atomic i32, ptr %slot seq_cst, align 4
  %woken = icmp ne i32 %seen, %known
  br i1 %woken, label %awake, label %wait
wait:
  %b = call i32 @pthread_cond_wait(ptr %condition, ptr %mutex)
  br label %check
awake:
  store atomic i32 0, ptr %asleep seq_cst, align 4
  %c = call i32 @pthread_mutex_unlock(ptr %mutex)
  ret i32 %seen
done:
  ret i32 %word
}

define internal void @pool.notify(i64 %number, i32 %word) {
entry:
  %slot = call ptr @pool.slot(i64 %number)
  %asleep = getelementptr %slot, ptr %slot, i64 0, i32 1
  store atomic i32 %word, ptr %slot seq_cst, align 4
  %flag = load atomic i32, ptr %asleep seq_cst, align 4
  %sleeps = icmp ne i32 %flag, 0
  br i1 %sleeps, label %wake, label %done
wake:
  %mutex = getelementptr %slot, ptr %slot, i64 0, i32 5
  %condition = getelementptr %slot, ptr %slot, i64 0, i32 6
  %a = call i32 @pthread_mutex_lock(ptr %mutex)
  %b = call i32 @pthread_cond_signal(ptr %condition)
  %c = call i32 @pthread_mutex_unlock(ptr %mutex)
  br label %done
done:
  ret void
}
"""
