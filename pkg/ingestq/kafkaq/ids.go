package kafkaq

import (
	"strconv"
	"strings"
)

// idPrefix marks the ids of this transport.
const idPrefix = "k:"

// place is where a record is.
type place struct {
	partition int32
	offset    int64
}

// id is the delivery's id.
func (p place) id() string {
	return idPrefix + strconv.FormatInt(int64(p.partition), 10) + ":" + strconv.FormatInt(p.offset, 10)
}

// parseID reads an id; ids of another transport are unknown.
func parseID(id string) (place, bool) {
	rest, ok := strings.CutPrefix(id, idPrefix)
	partition, offset, two := strings.Cut(rest, ":")
	p, err := strconv.ParseInt(partition, 10, 32)
	o, err2 := strconv.ParseInt(offset, 10, 64)
	at := place{int32(p), o}
	if !ok || !two || err != nil || err2 != nil || p < 0 || o < 0 || at.id() != id {
		return place{}, false
	}
	return at, true
}
