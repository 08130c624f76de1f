package chroma

// Waiting is how many calls wait for the lane of a base.
func (s *Store) Waiting(base string) int {
	c := s.collection(base)
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.waiting)
}
