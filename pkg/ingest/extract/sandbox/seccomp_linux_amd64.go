package sandbox

import "golang.org/x/sys/unix"

const auditArch = unix.AUDIT_ARCH_X86_64

// archAllowed are the older calls that this architecture still has.
var archAllowed = []uint32{unix.SYS_EPOLL_WAIT, unix.SYS_TIME}
