; The native code of threads.py. It is in sections, `;; name`, of which threads.py takes what the machine and the system need; `$name` is a
; number that Python knows.

;; team
; `run(task, data, n)` calls `task(data, id, count)` once for every id below count, each on a thread of its own, id 0 on the caller, and
; returns when all have returned. Shared words lie on cache lines of their own.

%Job = type { ptr, ptr, i64, i64 }                  ; task, data, count, floating-point mode of the caller
%Line = type { i32, [31 x i32] }                    ; one word on two cache lines (the prefetcher loads pairs)
%Worker = type { i32, i32, i32, [29 x i32], [128 x i8] } ; [0] event: there is a task; the rest: see @keep_off
%OpenMP = type { ptr, ptr, ptr, ptr, ptr, ptr }     ; see @adopt

@forked = global i32 0                              ; 1 in a forked child, where no pool has its threads any more
@openmp = internal global %OpenMP zeroinitializer
@openmp.ready = internal global i32 0
@openmp.where = internal global { i32, i32, i32, i32, ptr } { i32 0, i32 2, i32 0, i32 22, ptr @openmp.name } ; libomp's ident_t
@openmp.name = internal constant [23 x i8] c";unknown;unknown;0;0;;\00"

@busy = internal global %Line zeroinitializer, align 128      ; 1 while a caller owns all that follows
@job = internal global %Job zeroinitializer, align 128
@count = internal global i64 1                                ; threads of the team so far, the caller included
@remaining = internal global %Line zeroinitializer, align 128 ; workers still in the task
@finished = internal global %Line zeroinitializer, align 128  ; event: the last worker has left the task
@workers = internal global [1024 x %Worker] zeroinitializer, align 128 ; by id; 0 is not used

define void @run(ptr %task, ptr %data, i64 %n) nounwind {
entry:
  %openmp.job = alloca %Job, align 8
  %several = icmp sgt i64 %n, 1
  %child = load atomic i32, ptr @forked monotonic, align 4
  %parent = icmp eq i32 %child, 0
  %threaded = and i1 %several, %parent
  br i1 %threaded, label %choose, label %alone
choose:
  %mode = call i64 @read_mode()
  %ready = load atomic i32, ptr @openmp.ready acquire, align 4
  %has.openmp = icmp ne i32 %ready, 0
  br i1 %has.openmp, label %openmp, label %claim
openmp:
  call void @set_job(ptr %openmp.job, ptr %task, ptr %data, i64 %n, i64 %mode)
  call void @run_openmp(ptr %openmp.job, i64 %n)
  ret void
claim:
  %claimed = cmpxchg ptr @busy, i32 0, i32 1 acquire monotonic
  %mine = extractvalue { i32, i1 } %claimed, 1
  br i1 %mine, label %lead, label %alone
lead:
  %team = call i64 @enlist(i64 %n)
  call void @set_job(ptr @job, ptr %task, ptr %data, i64 %team, i64 %mode)
  call void @run_team(ptr %task, ptr %data, i64 %team)
  store atomic i32 0, ptr @busy release, align 4
  ret void
alone:
  call void %task(ptr %data, i64 0, i64 1)
  ret void
}

define internal void @set_job(ptr %job, ptr %task, ptr %data, i64 %count, i64 %mode) nounwind {
  %data.at = getelementptr %Job, ptr %job, i64 0, i32 1
  %count.at = getelementptr %Job, ptr %job, i64 0, i32 2
  %mode.at = getelementptr %Job, ptr %job, i64 0, i32 3
  store ptr %task, ptr %job, align 8
  store ptr %data, ptr %data.at, align 8
  store i64 %count, ptr %count.at, align 8
  store i64 %mode, ptr %mode.at, align 8
  ret void
}

