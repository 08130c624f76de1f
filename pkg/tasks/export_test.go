package tasks

import "time"

const QuietRest = quietRest

var DeliveryWords = deliveryWords

// Leaves reports whether requests leave the queue alone.
func (s *Service) Leaves(now time.Time) bool { return s.quiet.leave(now, nil) }
