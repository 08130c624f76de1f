package embedcache

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
)

// ParseHash reads a text hash as the tables keep it.
func ParseHash(text string) (TextHash, error) {
	var h TextHash
	if n, err := hex.Decode(h[:], []byte(text)); err != nil || n != len(h) {
		return h, fmt.Errorf("text hash %q is not 64 hex digits", text)
	}
	return h, nil
}

// TextHash is the sha256 of a segment's text: the key of the embedding cache.
type TextHash [sha256.Size]byte

// String is the hash as the tables keep it.
func (h TextHash) String() string { return hex.EncodeToString(h[:]) }