; Call the workers, take part, wait for the last of them. The caller owns @busy.
define internal void @run_team(ptr %task, ptr %data, i64 %team) nounwind {
entry:
  %workers = add i64 %team, -1
  %workers.32 = trunc i64 %workers to i32
  store atomic i32 %workers.32, ptr @remaining monotonic, align 4
  %some = icmp sgt i64 %workers, 0
  br i1 %some, label %call, label %alone
call:
  %id = phi i64 [ 1, %entry ], [ %id.next, %called ]
  %worker = getelementptr %Worker, ptr @workers, i64 %id
  %state = load atomic i32, ptr %worker acquire, align 4
  %asleep = icmp eq i32 %state, 2
  br i1 %asleep, label %aside, label %called
aside:
  call void @keep_off(ptr %worker)
  br label %called
called:
  call void @signal(ptr %worker)
  %id.next = add i64 %id, 1
  %more = icmp slt i64 %id.next, %team
  br i1 %more, label %call, label %together
together:
  call void %task(ptr %data, i64 0, i64 %team)
  call void @await(ptr @finished)
  ret void
alone:
  call void %task(ptr %data, i64 0, i64 1)
  ret void
}

; The life of a worker, whose place among @workers is its id.
define internal ptr @work(ptr %worker) nounwind {
entry:
  %address = ptrtoint ptr %worker to i64
  %offset = sub i64 %address, ptrtoint (ptr @workers to i64)
  %id = lshr exact i64 %offset, 8
  call void @name_thread(ptr %worker)
  br label %next
next:
  call void @await(ptr %worker)
  call void @free_again(ptr %worker)
  %task = load ptr, ptr @job, align 8
  %data = load ptr, ptr getelementptr (%Job, ptr @job, i64 0, i32 1), align 8
  %count = load i64, ptr getelementptr (%Job, ptr @job, i64 0, i32 2), align 8
  %mode = load i64, ptr getelementptr (%Job, ptr @job, i64 0, i32 3), align 8
  call void @write_mode(i64 %mode)
  call void %task(ptr %data, i64 %id, i64 %count)
  %before = atomicrmw sub ptr @remaining, i32 1 acq_rel
  %last = icmp eq i32 %before, 1
  br i1 %last, label %finish, label %next
finish:
  call void @signal(ptr @finished)
  br label %next
}

; Make the team as large as asked, if the system gives the threads; returns its size, at most %n. The caller owns @busy.
define internal i64 @enlist(i64 %n) nounwind {
entry:
  %signals = alloca [128 x i8], align 8
  %asked = call i64 @llvm.smin.i64(i64 %n, i64 1024)
  %had = load i64, ptr @count, align 8
  %enough = icmp sge i64 %had, %asked
  br i1 %enough, label %exit, label %grow
grow:
  call void @block_signals(ptr %signals)
  br label %create
create:
  %id = phi i64 [ %had, %grow ], [ %id.next, %created ]
  %worker = getelementptr %Worker, ptr @workers, i64 %id
  %error = call i32 @create_thread(ptr @work, ptr %worker)
  %made = icmp eq i32 %error, 0
  br i1 %made, label %created, label %grown
created:
  %id.next = add i64 %id, 1
  %more = icmp slt i64 %id.next, %asked
  br i1 %more, label %create, label %grown
grown:
  %has = phi i64 [ %id, %create ], [ %id.next, %created ]
  store i64 %has, ptr @count, align 8
  call void @restore_signals(ptr %signals)
  br label %exit
exit:
  %size = phi i64 [ %had, %entry ], [ %has, %grown ]
  %team = call i64 @llvm.smin.i64(i64 %size, i64 %asked)
  ret i64 %team
}

; An event has one waiter: 0 nothing yet, 1 signalled, 2 nothing yet and the waiter asleep. The waiter puts it back to 0.
define internal void @signal(ptr %event) nounwind {
entry:
  %before = atomicrmw xchg ptr %event, i32 1 acq_rel
  %asleep = icmp eq i32 %before, 2
  br i1 %asleep, label %wake, label %exit
wake:
  call void @unpark(ptr %event)
  br label %exit
exit:
  ret void
}

