"""The thread pool of a compiled model, as LLVM IR over pthread.

    pool_enter(threads) -> owned     a run begins; it has the pool where `owned` is 1
    parallel_for(region, context, extent)
    pool_leave()                     the run that has the pool ends
    pool_set_affinity(cpus, count) -> error code

A kernel calls `parallel_for` with a function that computes the iterations [begin, end). In the run
that has the pool each thread gets one contiguous piece; in every other run, which may go on at the
same time, the caller computes all of it. The run is known by its thread, so nothing is passed
through `main` and its kernels.

The calling thread is number 0, the workers are 1, 2, ...; each has a slot with a word it waits for:
for a short while in a loop, then asleep on a condition variable. A region sets the words of the
workers that it needs, and the last of them sets that of number 0. Setting a word and then looking
whether its owner sleeps, against saying that one sleeps and then looking at the word, both
sequentially consistent, loses no wake-up.

Workers start when they are first needed and stay. After `fork` they are gone, and locks may be
taken forever, so the process that the pool belongs to is kept and compared at each run. Sizes of
pthread's types differ by platform: they get more room than any needs.
"""

from __future__ import annotations

from functools import lru_cache

from minitvm.codegen.machine import emit_object
from minitvm.runtime import abi
from minitvm.target import Target

ENTER = "minitvm.pool_enter"
LEAVE = "minitvm.pool_leave"
PARALLEL_FOR = "minitvm.parallel_for"
SET_AFFINITY = "minitvm.pool_set_affinity"
SYMBOLS = (ENTER, LEAVE, PARALLEL_FOR, SET_AFFINITY)

SPIN_NANOSECONDS = 20_000
"""How long a thread looks for work before it sleeps: about what waking it would take."""
MAXIMUM_CPU = 1024
"""The bits of the C library's `cpu_set_t`."""

_PAUSE = {
    "x86_64": ("declare void @llvm.x86.sse2.pause()", "call void @llvm.x86.sse2.pause()"),
    "aarch64": ("declare void @llvm.aarch64.hint(i32)", "call void @llvm.aarch64.hint(i32 1)"),
}

_STATE = """
; the word that a thread waits for, whether it sleeps, its handle, its mutex and its condition
%slot = type { i32, i32, i64, [6 x i64], [16 x i64], [16 x i64] }
@pool.slots = internal global [@slots@ x %slot] zeroinitializer, align 64
@pool.process = internal global i32 0
@pool.busy = internal global i32 0
@pool.owner = internal global i64 0, align 64
@pool.workers = internal global i32 0
@pool.active = internal global i32 0
@pool.cpu_count = internal global i32 0
@pool.cpus = internal global [@slots@ x i32] zeroinitializer
@pool.region = internal global ptr null, align 64
@pool.context = internal global ptr null
@pool.extent = internal global i64 0
@pool.chunks = internal global i64 0
@pool.epoch = internal global i32 0
@pool.left = internal global i32 0, align 64

declare i32 @getpid()
declare i64 @pthread_self()
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_detach(i64)
declare i32 @pthread_mutex_init(ptr, ptr)
declare i32 @pthread_mutex_lock(ptr)
declare i32 @pthread_mutex_unlock(ptr)
declare i32 @pthread_cond_init(ptr, ptr)
declare i32 @pthread_cond_wait(ptr, ptr)
declare i32 @pthread_cond_signal(ptr)
declare i32 @pthread_sigmask(i32, ptr, ptr)
declare i32 @pthread_getaffinity_np(i64, i64, ptr)
declare i32 @pthread_setaffinity_np(i64, i64, ptr)
declare i32 @sigfillset(ptr)
declare i32 @sched_yield()
declare i32 @clock_gettime(i32, ptr)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
"""

_WAITING = """
define internal ptr @pool.slot(i64 %number) alwaysinline {
  %slot = getelementptr [@slots@ x %slot], ptr @pool.slots, i64 0, i64 %number
  ret ptr %slot
}

define internal void @pool.prepare(i64 %number) {
  %slot = call ptr @pool.slot(i64 %number)
  %asleep = getelementptr %slot, ptr %slot, i64 0, i32 1
  %mutex = getelementptr %slot, ptr %slot, i64 0, i32 4
  %condition = getelementptr %slot, ptr %slot, i64 0, i32 5
  store atomic i32 0, ptr %slot monotonic, align 4
  store atomic i32 0, ptr %asleep monotonic, align 4
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
  br label %spin
sleep:
  %asleep = getelementptr %slot, ptr %slot, i64 0, i32 1
  %mutex = getelementptr %slot, ptr %slot, i64 0, i32 4
  %condition = getelementptr %slot, ptr %slot, i64 0, i32 5
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
  %mutex = getelementptr %slot, ptr %slot, i64 0, i32 4
  %condition = getelementptr %slot, ptr %slot, i64 0, i32 5
  %a = call i32 @pthread_mutex_lock(ptr %mutex)
  %b = call i32 @pthread_cond_signal(ptr %condition)
  %c = call i32 @pthread_mutex_unlock(ptr %mutex)
  br label %done
done:
  ret void
}
"""

