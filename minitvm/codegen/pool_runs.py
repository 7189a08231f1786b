"""Runs and their workers, as LLVM IR: `STATE` and `FUNCTIONS`.

    pool_enter(threads) -> owned     a run begins; it has the pool where `owned` is 1
    pool_leave()                     the run that has the pool ends
    pool_set_affinity(cpus, count) -> error code

The run that has the pool is known by its thread, so nothing is passed through `main` and its
kernels. Workers start when they are first needed and stay. After `fork` they are gone, and locks
may be taken forever, so the process that the pool belongs to is kept and compared at each run.
"""

from __future__ import annotations

MAXIMUM_CPU = 1024
"""The bits of the C library's `cpu_set_t`."""

STATE = """
@pool.process = internal global i32 0, align 64
@pool.busy = internal global i32 0
@pool.owner = internal global i64 0, align 64
@pool.workers = internal global i32 0, align 64
@pool.cpu_count = internal global i32 0
@pool.cpus = internal global [@slots@ x i32] zeroinitializer

declare i32 @getpid()
declare i64 @pthread_self()
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_detach(i64)
declare i32 @pthread_sigmask(i32, ptr, ptr)
declare i32 @pthread_getaffinity_np(i64, i64, ptr)
declare i32 @pthread_setaffinity_np(i64, i64, ptr)
declare i32 @sigfillset(ptr)
"""

FUNCTIONS = """
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
