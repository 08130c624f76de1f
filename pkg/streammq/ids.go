package streammq

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"
)

// sortByID sorts deliveries of one partition as the stream has them.
func sortByID(deliveries []*Delivery) {
	slices.SortFunc(deliveries, func(a, b *Delivery) int { return compareIDs(a.ID, b.ID) })
}

// compareIDs compares entries' ids as decimal strings: without leading zeros the longer half is the larger one.
func compareIDs(a, b string) int {
	ams, aseq, _ := strings.Cut(a, "-")
	bms, bseq, _ := strings.Cut(b, "-")
	return cmp.Or(cmp.Compare(len(ams), len(bms)), cmp.Compare(ams, bms), cmp.Compare(len(aseq), len(bseq)), cmp.Compare(aseq, bseq))
}

// behind is where a look at what comes after an id begins, "" for all. The emulator knows no "(" there.
func behind(after string) string {
	if after == "" {
		return "-"
	}
	return following(after)
}

// following is the id after this one; what is no id follows itself.
func following(id string) string {
	left, right, _ := strings.Cut(id, "-")
	ms, err := strconv.ParseUint(left, 10, 64)
	seq, err2 := strconv.ParseUint(right, 10, 64)
	switch {
	case err != nil || err2 != nil:
		return id
	case seq < math.MaxUint64:
		seq++
	case ms < math.MaxUint64:
		ms, seq = ms+1, 0
	}
	return strconv.FormatUint(ms, 10) + "-" + strconv.FormatUint(seq, 10)
}
