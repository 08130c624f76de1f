package extract

import "golang.org/x/sys/unix"

const auditArch = unix.AUDIT_ARCH_X86_64

// archDenied are the older calls that this architecture still has.
var archDenied = []uint32{
	unix.SYS_FORK, unix.SYS_VFORK, unix.SYS_OPEN, unix.SYS_CREAT, unix.SYS_UNLINK, unix.SYS_RMDIR, unix.SYS_RENAME, unix.SYS_RENAMEAT,
	unix.SYS_LINK, unix.SYS_SYMLINK, unix.SYS_MKDIR, unix.SYS_MKNOD, unix.SYS_CHMOD, unix.SYS_CHOWN, unix.SYS_LCHOWN,
	unix.SYS_INOTIFY_INIT, unix.SYS_SETRLIMIT, unix.SYS_IOPL, unix.SYS_IOPERM, unix.SYS_MODIFY_LDT, unix.SYS_KEXEC_FILE_LOAD,
}
