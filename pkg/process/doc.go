// Package process is the shell around every binary: it reads the settings, owns signals and the exit code,
// serves health, readiness, figures and profiles, and stops in order.
//
// A service's main is one line:
//
//	func main() { process.Main(process.Spec{Name: "reclaimer", OperatorAddr: "127.0.0.1:9083"}, reclaimer.Run) }
//
// where Run is func(ctx context.Context, env *process.Env, cfg *Config) error; it returns nil when ctx ended.
// No other package installs a signal handler or calls os.Exit.
package process
