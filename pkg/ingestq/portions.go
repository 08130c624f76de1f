package ingestq

import "iter"

// Portions cuts n things into runs of at most so many and of so many bytes, each from its first up to, without, the next
// run's; one that is larger by itself is a run of its own.
func Portions(n, most, bytes int, size func(i int) int) iter.Seq2[int, int] {
	return func(yield func(from, to int) bool) {
		from, sum := 0, 0
		for i := range n {
			if one := size(i); i > from && (i-from == most || sum+one > bytes) {
				if !yield(from, i) {
					return
				}
				from, sum = i, one
			} else {
				sum += one
			}
		}
		if from < n {
			yield(from, n)
		}
	}
}
