package streammq

import (
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
	"time"
)

// newUUID makes a UUIDv7 (RFC 9562): 48 bits of Unix milliseconds, then random bits.
// The random source is not for secrets: an id names a message, it does not protect it.
func newUUID(now time.Time) string {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], uint64(now.UnixMilli())<<16|rand.Uint64()&0x0fff|0x7000) //nolint:gosec // after 1970
	binary.BigEndian.PutUint64(b[8:], rand.Uint64()&0x3fffffffffffffff|0x8000000000000000)
	var text [36]byte
	hex.Encode(text[0:8], b[0:4])
	hex.Encode(text[9:13], b[4:6])
	hex.Encode(text[14:18], b[6:8])
	hex.Encode(text[19:23], b[8:10])
	hex.Encode(text[24:36], b[10:16])
	text[8], text[13], text[18], text[23] = '-', '-', '-', '-'
	return string(text[:])
}
