package dlq

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/millweir/millweir/pkg/streammq"
)

// place is where a topic's letter lies, or where a look at them goes on: after entry of its stream.
type place struct {
	apart  bool // each partition has a stream of its own: contract §6, on a cluster
	stream int
	entry  string // "": before the first
}

// placeOf is where a dead letter lies.
func (t *Topic) placeOf(l streammq.Letter) place {
	if !t.deadLetters.Apart() {
		return place{entry: l.ID}
	}
	return place{apart: true, stream: l.Partition, entry: l.ID}
}

// parsePlace reads what String wrote. Error: ErrNotFound.
func parsePlace(id string, apart bool) (place, error) {
	p := place{apart: apart, entry: id}
	if apart {
		stream, entry, ok := strings.Cut(id, ":")
		n, err := strconv.Atoi(stream)
		if !ok || err != nil || n < 0 || n >= streammq.MaxPartitions {
			return p, fmt.Errorf("dead letter %.40q: %w: partition:entry is an id here", id, ErrNotFound)
		}
		p.stream, p.entry = n, entry
	}
	if p.entry == "" {
		return p, nil
	}
	if _, err := streammq.PositionAfter(p.entry); err != nil {
		return p, fmt.Errorf("dead letter %.40q: %w", id, ErrNotFound)
	}
	return p, nil
}

// String is the place as an id, or a cursor.
func (p place) String() string {
	if !p.apart {
		return p.entry
	}
	return strconv.Itoa(p.stream) + ":" + p.entry
}

// partition is the stream as streammq is asked for it.
func (p place) partition() int {
	if !p.apart {
		return -1
	}
	return p.stream
}

// onward is the beginning of the next stream.
func (p place) onward() place { return place{apart: p.apart, stream: p.stream + 1} }

// before is the cursor to go on from, "" when all streams up to end were looked at.
func (p place) before(end int) string {
	if p.stream >= end {
		return ""
	}
	return p.String()
}
