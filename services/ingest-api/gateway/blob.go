package gateway

import (
	"encoding/base64"
	"unicode/utf8"
)

// maxBlob is the most bytes of a foreign value that a list shows.
const maxBlob = 4096

// blobView is a value that somebody else wrote: text as it is, anything else as base64.
type blobView struct {
	Value    string `json:"value"`
	Encoding string `json:"encoding"` // utf-8 or base64
	Bytes    int    `json:"bytes"`    // of the whole value
	Clipped  bool   `json:"clipped"`  // value is only its beginning
}

func viewBlob(b []byte) blobView { return viewBlobUpTo(b, maxBlob) }

// viewBlobUpTo shows at most most bytes, and no half character.
func viewBlobUpTo(b []byte, most int) blobView {
	v := blobView{Encoding: "utf-8", Bytes: len(b), Clipped: len(b) > most}
	text := utf8.Valid(b)
	if v.Clipped {
		b = b[:most]
		for text && !utf8.Valid(b) {
			b = b[:len(b)-1]
		}
	}
	if v.Value = string(b); !text {
		v.Encoding, v.Value = "base64", base64.StdEncoding.EncodeToString(b)
	}
	return v
}
