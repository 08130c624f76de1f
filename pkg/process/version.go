package process

import "runtime/debug"

// version is set by the build: -ldflags "-X github.com/millweir/millweir/pkg/process.version=v1.2.3".
var version string

// Version is the version that the build set, else the commit that the tool chain recorded, else "dev".
func Version() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" && len(s.Value) >= 12 {
				return "dev-" + s.Value[:12]
			}
		}
	}
	return "dev"
}
