package sqldb

import "strings"

// HideLogin cuts out of a parser's message whatever may be of an address's login: all that stands before its last @,
// in pieces, since a password with a slash, bracket or @ in it was taken apart before the parser met something it could name.
func HideLogin(message, address string) string {
	if _, rest, ok := strings.Cut(address, "://"); ok {
		address = rest
	}
	at := strings.LastIndexByte(address, '@')
	if at < 0 {
		return message
	}
	for _, piece := range strings.FieldsFunc(address[:at], func(r rune) bool { return strings.ContainsRune(":/?&=@()", r) }) {
		if len(piece) > 1 {
			message = strings.ReplaceAll(message, piece, "***")
		}
	}
	return message
}
