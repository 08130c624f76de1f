package sandbox

import (
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// Offsets in struct seccomp_data (linux/seccomp.h); the low half of an argument comes first on a
// little-endian machine.
const (
	dataNumber = 0
	dataArch   = 4
	dataArg0   = 16
	dataArg1   = 24
	dataArg2   = 32
	x32Bit     = 0x40000000
)

// allowedSyscalls is all that a child may ask of the kernel once its documents come: work on the descriptors
// that it holds, memory, threads, time. What looks a file up by name, makes a descriptor of another kind,
// reaches another process or changes the child's own confinement is not among it. The frequent ones stand
// first.
var allowedSyscalls = append([]uint32{
	unix.SYS_FUTEX, unix.SYS_READ, unix.SYS_WRITE, unix.SYS_PREAD64, unix.SYS_EPOLL_PWAIT, unix.SYS_NANOSLEEP, unix.SYS_MADVISE,
	unix.SYS_RECVMSG, unix.SYS_CLOSE, unix.SYS_READV, unix.SYS_WRITEV, unix.SYS_LSEEK, unix.SYS_FSTAT,
	unix.SYS_EPOLL_CREATE1, unix.SYS_EPOLL_CTL, unix.SYS_EVENTFD2,
	unix.SYS_MUNMAP, unix.SYS_MREMAP, unix.SYS_MINCORE, unix.SYS_BRK,
	unix.SYS_RT_SIGACTION, unix.SYS_RT_SIGPROCMASK, unix.SYS_RT_SIGRETURN, unix.SYS_SIGALTSTACK, unix.SYS_RESTART_SYSCALL,
	unix.SYS_SCHED_YIELD, unix.SYS_SCHED_GETAFFINITY, unix.SYS_GETPID, unix.SYS_GETTID,
	unix.SYS_SET_ROBUST_LIST, unix.SYS_RSEQ, unix.SYS_MEMBARRIER,
	unix.SYS_CLOCK_GETTIME, unix.SYS_CLOCK_NANOSLEEP, unix.SYS_CLOCK_GETRES, unix.SYS_GETTIMEOFDAY, unix.SYS_GETRANDOM,
	unix.SYS_EXIT, unix.SYS_EXIT_GROUP,
}, archAllowed...)

// filterSyscalls installs the filter on all threads.
func filterSyscalls() error {
	raw, err := bpf.Assemble(filterProgram(uint32(unix.Getpid())))
	if err != nil {
		return fmt.Errorf("assemble the filter: %w", err)
	}
	filter := make([]unix.SockFilter, len(raw))
	for i, r := range raw {
		filter[i] = unix.SockFilter{Code: r.Op, Jt: r.Jt, Jf: r.Jf, K: r.K}
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("set no_new_privs: %w", err)
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	thread, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&program)))
	runtime.KeepAlive(filter)
	if errno != 0 {
		return fmt.Errorf("load the filter: %w", errno)
	}
	if thread != 0 {
		return fmt.Errorf("load the filter: thread %d does not take it", thread)
	}
	return nil
}

// filterProgram lets the allowed calls through, some only with harmless arguments, and answers EPERM to all
// others: what Go's runtime tries beyond the list is for its comfort, and it must not die of that. Every test
// stands beside its answer, so that no jump is longer than a step. pid is the child's own.
func filterProgram(pid uint32) []bpf.Instruction {
	refuse := bpf.RetConstant{Val: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)}
	allow := bpf.RetConstant{Val: unix.SECCOMP_RET_ALLOW}
	program := []bpf.Instruction{
		bpf.LoadAbsolute{Off: dataArch, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: auditArch, SkipTrue: 1},
		bpf.RetConstant{Val: unix.SECCOMP_RET_KILL_PROCESS},
		bpf.LoadAbsolute{Off: dataNumber, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpLessThan, Val: x32Bit, SkipTrue: 1},
		refuse,
	}
	for _, number := range allowedSyscalls {
		program = append(program, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: number, SkipTrue: 1}, allow)
	}
	// argument allows a call when one of its arguments passes a test.
	argument := func(number, offset uint32, test bpf.JumpIf) {
		test.SkipTrue = 1
		program = append(program,
			bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: number, SkipTrue: 4},
			bpf.LoadAbsolute{Off: offset, Size: 4}, test, refuse, allow)
	}
	// No code comes into being after the reader of PDFs is compiled.
	argument(unix.SYS_MMAP, dataArg2, bpf.JumpIf{Cond: bpf.JumpBitsNotSet, Val: unix.PROT_EXEC})
	argument(unix.SYS_MPROTECT, dataArg2, bpf.JumpIf{Cond: bpf.JumpBitsNotSet, Val: unix.PROT_EXEC})
	// Go's scheduler interrupts its own threads.
	argument(unix.SYS_TGKILL, dataArg0, bpf.JumpIf{Cond: bpf.JumpEqual, Val: pid})
	// Flags of descriptors, not their owner, whom the kernel would send signals.
	argument(unix.SYS_FCNTL, dataArg1, bpf.JumpIf{Cond: bpf.JumpLessOrEqual, Val: unix.F_SETFL})
	// A thread, not a process.
	argument(unix.SYS_CLONE, dataArg0, bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: unix.CLONE_THREAD})
	return append(program,
		// A C library that meets ENOSYS makes its threads by clone, whose flags can be looked at.
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.SYS_CLONE3, SkipTrue: 1},
		bpf.RetConstant{Val: unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)},
		refuse,
	)
}
