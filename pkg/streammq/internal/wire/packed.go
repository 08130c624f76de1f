package wire

import (
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/millweir/millweir/pkg/streammq/internal/model"
)

// Raw is an entry as Redis gave it, with the fence of its delivery.
type Raw struct {
	Id         string
	Fields     []string
	Deliveries int64
	Attempts   int // failed ones in place
}

// DecodePacked reads new entries as entries_fetch.lua packs them: MessagePack of [[id, [field, value, …]], …], of arrays
// and strings only. The fields share the memory of text, the ids do not. Its error wraps ErrMalformed.
func DecodePacked(text string) ([]Raw, error) {
	if text == "" {
		return nil, nil
	}
	p := packed{text: text}
	count := p.array()
	entries := make([]Raw, 0, count)
	var fields []string // of all entries: one allocation for most batches
	for range count {
		if p.array() != 2 {
			p.broken = true
		}
		e := Raw{Id: strings.Clone(p.str()), Deliveries: 1}
		n := p.array()
		if fields == nil {
			fields = make([]string, 0, n*min(count, model.MaxBatch))
		}
		first := len(fields)
		for range n {
			fields = append(fields, p.str())
		}
		e.Fields = fields[first:len(fields):len(fields)]
		entries = append(entries, e)
		if p.broken {
			break
		}
	}
	if p.broken || p.at != len(text) {
		return nil, fmt.Errorf("%w: packed entries break off at byte %d of %d", model.ErrMalformed, p.at, len(text))
	}
	return entries, nil
}

// packed is a place in a MessagePack text (https://github.com/msgpack/msgpack/blob/master/spec.md).
type packed struct {
	text   string
	at     int
	broken bool // it is not what it should be: all that follows is zero from here on
}

// array reads the head of an array. No array can have more elements than there are bytes left.
func (p *packed) array() int {
	switch b := p.take(1); {
	case b == "":
		return 0
	case b[0]&0xf0 == 0x90:
		return p.fits(int(b[0] & 0x0f))
	case b[0] == 0xdc:
		return p.fits(p.number(2))
	case b[0] == 0xdd:
		return p.fits(p.number(4))
	case b[0] == 0x80: // an empty Lua table may be a map
		return 0
	}
	p.broken = true
	return 0
}

// str reads a string.
func (p *packed) str() string {
	switch b := p.take(1); {
	case b == "":
		return ""
	case b[0]&0xe0 == 0xa0:
		return p.take(int(b[0] & 0x1f))
	case b[0] == 0xd9:
		return p.take(p.number(1))
	case b[0] == 0xda:
		return p.take(p.number(2))
	case b[0] == 0xdb:
		return p.take(p.number(4))
	}
	p.broken = true
	return ""
}

func (p *packed) number(bytes int) int {
	var b [4]byte
	copy(b[4-bytes:], p.take(bytes))
	return int(binary.BigEndian.Uint32(b[:]))
}

func (p *packed) take(n int) string {
	if p.broken || p.fits(n) != n {
		return ""
	}
	p.at += n
	return p.text[p.at-n : p.at]
}

func (p *packed) fits(n int) int {
	if n < 0 || n > len(p.text)-p.at {
		p.broken = true
		return 0
	}
	return n
}
