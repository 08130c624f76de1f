//go:build mutant

package mutant

import "os"

// name is read once: a process has one bug, all its life.
var name = os.Getenv("MILLWEIR_MUTANT")

// Is tells whether this run has the seeded bug of that name.
func Is(bug string) bool { return bug == name }
