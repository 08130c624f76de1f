package streammq

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// encodePins renders pinned partitions as a heartbeat carries them.
func encodePins(pins []int) string {
	texts := make([]string, len(pins))
	for i, p := range pins {
		texts[i] = strconv.Itoa(p)
	}
	return strings.Join(texts, ",")
}

// decodePins reads them back. Error: ErrMalformed.
func decodePins(text string) ([]int, error) {
	if text == "" {
		return nil, nil
	}
	var pins []int
	for part := range strings.SplitSeq(text, ",") {
		p, err := strconv.ParseUint(part, 10, 31)
		if err != nil {
			return nil, fmt.Errorf("pinned partitions %q: %w: %w", clip(text, 64), ErrMalformed, err)
		}
		pins = append(pins, int(p)) //nolint:gosec // 31 bits
	}
	return pins, nil
}

// decodeMember reads what group_beat.lua returns of a live member. Error: ErrMalformed.
func decodeMember(name, most, left, pins string) (memberView, error) {
	m := memberView{name: name}
	var err error
	if m.cap, err = strconv.Atoi(most); err != nil {
		return m, fmt.Errorf("cap of member %s: %w: %w", name, ErrMalformed, err)
	}
	ms, err := strconv.ParseInt(left, 10, 64)
	if err != nil {
		return m, fmt.Errorf("heartbeat of member %s: %w: %w", name, ErrMalformed, err)
	}
	m.left = time.Duration(ms) * time.Millisecond
	if m.pins, err = decodePins(pins); err != nil {
		return m, fmt.Errorf("member %s: %w", name, err)
	}
	return m, nil
}
