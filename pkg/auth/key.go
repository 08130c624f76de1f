package auth

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"strings"
)

const (
	// KeyPrefix begins every key, so that people and secret scanners know one: mw_live_[0-9A-Za-z]{36}.
	KeyPrefix = "mw_live_"
	// secretLen base62 characters of chance are 178 bits; sumLen of them hold a CRC32 of what stands before.
	secretLen = 30
	sumLen    = 6
	keyLen    = len(KeyPrefix) + secretLen + sumLen
	// shownLen is how much of a key is kept in the clear, so that its owner knows it again (4 characters of chance).
	shownLen = 12

	// sessionPrefix begins the secret of a session in the place of KeyPrefix, so that neither is ever taken for the other.
	sessionPrefix = "mw_sess_"

	base62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
)

// NewSecret makes a key. It is shown once and never stored.
func NewSecret() string { return newSecret(KeyPrefix) }

// newSecret makes a secret that begins so.
func newSecret(prefix string) string {
	head := prefix + randomBase62(secretLen)
	return head + checksum(head)
}

// CheckShape tells without any look-up whether text can be a key: prefix, alphabet, checksum. ErrInvalidKey.
// It sorts out typing errors and noise before the database is asked.
func CheckShape(text string) error { return checkShape(text, KeyPrefix) }

// checkShape is CheckShape for what begins so.
func checkShape(text, prefix string) error {
	if len(text) != keyLen || !strings.HasPrefix(text, prefix) {
		return fmt.Errorf("%w: not of the form %s and %d characters", ErrInvalidKey, prefix, secretLen+sumLen)
	}
	for i := len(prefix); i < len(text); i++ {
		if strings.IndexByte(base62, text[i]) < 0 {
			return fmt.Errorf("%w: character outside of base62", ErrInvalidKey)
		}
	}
	head, sum := text[:keyLen-sumLen], text[keyLen-sumLen:]
	if checksum(head) != sum {
		return fmt.Errorf("%w: checksum differs", ErrInvalidKey)
	}
	return nil
}

// digest is what is stored of a key: SHA-256, hex. A slow hash would add nothing to 178 bits of chance.
func digest(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}

// checksum is the CRC32 (IEEE) of head as six base62 digits, highest first.
func checksum(head string) string {
	n := crc32.ChecksumIEEE([]byte(head))
	var out [sumLen]byte
	for i := sumLen - 1; i >= 0; i-- {
		out[i] = base62[n%62]
		n /= 62
	}
	return string(out[:])
}

// randomBase62 draws n characters without bias: bytes of 248 and more are thrown away (248 = 4·62).
func randomBase62(n int) string {
	out := make([]byte, 0, n)
	buf := make([]byte, 2*n)
	for len(out) < n {
		_, _ = rand.Read(buf) // never fails (crypto/rand ends the process instead)
		for _, b := range buf {
			if b < 248 && len(out) < n {
				out = append(out, base62[b%62])
			}
		}
	}
	return string(out)
}
