package stream

import (
	"cmp"
	"math"
	"strconv"
	"strings"
	"time"
)

// ID is the id of an entry: milliseconds and a sequence number within them.
type ID struct{ MS, Seq uint64 }

// ParseID reads "ms-seq" as Redis writes it; anything else is no id.
func ParseID(s string) (ID, bool) {
	left, right, ok := strings.Cut(s, "-")
	ms, err1 := strconv.ParseUint(left, 10, 64)
	seq, err2 := strconv.ParseUint(right, 10, 64)
	id := ID{ms, seq}
	return id, ok && err1 == nil && err2 == nil && id.String() == s
}

// String is the form that Redis uses.
func (id ID) String() string {
	return strconv.FormatUint(id.MS, 10) + "-" + strconv.FormatUint(id.Seq, 10)
}

// Next is the id that follows; the last one follows itself.
func (id ID) Next() ID {
	switch {
	case id.Seq < math.MaxUint64:
		return ID{id.MS, id.Seq + 1}
	case id.MS < math.MaxUint64:
		return ID{id.MS + 1, 0}
	}
	return id
}

// Time is when the entry was added, by the server's clock.
func (id ID) Time() time.Time { return time.UnixMilli(int64(min(id.MS, math.MaxInt64))).UTC() }

// CompareIDs compares ids as decimal strings: without leading zeros the longer half is the larger one.
func CompareIDs(a, b string) int {
	ams, aseq, _ := strings.Cut(a, "-")
	bms, bseq, _ := strings.Cut(b, "-")
	return cmp.Or(cmp.Compare(len(ams), len(bms)), cmp.Compare(ams, bms), cmp.Compare(len(aseq), len(bseq)), cmp.Compare(aseq, bseq))
}

// Behind is where a look at what comes after an id begins, "" for all. The emulator knows no "(" there.
func Behind(after string) string {
	if after == "" {
		return "-"
	}
	return Following(after)
}

// Following is the id after this one; what is no id follows itself.
func Following(s string) string {
	if id, ok := ParseID(s); ok {
		return id.Next().String()
	}
	return s
}
