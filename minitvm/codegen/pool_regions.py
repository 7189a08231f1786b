"""How threads share the iterations of a parallel loop, as LLVM IR: `STATE` and `FUNCTIONS`.

    parallel_for(region, context, extent, limit)     limit: on how many threads at most

The iterations [0, extent) are cut into equal pieces, some for each thread, at most one for each
iteration. Each of the T threads of a region starts with a contiguous range of pieces. It takes half
of what is left of its range, again and again, from the front; once its range is empty it helps the
other threads in turn, taking half of what is left of theirs, from the back. So with threads that
keep pace each computes its own contiguous part, and what a late or slow one leaves others take.

**State.** A region has a number, its epoch, and four fields (function, context, extent, number of
pieces) and T. The range of each thread is a word of 64 bits, its claim: (epoch, begin, end). `left`
counts the pieces that are not reported yet, and one more for thread 0, which calls.

**Start.** Thread 0 stores the fields, `left` = pieces + 1, and then each thread's claim (release)
and word (`pool_waiting`), both with the new epoch.

**Taking.** A thread that was told of epoch e reads the fields, and then changes claims whose epoch
is e, by compare-and-swap (acquire, release). A claim only ever shrinks within an epoch. So each
piece is taken exactly once, and who finds a claim empty has no need to look at it again.

**End.** Each thread that took any pieces subtracts them from `left` at once when it finds no more;
thread 0 always subtracts one more, last. Who brings `left` to 0 ends the region; if that isn't
thread 0, it wakes thread 0, which has subtracted already and waits for nothing but that.

Why that is right:

1. *It ends.* Thread 0 looks at all T claims, after it has written them, and leaves each only when
   it is empty. So when it subtracts, every piece is taken, by a thread that is computing. Nobody
   waits for a thread to arrive: a worker that sleeps through a region is not missed.
2. *Nothing of a finished region is touched.* A worker may be late by any time. It calls `region`
   only after a swap from (e, ...) succeeded. At that moment the piece was not taken, hence not
   computed, so `left` > 0 and region e had not ended; and it doesn't end before this worker
   subtracts. Its context, on thread 0's stack, is alive for as long. A late swap fails: a claim
   of a later epoch differs in its upper half, one of epoch e is empty.
3. *The fields that it read are those of e.* It read them after it saw its word e, so they are no
   older; and before the swap, which precedes its subtraction, which precedes the end of region e,
   which precedes the next store to the fields: so they are no newer. If the swap fails they
   may be a mixture, which nobody uses but to choose claims to look at, all within the slots.
4. *Results are seen.* Subtractions from `left` are read-modify-writes: the last one, and by its
   notification thread 0, sees what happened before all of them.
5. *A worker that took nothing* does not subtract: it has promised nothing, and nobody counts on it.

Epochs have 32 bits. To mistake a region for another, a thread would have to be stopped between
reading a claim and swapping it while exactly 2^32 regions pass.
"""

from __future__ import annotations

PIECES = 16
"""Pieces for each thread: what the last one to finish has left when others have nothing more."""

STATE = """
@pool.epoch = internal global i32 0, align 64
@pool.active = internal global i32 0
@pool.region = internal global ptr null, align 64
@pool.context = internal global ptr null
@pool.extent = internal global i64 0
@pool.pieces = internal global i64 0
@pool.threads = internal global i64 0
@pool.left = internal global i64 0, align 64
"""

