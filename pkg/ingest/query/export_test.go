package query

import (
	"time"

	"github.com/millweir/millweir/pkg/telemetry"
)

const SearchAgain = searchAgain

var Fuse = fuse

func (r *Reads) SetTrouble(t *telemetry.Repeated) { r.trouble = t }

func (r *Reads) SetSearchTime(d time.Duration) { r.searchTime = d }
