// Package figure is what the benchmarks share: figures, worlds, sample documents.
package figure

// Figure is one measured number beside the one asked for.
type Figure struct {
	Bench    string  `json:"bench"`
	Name     string  `json:"name"`
	Measured float64 `json:"measured"`
	Unit     string  `json:"unit"`
	Asked    float64 `json:"asked"`           // 0 with an empty Relation: none
	Relation string  `json:"relation"`        // "≤" or "≥": how Measured must stand to Asked; empty: told for its own sake
	Met      bool    `json:"met"`             // true when nothing was asked
	Note     string  `json:"note,omitempty"`  // sizes and counts
	Error    string  `json:"error,omitempty"` // it could not be measured
}
