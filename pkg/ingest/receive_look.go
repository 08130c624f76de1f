package ingest

import "time"

// Stored calls yield with pages of names of received files that were last written before the given time, in no order;
// files of uploads that are still being received are left out.
func (f *Files) Stored(before time.Time, yield func(names []string) error) error {
	return f.older(before, filePage, func(names []string) error {
		var stored []string
		for _, name := range names {
			if ownName(name) {
				stored = append(stored, name)
			}
		}
		if len(stored) == 0 {
			return nil
		}
		return yield(stored)
	})
}

// Remove deletes a stored file; a missing one is no error.
func (f *Files) Remove(name string) error { return f.remove(name) }
