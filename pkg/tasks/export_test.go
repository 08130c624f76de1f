package tasks

import "time"

const QuietRest = quietRest

// BroughtBy names the delivery of a claim, in English.
func BroughtBy(id string) string { return broughtBy(id).String() }

// Leaves reports whether requests leave the queue alone.
func (s *Service) Leaves(now time.Time) bool { return s.quiet.leave(now, nil) }
