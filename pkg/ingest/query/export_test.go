package query

import "github.com/millweir/millweir/pkg/telemetry"

const SearchAgain = searchAgain

var Fuse = fuse

func (r *Reads) SetTrouble(t *telemetry.Repeated) { r.trouble = t }
