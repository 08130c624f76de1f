package auth

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// MaxUserID is the most characters of a user id, as the columns have it.
const MaxUserID = 190

// ErrInvalidUserID is for text that cannot be a user's id; the error says what is wrong and what to do.
var ErrInvalidUserID = errors.New("invalid user id")

// CheckUserID returns nil when id can be a user's id, else an ErrInvalidUserID.
// It is the only judge of user ids; whatever takes one from outside asks it, and nothing trims or rewrites an id.
// The rule (contract §4): valid UTF-8 in NFC, 1 to MaxUserID characters, no white space or invisible character at either
// end, no control character, line separator or bidirectional control anywhere. Two ids are one user's only when
// they are equal byte for byte.
func CheckUserID(id string) error {
	if id == "" {
		return fmt.Errorf("%w: it is empty; give 1 to %d characters", ErrInvalidUserID, MaxUserID)
	}
	if !utf8.ValidString(id) || strings.ContainsRune(id, utf8.RuneError) { // U+FFFD stands for what some decoder could not read
		return fmt.Errorf("%w: it is not valid UTF-8; send it as UTF-8", ErrInvalidUserID)
	}
	if n := utf8.RuneCountInString(id); n > MaxUserID {
		return fmt.Errorf("%w: it has %d characters, allowed are 1 to %d; shorten it", ErrInvalidUserID, n, MaxUserID)
	}
	for _, r := range id {
		if unicode.IsControl(r) || unicode.In(r, unicode.Zl, unicode.Zp) || unicode.Is(unicode.Bidi_Control, r) {
			return fmt.Errorf("%w: it has the character %U, a control or bidirectional one; leave that out", ErrInvalidUserID, r)
		}
	}
	first, _ := utf8.DecodeRuneInString(id)
	last, _ := utf8.DecodeLastRuneInString(id)
	for _, r := range []rune{first, last} {
		if blank(r) {
			return fmt.Errorf("%w: it begins or ends with white space (%U); remove that", ErrInvalidUserID, r)
		}
	}
	if !norm.NFC.IsNormalString(id) {
		return fmt.Errorf("%w: it is not in Unicode normalization form NFC; normalize it", ErrInvalidUserID)
	}
	return nil
}

// blank reports whether nobody sees r at the end of a text.
func blank(r rune) bool {
	switch r {
	case '\u200b', '\u200c', '\u200d', '\u2060', '\ufeff', '\u180e', '\u00ad', '\u3164', '\u2800': // of no width, or empty
		return true
	}
	return unicode.IsSpace(r)
}