_REGIONS = """
; the piece of thread `number`
define internal void @pool.compute(i64 %number) {
  %region = load ptr, ptr @pool.region
  %context = load ptr, ptr @pool.context
  %extent = load i64, ptr @pool.extent
  %chunks = load i64, ptr @pool.chunks
  %next = add i64 %number, 1
  %low = mul i64 %number, %extent
  %high = mul i64 %next, %extent
  %begin = udiv i64 %low, %chunks
  %end = udiv i64 %high, %chunks
  call void %region(ptr %context, i64 %begin, i64 %end)
  ret void
}

define internal ptr @pool.worker(ptr %argument) {
entry:
  %number = ptrtoint ptr %argument to i64
  br label %loop
loop:
  %known = phi i32 [ 0, %entry ], [ %word, %work ], [ %word, %last ]
  %word = call i32 @pool.await(i64 %number, i32 %known)
  br label %work
work:
  call void @pool.compute(i64 %number)
  %before = atomicrmw sub ptr @pool.left, i32 1 seq_cst
  %final = icmp eq i32 %before, 1
  br i1 %final, label %last, label %loop
last:
  call void @pool.notify(i64 0, i32 %word)
  br label %loop
}

define void @minitvm.parallel_for(ptr %region, ptr %context, i64 %extent) {
entry:
  %owner = load atomic i64, ptr @pool.owner acquire, align 8
  %free = icmp eq i64 %owner, 0
  br i1 %free, label %alone, label %taken
taken:
  %self = call i64 @pthread_self()
  %mine = icmp eq i64 %owner, %self
  br i1 %mine, label %share, label %alone
share:
  %active = load i32, ptr @pool.active
  %threads = zext i32 %active to i64
  %few = icmp slt i64 %extent, %threads
  %chunks = select i1 %few, i64 %extent, i64 %threads
  %several = icmp sgt i64 %chunks, 1
  br i1 %several, label %start, label %alone
start:
  store ptr %region, ptr @pool.region
  store ptr %context, ptr @pool.context
  store i64 %extent, ptr @pool.extent
  store i64 %chunks, ptr @pool.chunks
  %before = load i32, ptr @pool.epoch
  %epoch = add i32 %before, 1
  store i32 %epoch, ptr @pool.epoch
  %helpers = sub i64 %chunks, 1
  %left = trunc i64 %helpers to i32
  store atomic i32 %left, ptr @pool.left seq_cst, align 4
  br label %wake
wake:
  %number = phi i64 [ 1, %start ], [ %next, %wake ]
  call void @pool.notify(i64 %number, i32 %epoch)
  %next = add i64 %number, 1
  %more = icmp slt i64 %next, %chunks
  br i1 %more, label %wake, label %own
own:
  call void @pool.compute(i64 0)
  %joined = call i32 @pool.await(i64 0, i32 %before)
  ret void
alone:
  tail call void %region(ptr %context, i64 0, i64 %extent)
  ret void
}
"""

