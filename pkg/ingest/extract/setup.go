package extract

// Sandbox says how much of the kernel's confinement a child must have.
type Sandbox string

// The settings of EXTRACT_SANDBOX.
const (
	SandboxAuto    Sandbox = "auto"    // as much as the kernel gives; what was got is logged
	SandboxRequire Sandbox = "require" // landlock and seccomp, or no child at all
	SandboxOff     Sandbox = "off"     // limits only: for debugging
)

// layer is one part of a child's confinement that the kernel may or may not give.
type layer string

const (
	layerLandlock   layer = "landlock"   // no file by name, no port, no signal to others
	layerSeccomp    layer = "seccomp"    // a list of system calls
	layerNamespaces layer = "namespaces" // users, processes, network, IPC and mounts of its own
)

// setup tells a child what it is.
type setup struct {
	PDF      bool    `json:"pdf"`
	Warm     bool    `json:"warm"` // only compile the PDF reader into the cache
	CacheDir string  `json:"cacheDir"`
	MemoryMB int     `json:"memoryMB"`
	Sandbox  Sandbox `json:"sandbox"`
	Without  []layer `json:"without,omitempty"` // left out by a test, to see that each layer holds alone
}

// hello is a child's answer: what confinement it got.
type hello struct {
	Landlock int    `json:"landlock"` // ABI version; 0: none
	Seccomp  bool   `json:"seccomp"`
	Problem  string `json:"problem,omitempty"` // why something is missing
	Fatal    bool   `json:"fatal,omitempty"`   // the child cannot work
	Errno    int    `json:"errno,omitempty"`   // what the system said when it is Fatal; 0: nothing
}
