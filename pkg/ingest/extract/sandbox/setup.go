// Package sandbox confines a child process: kernel limits, landlock and a list of system calls.
package sandbox

// Mode says how much of the kernel's confinement a child must have.
type Mode string

// The settings of EXTRACT_SANDBOX.
const (
	Auto    Mode = "auto"    // as much as the kernel gives; what was got is logged
	Require Mode = "require" // landlock and seccomp, or no child at all
	Off     Mode = "off"     // limits only: for debugging
)

// Layer is one part of a child's confinement that the kernel may or may not give.
type Layer string

const (
	Landlock   Layer = "landlock"   // no file by name, no port, no signal to others
	Seccomp    Layer = "seccomp"    // a list of system calls
	Namespaces Layer = "namespaces" // users, processes, network, IPC and mounts of its own
)

// sharedMB is what a child's resident size holds beyond its own data: the program's code.
const sharedMB = 40

// MaxResident is the resident size in bytes beyond which a child with so many MiB of memory is ended.
func MaxResident(memoryMB int) int64 { return int64(memoryMB+sharedMB) * MemoryFactor << 20 }

// Setup tells a child what it is.
type Setup struct {
	PDF      bool    `json:"pdf"`
	Native   bool    `json:"native,omitempty"` // the process is Enclosed, and reads nothing without all of landlock and seccomp
	Warm     bool    `json:"warm"`             // only compile the PDF reader into the cache
	CacheDir string  `json:"cacheDir"`
	MemoryMB int     `json:"memoryMB"`
	Sandbox  Mode    `json:"sandbox"`
	Without  []Layer `json:"without,omitempty"` // left out by a test, to see that each layer holds alone
}

// Hello is a child's answer: what confinement it got.
type Hello struct {
	Landlock int    `json:"landlock"` // ABI version; 0: none
	Seccomp  bool   `json:"seccomp"`
	Problem  string `json:"problem,omitempty"`  // why something is missing
	Fatal    bool   `json:"fatal,omitempty"`    // the child cannot work
	Errno    int    `json:"errno,omitempty"`    // what the system said when it is Fatal; 0: nothing
	Unloaded bool   `json:"unloaded,omitempty"` // Fatal because the reader of PDFs could not be loaded
	Readers  string `json:"readers,omitempty"`  // all that the program has, with their versions
}
