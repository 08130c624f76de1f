package cli

import (
	"os"

	"golang.org/x/sys/windows"
)

// ansi reports whether a console takes the codes of colours and of redrawing. One that runs cmd.exe is asked to.
func ansi(f *os.File) bool {
	var mode uint32
	console := windows.Handle(f.Fd())
	return windows.GetConsoleMode(console, &mode) == nil &&
		windows.SetConsoleMode(console, mode|windows.ENABLE_VIRTUAL_TERMINAL_PROCESSING) == nil
}