; Spin for $doze nanoseconds, looking at the clock in every 16th round, then sleep.
define internal void @await(ptr %event) nounwind {
entry:
  br label %watch
watch:
  %round = phi i32 [ 1, %entry ], [ %round.next, %rest ], [ %round.next, %time ]
  %start = phi i64 [ 0, %entry ], [ %start, %rest ], [ %since, %time ]
  %seen = load atomic i32, ptr %event acquire, align 4
  %signalled = icmp eq i32 %seen, 1
  br i1 %signalled, label %take, label %rest
rest:
  call void @spin.pause()
  %round.next = add i32 %round, 1
  %sixteenth = and i32 %round, 15
  %look = icmp eq i32 %sixteenth, 0
  br i1 %look, label %time, label %watch
time:
  %now = call i64 @clock()
  %first = icmp eq i64 %start, 0
  %since = select i1 %first, i64 %now, i64 %start
  %waited = sub i64 %now, %since
  %long = icmp ugt i64 %waited, $doze
  br i1 %long, label %doze, label %watch
doze:
  %dozed = cmpxchg ptr %event, i32 0, i32 2 acq_rel acquire
  %quiet = extractvalue { i32, i1 } %dozed, 1
  br i1 %quiet, label %sleep, label %take
sleep:
  call void @park(ptr %event)
  %woken = load atomic i32, ptr %event acquire, align 4
  %called = icmp eq i32 %woken, 1
  br i1 %called, label %take, label %sleep
take:
  store atomic i32 0, ptr %event monotonic, align 4
  ret void
}

; Use these functions from now on: omp_get_thread_num, omp_get_num_threads, and either GOMP_parallel or (where it is null)
; __kmpc_fork_call, __kmpc_push_num_threads and __kmpc_global_thread_num.
define void @adopt(ptr %thread, ptr %threads, ptr %parallel, ptr %fork, ptr %push, ptr %self) nounwind {
  store ptr %thread, ptr @openmp, align 8
  store ptr %threads, ptr getelementptr (%OpenMP, ptr @openmp, i64 0, i32 1), align 8
  store ptr %parallel, ptr getelementptr (%OpenMP, ptr @openmp, i64 0, i32 2), align 8
  store ptr %fork, ptr getelementptr (%OpenMP, ptr @openmp, i64 0, i32 3), align 8
  store ptr %push, ptr getelementptr (%OpenMP, ptr @openmp, i64 0, i32 4), align 8
  store ptr %self, ptr getelementptr (%OpenMP, ptr @openmp, i64 0, i32 5), align 8
  store atomic i32 1, ptr @openmp.ready release, align 4
  ret void
}

define internal void @run_openmp(ptr %job, i64 %n) nounwind {
entry:
  %asked = call i64 @llvm.smin.i64(i64 %n, i64 1024)
  %asked.32 = trunc i64 %asked to i32
  %parallel = load ptr, ptr getelementptr (%OpenMP, ptr @openmp, i64 0, i32 2), align 8
  %gnu = icmp ne ptr %parallel, null
  br i1 %gnu, label %gomp, label %kmp
gomp:
  call void %parallel(ptr @region, ptr %job, i32 %asked.32, i32 0)
  ret void
kmp:
  %fork = load ptr, ptr getelementptr (%OpenMP, ptr @openmp, i64 0, i32 3), align 8
  %push = load ptr, ptr getelementptr (%OpenMP, ptr @openmp, i64 0, i32 4), align 8
  %self = load ptr, ptr getelementptr (%OpenMP, ptr @openmp, i64 0, i32 5), align 8
  %global = call i32 %self(ptr @openmp.where)
  call void %push(ptr @openmp.where, i32 %global, i32 %asked.32)
  call void (ptr, i32, ptr, ...) %fork(ptr @openmp.where, i32 1, ptr @microtask, ptr %job)
  ret void
}

define internal void @microtask(ptr %global, ptr %bound, ptr %job) nounwind {
  call void @region(ptr %job)
  ret void
}

; What each thread of the region does. The threads are torch's: they get their own floating-point mode back.
define internal void @region(ptr %job) nounwind {
  %data.at = getelementptr %Job, ptr %job, i64 0, i32 1
  %mode.at = getelementptr %Job, ptr %job, i64 0, i32 3
  %task = load ptr, ptr %job, align 8
  %data = load ptr, ptr %data.at, align 8
  %mode = load i64, ptr %mode.at, align 8
  %thread = load ptr, ptr @openmp, align 8
  %threads = load ptr, ptr getelementptr (%OpenMP, ptr @openmp, i64 0, i32 1), align 8
  %id.32 = call i32 %thread()
  %id = zext i32 %id.32 to i64
  %count.32 = call i32 %threads()
  %count = zext i32 %count.32 to i64
  %before = call i64 @read_mode()
  call void @write_mode(i64 %mode)
  call void %task(ptr %data, i64 %id, i64 %count)
  call void @write_mode(i64 %before)
  ret void
}

