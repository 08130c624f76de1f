package share

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/millweir/millweir/pkg/streammq/internal/model"
)

// EncodePins renders pinned partitions as a heartbeat carries them.
func EncodePins(pins []int) string {
	texts := make([]string, len(pins))
	for i, p := range pins {
		texts[i] = strconv.Itoa(p)
	}
	return strings.Join(texts, ",")
}

// DecodePins reads them back. Error: ErrMalformed.
func DecodePins(text string) ([]int, error) {
	if text == "" {
		return nil, nil
	}
	var pins []int
	for part := range strings.SplitSeq(text, ",") {
		p, err := strconv.ParseUint(part, 10, 31)
		if err != nil {
			return nil, fmt.Errorf("pinned partitions %q: %w: %w", model.Clip(text, 64), model.ErrMalformed, err)
		}
		pins = append(pins, int(p)) //nolint:gosec // 31 bits
	}
	return pins, nil
}

// DecodeMember reads what group_beat.lua returns of a live member. Error: ErrMalformed.
func DecodeMember(name, most, left, pins string) (MemberView, error) {
	m := MemberView{Name: name}
	var err error
	if m.Cap, err = strconv.Atoi(most); err != nil {
		return m, fmt.Errorf("cap of member %s: %w: %w", name, model.ErrMalformed, err)
	}
	ms, err := strconv.ParseInt(left, 10, 64)
	if err != nil {
		return m, fmt.Errorf("heartbeat of member %s: %w: %w", name, model.ErrMalformed, err)
	}
	m.Left = time.Duration(ms) * time.Millisecond
	if m.Pins, err = DecodePins(pins); err != nil {
		return m, fmt.Errorf("member %s: %w", name, err)
	}
	return m, nil
}
