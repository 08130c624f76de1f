package views

import (
	"encoding/base64"
	"unicode/utf8"

	"github.com/millweir/millweir/pkg/wire"
)

// maxBlob is the most bytes of a foreign value that a list shows.
const maxBlob = 4096

func Blob(b []byte) wire.Blob { return ViewBlobUpTo(b, maxBlob) }

// ViewBlobUpTo shows at most most bytes, and no half character.
func ViewBlobUpTo(b []byte, most int) wire.Blob {
	v := wire.Blob{Encoding: "utf-8", Bytes: len(b), Clipped: len(b) > most}
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
