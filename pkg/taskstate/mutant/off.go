//go:build !mutant

package mutant

// Is tells whether this run has the seeded bug of that name; never without the tag mutant.
func Is(string) bool { return false }
