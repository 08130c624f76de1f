package sandbox

import (
	"encoding/binary"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

const testPID = 4711

// verdict runs the filter on one call, as the kernel would.
func verdict(t *testing.T, arch, number uint32, args ...uint32) uint32 {
	t.Helper()
	vm, err := bpf.NewVM(filterProgram(testPID))
	require.NoError(t, err)
	data := make([]byte, 64) // struct seccomp_data; the interpreter reads it as a packet, in network order
	put := func(offset int, value uint32) { binary.BigEndian.PutUint32(data[offset:], value) }
	put(dataNumber, number)
	put(dataArch, arch)
	for i, a := range args {
		put(16+8*i, a)
	}
	got, err := vm.Run(data)
	require.NoError(t, err)
	return uint32(got)
}

const (
	allowed = uint32(unix.SECCOMP_RET_ALLOW)
	refused = uint32(unix.SECCOMP_RET_ERRNO) | uint32(unix.EPERM)
)

func TestTheFilterLetsThroughWhatGoNeeds(t *testing.T) {
	t.Parallel()
	for _, number := range allowedSyscalls {
		require.Equal(t, allowed, verdict(t, auditArch, number), "call %d", number)
	}
}

func TestTheFilterRefusesEverythingElse(t *testing.T) {
	t.Parallel()
	listed := map[uint32]bool{}
	for _, number := range allowedSyscalls {
		listed[number] = true
	}
	conditional := map[uint32]bool{unix.SYS_MMAP: true, unix.SYS_MPROTECT: true, unix.SYS_TGKILL: true, unix.SYS_FCNTL: true, unix.SYS_CLONE: true, unix.SYS_CLONE3: true}
	for number := range uint32(600) {
		if !listed[number] && !conditional[number] {
			require.Equal(t, refused, verdict(t, auditArch, number), "call %d", number)
		}
	}
	for name, number := range map[string]uint32{
		"openat": unix.SYS_OPENAT, "socket": unix.SYS_SOCKET, "connect": unix.SYS_CONNECT, "execve": unix.SYS_EXECVE, "ptrace": unix.SYS_PTRACE,
		"kill": unix.SYS_KILL, "seccomp": unix.SYS_SECCOMP, "prctl": unix.SYS_PRCTL, "dup": unix.SYS_DUP, "memfd_create": unix.SYS_MEMFD_CREATE,
		"io_uring_setup": unix.SYS_IO_URING_SETUP, "process_vm_writev": unix.SYS_PROCESS_VM_WRITEV, "bpf": unix.SYS_BPF, "unshare": unix.SYS_UNSHARE,
		"mount": unix.SYS_MOUNT, "unlinkat": unix.SYS_UNLINKAT, "prlimit": unix.SYS_PRLIMIT64,
	} {
		require.Equal(t, refused, verdict(t, auditArch, number), name)
	}
}

func TestAnotherArchitectureEndsTheProcess(t *testing.T) {
	t.Parallel()
	require.Equal(t, uint32(unix.SECCOMP_RET_KILL_PROCESS), verdict(t, unix.AUDIT_ARCH_I386, unix.SYS_READ), "32-bit calls have other numbers")
	require.Equal(t, refused, verdict(t, auditArch, x32Bit|unix.SYS_READ), "and so have those of x32")
}

func TestSomeCallsDependOnTheirArguments(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		number uint32
		args   []uint32
		want   uint32
	}{
		"memory":                  {unix.SYS_MMAP, []uint32{0, 4096, unix.PROT_READ | unix.PROT_WRITE}, allowed},
		"memory for code":         {unix.SYS_MMAP, []uint32{0, 4096, unix.PROT_READ | unix.PROT_EXEC}, refused},
		"memory protected":        {unix.SYS_MPROTECT, []uint32{0, 4096, unix.PROT_READ}, allowed},
		"memory turned into code": {unix.SYS_MPROTECT, []uint32{0, 4096, unix.PROT_EXEC}, refused},
		"a signal to itself":      {unix.SYS_TGKILL, []uint32{testPID, 1, 23}, allowed},
		"a signal to another":     {unix.SYS_TGKILL, []uint32{testPID + 1, 1, 9}, refused},
		"a descriptor's flags":    {unix.SYS_FCNTL, []uint32{3, unix.F_GETFL}, allowed},
		"a descriptor's owner":    {unix.SYS_FCNTL, []uint32{3, unix.F_SETOWN}, refused},
		"a thread":                {unix.SYS_CLONE, []uint32{unix.CLONE_THREAD | unix.CLONE_VM}, allowed},
		"a process":               {unix.SYS_CLONE, []uint32{unix.CLONE_VM}, refused},
		"clone3 is not there":     {unix.SYS_CLONE3, nil, uint32(unix.SECCOMP_RET_ERRNO) | uint32(unix.ENOSYS)},
	} {
		require.Equal(t, c.want, verdict(t, auditArch, c.number, c.args...), name)
	}
}

// A process may use most of what its limit says, whatever Go's runtime has mapped beyond what it uses: it was the end of
// children that read PDFs on busy machines. Much more than that is refused.
func TestMemoryUpToTheLimitIsThere(t *testing.T) {
	t.Parallel()
	const limited, limitMB, outsideMB, heapMB = "MILLWEIR_TEST_LIMITED", 256, 64, 78
	if os.Getenv(limited) == "" {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.v", "-test.run", "^TestMemoryUpToTheLimitIsThere$")
		cmd.Env = append(os.Environ(), limited+"=1")
		out, _ := cmd.CombinedOutput() // it may write no file, so that one that counts its coverage fails at its end
		require.Contains(t, string(out[:min(len(out), 2000)]), "--- PASS")
		return
	}
	require.NoError(t, limitSelf(limitMB))
	take := func(megabytes int) error {
		memory, err := unix.Mmap(-1, 0, megabytes<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
		for i := 0; i < len(memory); i += 4096 {
			memory[i] = 1
		}
		return err
	}
	require.NoError(t, take(outsideMB), "a guest's memory")
	var heap [][]byte
	for range heapMB {
		piece := make([]byte, 1<<20)
		for i := 0; i < len(piece); i += 4096 {
			piece[i] = 1
		}
		heap = append(heap, piece)
	}
	require.ErrorIs(t, take(2*limitMB*MemoryFactor), unix.ENOMEM)
	require.Len(t, heap, heapMB)
}
