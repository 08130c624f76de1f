package sandbox

import (
	"errors"

	"github.com/landlock-lsm/go-landlock/landlock"
	llsys "github.com/landlock-lsm/go-landlock/landlock/syscall"
)

// SeenFromOutside says that the parent sees a child's memory and the child dies with its parent, so it need not watch itself.
const SeenFromOutside = true

// rssUnit is the unit of getrusage's largest resident size, in bytes.
const rssUnit = 1 << 10

// restrictFiles applies landlock without any rule, as far as this kernel's version of it (abi) goes.
func restrictFiles() (abi int, err error) {
	abi, err = llsys.LandlockGetABIVersion()
	if err != nil || abi < 1 {
		return 0, errors.Join(errors.New("the kernel has none"), err)
	}
	return abi, landlock.V11.BestEffort().Restrict()
}