declare i64 @llvm.smin.i64(i64, i64)

;; pause x86-64

declare void @llvm.x86.sse2.pause()
define internal void @spin.pause() nounwind {
  call void @llvm.x86.sse2.pause()
  ret void
}

;; pause AArch64
; `isb` and not `yield`, which most AArch64 cores take no time for: a round of a spin loop then lasts about as long as on x86.

declare void @llvm.aarch64.isb(i32 immarg)
define internal void @spin.pause() nounwind {
  call void @llvm.aarch64.isb(i32 15)
  ret void
}

;; pause other

define internal void @spin.pause() nounwind {
  ret void
}

;; mode x86-64
; The mode of a thread's floating-point arithmetic: rounding, flush to zero.

declare void @llvm.x86.sse.stmxcsr(ptr)
declare void @llvm.x86.sse.ldmxcsr(ptr)
define internal i64 @read_mode() nounwind {
  %at = alloca i32, align 4
  call void @llvm.x86.sse.stmxcsr(ptr %at)
  %mxcsr = load i32, ptr %at, align 4
  %mode = zext i32 %mxcsr to i64
  ret i64 %mode
}
define internal void @write_mode(i64 %mode) nounwind {
  %at = alloca i32, align 4
  %mxcsr = trunc i64 %mode to i32
  store i32 %mxcsr, ptr %at, align 4
  call void @llvm.x86.sse.ldmxcsr(ptr %at)
  ret void
}

;; mode AArch64

declare i64 @llvm.aarch64.get.fpcr()
declare void @llvm.aarch64.set.fpcr(i64)
define internal i64 @read_mode() nounwind {
  %mode = call i64 @llvm.aarch64.get.fpcr()
  ret i64 %mode
}
define internal void @write_mode(i64 %mode) nounwind {
  call void @llvm.aarch64.set.fpcr(i64 %mode)
  ret void
}

;; mode other

define internal i64 @read_mode() nounwind {
  ret i64 0
}
define internal void @write_mode(i64 %mode) nounwind {
  ret void
}

