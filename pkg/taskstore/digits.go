package taskstore

import (
	"fmt"
	"strings"
)

// A delivery's name has few kinds of characters. MySQL keeps two of them in a byte, so that a state is narrow and of constant
// width; statements turn them back into text (@delivery in pkg/sqldb).

const (
	deliveryChars = "0123456789-:k./"
	maxDelivery   = 31
	noChar        = 0xF // fills what is left
)

// checkDelivery refuses the name of a delivery that states cannot keep.
func checkDelivery(name string) error {
	if len(name) > maxDelivery || strings.Trim(name, deliveryChars) != "" {
		return fmt.Errorf("%w: the delivery %q has more than %d characters, or others than %s", ErrInvalid, name, maxDelivery, deliveryChars)
	}
	return nil
}

// packed is such a name in 16 bytes.
func packed(name string) []byte {
	out := make([]byte, (maxDelivery+1)/2)
	for i := range out {
		out[i] = nibble(name, 2*i)<<4 | nibble(name, 2*i+1)
	}
	return out
}

// nibble is the i-th character of a name.
func nibble(name string, i int) byte {
	if i >= len(name) {
		return noChar
	}
	return byte(strings.IndexByte(deliveryChars, name[i])) //nolint:gosec // checkDelivery: it is one of 15
}