_RUNS = """
; whether the pool is this process's; starts afresh where it is that of the process before a fork
define internal i1 @pool.here() {
entry:
  %me = call i32 @getpid()
  %known = load atomic i32, ptr @pool.process acquire, align 4
  %same = icmp eq i32 %known, %me
  br i1 %same, label %yes, label %other
other:
  %claim = sub i32 0, %me
  %claimed = icmp eq i32 %known, %claim
  br i1 %claimed, label %no, label %try
try:
  %pair = cmpxchg ptr @pool.process, i32 %known, i32 %claim seq_cst seq_cst
  %won = extractvalue { i32, i1 } %pair, 1
  br i1 %won, label %afresh, label %no
afresh:
  store atomic i64 0, ptr @pool.owner monotonic, align 8
  store i32 0, ptr @pool.workers
  store i32 0, ptr @pool.epoch
  store atomic i32 0, ptr @pool.left monotonic, align 4
  call void @pool.prepare(i64 0)
  store atomic i32 0, ptr @pool.busy monotonic, align 4
  store atomic i32 %me, ptr @pool.process release, align 4
  br label %yes
yes:
  ret i1 true
no:
  ret i1 false
}

define internal i32 @pool.pin(i64 %thread, i32 %cpu) {
  %set = alloca [16 x i64]
  call void @llvm.memset.p0.i64(ptr %set, i8 0, i64 128, i1 false)
  %word = lshr i32 %cpu, 6
  %place = getelementptr i64, ptr %set, i32 %word
  %low = and i32 %cpu, 63
  %shift = zext i32 %low to i64
  %bit = shl i64 1, %shift
  store i64 %bit, ptr %place
  %failed = call i32 @pthread_setaffinity_np(i64 %thread, i64 128, ptr %set)
  ret i32 %failed
}

; pins a worker to its CPU of the list, or lets it run on all where there is no list
define internal void @pool.place(i64 %number, i1 %free) {
entry:
  %set = alloca [16 x i64]
  %slot = call ptr @pool.slot(i64 %number)
  %field = getelementptr %slot, ptr %slot, i64 0, i32 2
  %thread = load i64, ptr %field
  %count = load i32, ptr @pool.cpu_count
  %none = icmp eq i32 %count, 0
  br i1 %none, label %all, label %one
one:
  %wide = zext i32 %count to i64
  %index = urem i64 %number, %wide
  %place = getelementptr i32, ptr @pool.cpus, i64 %index
  %cpu = load i32, ptr %place
  %a = call i32 @pool.pin(i64 %thread, i32 %cpu)
  ret void
all:
  br i1 %free, label %everywhere, label %done
everywhere:
  call void @llvm.memset.p0.i64(ptr %set, i8 -1, i64 128, i1 false)
  %b = call i32 @pthread_setaffinity_np(i64 %thread, i64 128, ptr %set)
  br label %done
done:
  ret void
}

; starts workers until there are `wanted`; they take no signals
define internal void @pool.grow(i32 %wanted) {
entry:
  %all = alloca [16 x i64]
  %old = alloca [16 x i64]
  %have = load i32, ptr @pool.workers
  %enough = icmp sge i32 %have, %wanted
  br i1 %enough, label %ready, label %block
block:
  %a = call i32 @sigfillset(ptr %all)
  %b = call i32 @pthread_sigmask(i32 2, ptr %all, ptr %old)
  br label %start
start:
  %count = phi i32 [ %have, %block ], [ %next, %started ]
  %next = add i32 %count, 1
  %number = zext i32 %next to i64
  call void @pool.prepare(i64 %number)
  %slot = call ptr @pool.slot(i64 %number)
  %thread = getelementptr %slot, ptr %slot, i64 0, i32 2
  %argument = inttoptr i64 %number to ptr
  %failed = call i32 @pthread_create(ptr %thread, ptr null, ptr @pool.worker, ptr %argument)
  %ok = icmp eq i32 %failed, 0
  br i1 %ok, label %started, label %restore
started:
  %handle = load i64, ptr %thread
  %c = call i32 @pthread_detach(i64 %handle)
  store i32 %next, ptr @pool.workers
  call void @pool.place(i64 %number, i1 false)
  %more = icmp slt i32 %next, %wanted
  br i1 %more, label %start, label %restore
restore:
  %d = call i32 @pthread_sigmask(i32 2, ptr %old, ptr null)
  br label %ready
ready:
  ret void
}

define i32 @minitvm.pool_enter(i32 %threads) {
entry:
  %several = icmp sgt i32 %threads, 1
  br i1 %several, label %check, label %single
single:
  %owner = load atomic i64, ptr @pool.owner monotonic, align 8
  %unused = icmp eq i64 %owner, 0
  br i1 %unused, label %none, label %stale
stale:
  %fresh = call i1 @pool.here()
  ret i32 0
check:
  %here = call i1 @pool.here()
  br i1 %here, label %acquire, label %none
acquire:
  %pair = cmpxchg ptr @pool.busy, i32 0, i32 1 seq_cst seq_cst
  %won = extractvalue { i32, i1 } %pair, 1
  br i1 %won, label %grow, label %none
grow:
  %wanted = sub i32 %threads, 1
  call void @pool.grow(i32 %wanted)
  %workers = load i32, ptr @pool.workers
  %most = add i32 %workers, 1
  %less = icmp slt i32 %most, %threads
  %active = select i1 %less, i32 %most, i32 %threads
  store i32 %active, ptr @pool.active
  %self = call i64 @pthread_self()
  store atomic i64 %self, ptr @pool.owner release, align 8
  ret i32 1
none:
  ret i32 0
}

define void @minitvm.pool_leave() {
  store atomic i64 0, ptr @pool.owner release, align 8
  store atomic i32 0, ptr @pool.busy release, align 4
  ret void
}

; the list is tried on the calling thread, which then runs where it did
define internal i1 @pool.allowed(ptr %cpus, i32 %count) {
entry:
  %old = alloca [16 x i64]
  %self = call i64 @pthread_self()
  %got = call i32 @pthread_getaffinity_np(i64 %self, i64 128, ptr %old)
  %known = icmp eq i32 %got, 0
  br i1 %known, label %loop, label %bad
loop:
  %index = phi i32 [ 0, %entry ], [ %next, %next_cpu ]
  %more = icmp slt i32 %index, %count
  br i1 %more, label %try, label %good
try:
  %place = getelementptr i32, ptr %cpus, i32 %index
  %cpu = load i32, ptr %place
  %exists = icmp ult i32 %cpu, @cpus@
  br i1 %exists, label %pin, label %back
pin:
  %failed = call i32 @pool.pin(i64 %self, i32 %cpu)
  %ok = icmp eq i32 %failed, 0
  br i1 %ok, label %next_cpu, label %back
next_cpu:
  %next = add i32 %index, 1
  br label %loop
good:
  %a = call i32 @pthread_setaffinity_np(i64 %self, i64 128, ptr %old)
  ret i1 true
back:
  %b = call i32 @pthread_setaffinity_np(i64 %self, i64 128, ptr %old)
  br label %bad
bad:
  ret i1 false
}

define i32 @minitvm.pool_set_affinity(ptr %cpus, i32 %count) {
entry:
  %in_range = icmp ule i32 %count, @slots@
  br i1 %in_range, label %try, label %bad
try:
  %allowed = call i1 @pool.allowed(ptr %cpus, i32 %count)
  br i1 %allowed, label %enter, label %bad
enter:
  %here = call i1 @pool.here()
  br i1 %here, label %acquire, label %yield
acquire:
  %pair = cmpxchg ptr @pool.busy, i32 0, i32 1 seq_cst seq_cst
  %won = extractvalue { i32, i1 } %pair, 1
  br i1 %won, label %copy, label %yield
yield:
  %a = call i32 @sched_yield()
  br label %enter
copy:
  store i32 %count, ptr @pool.cpu_count
  %workers = load i32, ptr @pool.workers
  br label %copy_cpu
copy_cpu:
  %index = phi i32 [ 0, %copy ], [ %next, %copy_one ]
  %more = icmp slt i32 %index, %count
  br i1 %more, label %copy_one, label %workers_loop
copy_one:
  %from = getelementptr i32, ptr %cpus, i32 %index
  %to = getelementptr i32, ptr @pool.cpus, i32 %index
  %cpu = load i32, ptr %from
  store i32 %cpu, ptr %to
  %next = add i32 %index, 1
  br label %copy_cpu
workers_loop:
  %worker = phi i32 [ 1, %copy_cpu ], [ %following, %pin_worker ]
  %left = icmp sle i32 %worker, %workers
  br i1 %left, label %pin_worker, label %done
pin_worker:
  %number = zext i32 %worker to i64
  call void @pool.place(i64 %number, i1 true)
  %following = add i32 %worker, 1
  br label %workers_loop
done:
  store atomic i32 0, ptr @pool.busy release, align 4
  ret i32 0
bad:
  ret i32 @bad_cpu@
}
"""


def pool_to_llvm(target: Target) -> str:
    """The LLVM module of the pool."""
    declaration, pause = _PAUSE.get(target.isa, ("", ""))
    words = {
        "slots": str(abi.MAXIMUM_THREADS), "pause": pause, "spin": str(SPIN_NANOSECONDS),
        "cpus": str(MAXIMUM_CPU), "bad_cpu": str(int(abi.ErrorCode.BAD_CPU)),
    }
    text = "".join((_STATE, _WAITING, _REGIONS, _RUNS))
    for word, given in words.items():
        text = text.replace(f"@{word}@", given)
    return f'target triple = "{target.triple}"\n{declaration}\n{text}'


@lru_cache(maxsize=16)
def pool_object(target: Target) -> bytes:
    """The object file of the pool."""
    return emit_object(pool_to_llvm(target), target)