FUNCTIONS = """
; takes half of a claim's pieces, rounded up, from the front or from the back; begin and end in the
; halves of the result, which are equal if there are none
define internal i64 @pool.take(ptr %claim, i32 %epoch, i1 %front) {
entry:
  %first = load atomic i64, ptr %claim acquire, align 8
  br label %look
look:
  %word = phi i64 [ %first, %entry ], [ %found, %swap ]
  %upper = lshr i64 %word, 32
  %claimed = trunc i64 %upper to i32
  %current = icmp eq i32 %claimed, %epoch
  %shifted = lshr i64 %word, 16
  %begin = and i64 %shifted, 65535
  %end = and i64 %word, 65535
  %some = icmp ult i64 %begin, %end
  %open = and i1 %current, %some
  br i1 %open, label %swap, label %none
swap:
  %left = sub i64 %end, %begin
  %odd = add i64 %left, 1
  %count = lshr i64 %odd, 1
  %higher = shl i64 %count, 16
  %without_front = add i64 %word, %higher
  %without_back = sub i64 %word, %count
  %shrunk = select i1 %front, i64 %without_front, i64 %without_back
  %pair = cmpxchg ptr %claim, i64 %word, i64 %shrunk acq_rel acquire
  %found = extractvalue { i64, i1 } %pair, 0
  %won = extractvalue { i64, i1 } %pair, 1
  br i1 %won, label %taken, label %look
taken:
  %rest = sub i64 %end, %count
  %from = select i1 %front, i64 %begin, i64 %rest
  %to = add i64 %from, %count
  %high = shl i64 %from, 32
  %both = or i64 %high, %to
  ret i64 %both
none:
  ret i64 0
}

; computes pieces of region `epoch` until there are no more; how many those were
define internal i64 @pool.work(i64 %number, i32 %epoch) {
entry:
  %region = load atomic ptr, ptr @pool.region monotonic, align 8
  %context = load atomic ptr, ptr @pool.context monotonic, align 8
  %extent = load atomic i64, ptr @pool.extent monotonic, align 8
  %pieces = load atomic i64, ptr @pool.pieces monotonic, align 8
  %threads = load atomic i64, ptr @pool.threads monotonic, align 8
  br label %visit
visit:
  %turn = phi i64 [ 0, %entry ], [ %next, %nothing ]
  %before = phi i64 [ 0, %entry ], [ %done, %nothing ]
  %sum = add i64 %number, %turn
  %round = icmp uge i64 %sum, %threads
  %back = sub i64 %sum, %threads
  %whose = select i1 %round, i64 %back, i64 %sum
  %slot = call ptr @pool.slot(i64 %whose)
  %claim = getelementptr %slot, ptr %slot, i64 0, i32 3
  %own = icmp eq i64 %turn, 0
  br label %take
take:
  %done = phi i64 [ %before, %visit ], [ %more, %compute ]
  %taken = call i64 @pool.take(ptr %claim, i32 %epoch, i1 %own)
  %from = lshr i64 %taken, 32
  %to = and i64 %taken, 4294967295
  %some = icmp ult i64 %from, %to
  br i1 %some, label %compute, label %nothing
compute:
  %low = mul i64 %from, %extent
  %high = mul i64 %to, %extent
  %begin = udiv i64 %low, %pieces
  %end = udiv i64 %high, %pieces
  call void %region(ptr %context, i64 %begin, i64 %end, i64 %number)
  %count = sub i64 %to, %from
  %more = add i64 %done, %count
  br label %take
nothing:
  %next = add i64 %turn, 1
  %others = icmp ult i64 %next, %threads
  br i1 %others, label %visit, label %end_of_work
end_of_work:
  ret i64 %done
}

define internal ptr @pool.worker(ptr %argument) {
entry:
  %number = ptrtoint ptr %argument to i64
  br label %loop
loop:
  %known = phi i32 [ 0, %entry ], [ %epoch, %loop ], [ %epoch, %report ], [ %epoch, %last ]
  %epoch = call i32 @pool.await(i64 %number, i32 %known)
  %done = call i64 @pool.work(i64 %number, i32 %epoch)
  %some = icmp ne i64 %done, 0
  br i1 %some, label %report, label %loop
report:
  %before = atomicrmw sub ptr @pool.left, i64 %done seq_cst
  %final = icmp eq i64 %before, %done
  br i1 %final, label %last, label %loop
last:
  call void @pool.notify(i64 0, i32 %epoch)
  br label %loop
}

define internal void @pool.share(ptr %region, ptr %context, i64 %extent, i64 %threads) noinline {
entry:
  %many = mul i64 %threads, @pieces@
  %few = icmp ult i64 %extent, %many
  %pieces = select i1 %few, i64 %extent, i64 %many
  %before = load i32, ptr @pool.epoch
  %epoch = add i32 %before, 1
  store i32 %epoch, ptr @pool.epoch
  store atomic ptr %region, ptr @pool.region monotonic, align 8
  store atomic ptr %context, ptr @pool.context monotonic, align 8
  store atomic i64 %extent, ptr @pool.extent monotonic, align 8
  store atomic i64 %pieces, ptr @pool.pieces monotonic, align 8
  store atomic i64 %threads, ptr @pool.threads monotonic, align 8
  %left = add i64 %pieces, 1
  store atomic i64 %left, ptr @pool.left monotonic, align 8
  %me = call ptr @pool.slot(i64 0)
  %known = load atomic i32, ptr %me acquire, align 4
  %wide = zext i32 %epoch to i64
  %upper = shl i64 %wide, 32
  br label %give
give:
  %number = phi i64 [ 0, %entry ], [ %next, %given ]
  %begin = phi i64 [ 0, %entry ], [ %end, %given ]
  %next = add i64 %number, 1
  %part = mul i64 %next, %pieces
  %end = udiv i64 %part, %threads
  %shifted = shl i64 %begin, 16
  %range = or i64 %shifted, %end
  %word = or i64 %upper, %range
  %slot = call ptr @pool.slot(i64 %number)
  %claim = getelementptr %slot, ptr %slot, i64 0, i32 3
  store atomic i64 %word, ptr %claim release, align 8
  %worker = icmp ne i64 %number, 0
  br i1 %worker, label %wake, label %given
wake:
  call void @pool.notify(i64 %number, i32 %epoch)
  br label %given
given:
  %more = icmp ult i64 %next, %threads
  br i1 %more, label %give, label %own
own:
  %done = call i64 @pool.work(i64 0, i32 %epoch)
  %all = add i64 %done, 1
  %unreported = atomicrmw sub ptr @pool.left, i64 %all seq_cst
  %finished = icmp eq i64 %unreported, %all
  br i1 %finished, label %end_of_region, label %join
join:
  %joined = call i32 @pool.await(i64 0, i32 %known)
  br label %end_of_region
end_of_region:
  ret void
}

define void @minitvm.parallel_for(ptr %region, ptr %context, i64 %extent, i64 %limit) {
entry:
  %owner = load atomic i64, ptr @pool.owner acquire, align 8
  %free = icmp eq i64 %owner, 0
  br i1 %free, label %alone, label %taken
taken:
  %self = call i64 @pthread_self()
  %mine = icmp eq i64 %owner, %self
  br i1 %mine, label %count, label %alone
count:
  %active = load i32, ptr @pool.active
  %most = zext i32 %active to i64
  %at_most = call i64 @llvm.smin.i64(i64 %most, i64 %limit)
  %threads = call i64 @llvm.smin.i64(i64 %at_most, i64 %extent)
  %several = icmp sgt i64 %threads, 1
  br i1 %several, label %start, label %alone
start:
  call void @pool.share(ptr %region, ptr %context, i64 %extent, i64 %threads)
  ret void
alone:
  tail call void %region(ptr %context, i64 0, i64 %extent, i64 0)
  ret void
}
declare i64 @llvm.smin.i64(i64, i64)
"""
