//go:build !lab

package crash

// Enabled tells whether this is a lab build.
const Enabled = false

// Point is a moment at which the process may be killed, stopped or held up; nothing without the tag lab.
func Point(string) {}

// Fault is Point where the next effect may fail as well: it returns the error, nil without the tag lab.
func Fault(string) error { return nil }
