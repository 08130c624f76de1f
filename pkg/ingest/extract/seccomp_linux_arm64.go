package extract

import "golang.org/x/sys/unix"

const auditArch = unix.AUDIT_ARCH_AARCH64

// archDenied are calls that only this architecture numbers so.
var archDenied = []uint32{unix.SYS_RENAMEAT, unix.SYS_KEXEC_FILE_LOAD}