;; posix
; A worker takes no signals of the process (Ctrl-C belongs to Python's main thread), but its own faults are reported.

declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_sigmask(i32, ptr, ptr)
declare i32 @sigfillset(ptr)
declare i32 @sigdelset(ptr, i32)
declare i32 @clock_gettime(i32, ptr)
define internal i64 @clock() nounwind {
  %time = alloca { i64, i64 }, align 8
  %error = call i32 @clock_gettime(i32 $clock, ptr %time)
  %nanoseconds.at = getelementptr { i64, i64 }, ptr %time, i64 0, i32 1
  %seconds = load i64, ptr %time, align 8
  %nanoseconds = load i64, ptr %nanoseconds.at, align 8
  %scaled = mul i64 %seconds, 1000000000
  %now = add i64 %scaled, %nanoseconds
  ret i64 %now
}
define internal i32 @create_thread(ptr %start, ptr %argument) nounwind {
  %thread = alloca ptr, align 8
  %error = call i32 @pthread_create(ptr %thread, ptr null, ptr %start, ptr %argument)
  ret i32 %error
}
define internal void @block_signals(ptr %before) nounwind {
  %blocked = alloca [128 x i8], align 8
  call i32 @sigfillset(ptr %blocked)
$keep_faults
  call i32 @pthread_sigmask(i32 $set_mask, ptr %blocked, ptr %before)
  ret void
}
define internal void @restore_signals(ptr %before) nounwind {
  call i32 @pthread_sigmask(i32 $set_mask, ptr %before, ptr null)
  ret void
}

;; sleep futex

declare i64 @syscall(i64, ...)
define void @prepare() nounwind {
  ret void
}
define internal void @park(ptr %event) nounwind {
  call i64 (i64, ...) @syscall(i64 $futex, ptr %event, i64 128, i64 2, ptr null) ; FUTEX_WAIT_PRIVATE while the event is 2
  ret void
}
define internal void @unpark(ptr %event) nounwind {
  call i64 (i64, ...) @syscall(i64 $futex, ptr %event, i64 129, i64 1) ; FUTEX_WAKE_PRIVATE
  ret void
}

;; processors linux
; Linux likes to wake a thread on the processor of the one that wakes it, above all in virtual machines, where it distrusts processors
; that rest; the two then take turns at each barrier, for milliseconds. So a worker is kept off its caller's processor while it is woken.
; In %Worker: [1] the thread's number, [2] whether it is kept off, [4] the processors that it may use otherwise.

declare i32 @sched_getcpu()
declare i32 @sched_getaffinity(i32, i64, ptr)
declare i32 @sched_setaffinity(i32, i64, ptr)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
define internal void @name_thread(ptr %worker) nounwind {
  %number.at = getelementptr %Worker, ptr %worker, i64 0, i32 1
  %number = call i64 (i64, ...) @syscall(i64 $gettid)
  %number.32 = trunc i64 %number to i32
  store i32 %number.32, ptr %number.at, align 4
  ret void
}
define internal void @keep_off(ptr %worker) nounwind {
entry:
  %others = alloca [16 x i64], align 8
  %processor = call i32 @sched_getcpu()
  %known = icmp ult i32 %processor, 1024
  br i1 %known, label %ask, label %exit
ask:
  %number.at = getelementptr %Worker, ptr %worker, i64 0, i32 1
  %kept.at = getelementptr %Worker, ptr %worker, i64 0, i32 2
  %allowed = getelementptr %Worker, ptr %worker, i64 0, i32 4
  %number = load i32, ptr %number.at, align 4
  %error = call i32 @sched_getaffinity(i32 %number, i64 128, ptr %allowed)
  %told = icmp eq i32 %error, 0
  br i1 %told, label %set, label %exit
set:
  call void @llvm.memcpy.p0.p0.i64(ptr %others, ptr %allowed, i64 128, i1 false)
  %index = zext i32 %processor to i64
  %word = lshr i64 %index, 6
  %bit = and i64 %index, 63
  %one = shl i64 1, %bit
  %rest = xor i64 %one, -1
  %word.at = getelementptr i64, ptr %others, i64 %word
  %bits = load i64, ptr %word.at, align 8
  %left = and i64 %bits, %rest
  store i64 %left, ptr %word.at, align 8
  %refused = call i32 @sched_setaffinity(i32 %number, i64 128, ptr %others) ; if it may use no other, for one
  %kept = icmp eq i32 %refused, 0
  %kept.32 = zext i1 %kept to i32
  store i32 %kept.32, ptr %kept.at, align 4
  br label %exit
exit:
  ret void
}
define internal void @free_again(ptr %worker) nounwind {
entry:
  %kept.at = getelementptr %Worker, ptr %worker, i64 0, i32 2
  %kept = load i32, ptr %kept.at, align 4
  %free = icmp eq i32 %kept, 0
  br i1 %free, label %exit, label %restore
restore:
  %allowed = getelementptr %Worker, ptr %worker, i64 0, i32 4
  store i32 0, ptr %kept.at, align 4
  call i32 @sched_setaffinity(i32 0, i64 128, ptr %allowed)
  br label %exit
exit:
  ret void
}

;; processors other

define internal void @name_thread(ptr %worker) nounwind {
  ret void
}
define internal void @keep_off(ptr %worker) nounwind {
  ret void
}
define internal void @free_again(ptr %worker) nounwind {
  ret void
}

;; sleep condition

declare i32 @pthread_mutex_init(ptr, ptr)
declare i32 @pthread_mutex_lock(ptr)
declare i32 @pthread_mutex_unlock(ptr)
declare i32 @pthread_cond_init(ptr, ptr)
declare i32 @pthread_cond_wait(ptr, ptr)
declare i32 @pthread_cond_broadcast(ptr)
@mutex = internal global [128 x i8] zeroinitializer, align 16
@changed = internal global [128 x i8] zeroinitializer, align 16
define void @prepare() nounwind {
  call i32 @pthread_mutex_init(ptr @mutex, ptr null)
  call i32 @pthread_cond_init(ptr @changed, ptr null)
  ret void
}
define internal void @park(ptr %event) nounwind {
  call i32 @pthread_mutex_lock(ptr @mutex)
  br label %look
look:
  %seen = load atomic i32, ptr %event acquire, align 4
  %asleep = icmp eq i32 %seen, 2
  br i1 %asleep, label %wait, label %exit
wait:
  call i32 @pthread_cond_wait(ptr @changed, ptr @mutex)
  br label %look
exit:
  call i32 @pthread_mutex_unlock(ptr @mutex)
  ret void
}
define internal void @unpark(ptr %event) nounwind {
  call i32 @pthread_mutex_lock(ptr @mutex)
  call i32 @pthread_cond_broadcast(ptr @changed)
  call i32 @pthread_mutex_unlock(ptr @mutex)
  ret void
}

;; no threads
; Without threads of our own: nobody can be created, so nobody sleeps.

define void @prepare() nounwind {
  ret void
}
define internal i64 @clock() nounwind {
  ret i64 0
}
define internal i32 @create_thread(ptr %start, ptr %argument) nounwind {
  ret i32 1
}
define internal void @block_signals(ptr %before) nounwind {
  ret void
}
define internal void @restore_signals(ptr %before) nounwind {
  ret void
}
define internal void @park(ptr %event) nounwind {
  ret void
}
define internal void @unpark(ptr %event) nounwind {
  ret void
}

;; barrier
; Three words: how many have arrived, how many sleep, and, on a line of its own, the generation, which the last to arrive advances. A
; thread reads the generation before it arrives, when nobody can advance it yet. It spins, then leaves its processor to others, who may be
; those for whom it waits.

define internal void @barrier(ptr %state, i64 %n) noinline nounwind {
entry:
  %alone = icmp sle i64 %n, 1
  br i1 %alone, label %exit, label %arrive
arrive:
  %sleepers.at = getelementptr i8, ptr %state, i64 8
  %generation.at = getelementptr i8, ptr %state, i64 64
  %generation = load atomic i64, ptr %generation.at monotonic, align 8
  %before = atomicrmw add ptr %state, i64 1 acq_rel
  %arrived = add i64 %before, 1
  %last = icmp eq i64 %arrived, %n
  br i1 %last, label %open, label %look
open:
  store atomic i64 0, ptr %state monotonic, align 8
  %following = add i64 %generation, 1
  store atomic i64 %following, ptr %generation.at seq_cst, align 8
  %sleepers = load atomic i64, ptr %sleepers.at seq_cst, align 8
  %asleep = icmp ne i64 %sleepers, 0
  br i1 %asleep, label %wake, label %exit
wake:
  call void @wake_sleepers(ptr %generation.at)
  br label %exit
look:
  %rounds = phi i64 [ 0, %arrive ], [ %rounds.next, %spin ], [ %rounds, %leave ]
  %now = load atomic i64, ptr %generation.at acquire, align 8
  %closed = icmp eq i64 %now, %generation
  br i1 %closed, label %wait, label %exit
wait:
  %patient = icmp slt i64 %rounds, 2000
  br i1 %patient, label %spin, label %leave
spin:
  call void @spin.pause()
  %rounds.next = add i64 %rounds, 1
  br label %look
leave:
  %one.more = atomicrmw add ptr %sleepers.at, i64 1 seq_cst
  call void @sleep_until_not(ptr %generation.at, i64 %generation)
  %one.less = atomicrmw sub ptr %sleepers.at, i64 1 seq_cst
  br label %look
exit:
  ret void
}

;; barrier futex
; Sleeps unless the generation has changed already, which the system looks at; only its lower half, the first on these machines.

declare i64 @syscall(i64, ...)
define internal void @sleep_until_not(ptr %generation.at, i64 %generation) nounwind {
  %lower = trunc i64 %generation to i32
  call i64 (i64, ...) @syscall(i64 $futex, ptr %generation.at, i64 128, i32 %lower, ptr null)
  ret void
}
define internal void @wake_sleepers(ptr %generation.at) nounwind {
  call i64 (i64, ...) @syscall(i64 $futex, ptr %generation.at, i64 129, i64 2147483647)
  ret void
}

;; barrier other
declare i32 @$give_way()
define internal void @sleep_until_not(ptr %generation.at, i64 %generation) nounwind {
  call i32 @$give_way()
  ret void
}
define internal void @wake_sleepers(ptr %generation.at) nounwind {
  ret void
}
