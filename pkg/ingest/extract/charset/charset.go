// Package charset finds out how a text is encoded. Find is the entry point.
package charset

import (
	"bytes"
	"io"
	"strings"
	uni "unicode"
	"unicode/utf8"

	"github.com/wlynxg/chardet"
	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/htmlindex"
	"golang.org/x/text/encoding/simplifiedchinese"
	"golang.org/x/text/encoding/unicode"
	"golang.org/x/text/encoding/unicode/utf32"
	"golang.org/x/text/transform"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/extract/document"
)

const (
	// charsetSample is what the detector sees: enough to be sure, little enough to be quick.
	charsetSample = 32 << 10
	// sureConfidence is what the detector must reach to be believed without another hint.
	sureConfidence = 0.5
	// MaxControlShare is the share of control characters above which decoded bytes are no text.
	MaxControlShare = 0.05
	// maxBrokenShare is the share of invalid bytes up to which a file still counts as damaged UTF-8.
	maxBrokenShare = 0.005
	// wholePerBroken is the number of whole characters for each bad byte from which a text is damaged UTF-8, whatever it says of itself.
	wholePerBroken = 20
	// leastBad is the number of unlikely pairs of characters that let a label be doubted.
	leastBad = 4
)

// Charset is a decoding: its name and its decoder; enc nil means UTF-8.
type Charset struct {
	Name string
	Enc  encoding.Encoding
	Skip int64 // bytes of the byte order mark
}

// Reader decodes r (positioned at the start of the file) to UTF-8; invalid input becomes U+FFFD.
func (c Charset) Reader(r io.ReadSeeker) (io.Reader, error) {
	if _, err := r.Seek(c.Skip, io.SeekStart); err != nil {
		return nil, err
	}
	if c.Enc == nil {
		return r, nil
	}
	return transform.NewReader(r, c.Enc.NewDecoder()), nil
}

// Open decodes the whole input, as Find decides without a hint, and returns the charset's name.
// Errors: those of Find.
func Open(in *document.Input) (src io.Reader, name string, err error) {
	cs, err := Find(in, nil)
	if err != nil {
		return nil, "", err
	}
	src, err = cs.Reader(in.Stream())
	return src, cs.Name, err
}

// Find decides how the input is encoded.
// Order: byte order mark, UTF-8, the document's own hint unless it gives nonsense, the detector, strict GB18030, the hint after all.
// Errors: ENCODING_UNKNOWN, or that of reading.
func Find(in *document.Input, hint func(head []byte) string) (Charset, error) {
	head := make([]byte, min(in.Size, charsetSample))
	if _, err := io.ReadFull(in.Stream(), head); err != nil {
		return Charset{}, err
	}
	if c, ok := ByMark(head); ok {
		return c, nil
	}
	broken, whole, first, err := scanUTF8(in.Stream())
	if err != nil {
		return Charset{}, err
	}
	if broken == 0 && bytes.IndexByte(head, 0) < 0 {
		return Charset{Name: "utf-8"}, nil
	}
	if broken > 0 && whole >= wholePerBroken*broken {
		return Charset{Name: "utf-8", Enc: unicode.UTF8}, nil
	}
	sample := head
	if start := first - 1024; start > 0 {
		sample = make([]byte, min(in.Size-start, charsetSample))
		if _, err := in.File.ReadAt(sample, start); err != nil && err != io.EOF {
			return Charset{}, err
		}
	}
	hinted := Charset{}
	if hint != nil {
		if c, ok := Named(hint(head)); ok && c.Enc != nil {
			if hinted = c; plausible(c, sample) {
				return c, nil
			}
		}
	}
	if c, ok := Guess(sample); ok && (hinted.Enc == nil || plausible(c, sample)) {
		return c, nil
	}
	if hinted.Enc != nil {
		return hinted, nil
	}
	if float64(broken) < maxBrokenShare*float64(in.Size) {
		return Charset{Name: "utf-8", Enc: unicode.UTF8}, nil
	}
	return Charset{}, ingest.Permanent(ingest.CodeEncoding, document.RemedyEncoding, "read text: no charset fits")
}

// ByMark looks for a byte order mark.
func ByMark(head []byte) (Charset, bool) {
	switch {
	case bytes.HasPrefix(head, []byte{0xEF, 0xBB, 0xBF}):
		return Charset{Name: "utf-8", Enc: unicode.UTF8, Skip: 3}, true
	case bytes.HasPrefix(head, []byte{0xFF, 0xFE, 0, 0}):
		return Charset{Name: "utf-32le", Enc: utf32.UTF32(utf32.LittleEndian, utf32.IgnoreBOM), Skip: 4}, true
	case bytes.HasPrefix(head, []byte{0, 0, 0xFE, 0xFF}):
		return Charset{Name: "utf-32be", Enc: utf32.UTF32(utf32.BigEndian, utf32.IgnoreBOM), Skip: 4}, true
	case bytes.HasPrefix(head, []byte{0xFF, 0xFE}):
		return Charset{Name: "utf-16le", Enc: unicode.UTF16(unicode.LittleEndian, unicode.IgnoreBOM), Skip: 2}, true
	case bytes.HasPrefix(head, []byte{0xFE, 0xFF}):
		return Charset{Name: "utf-16be", Enc: unicode.UTF16(unicode.BigEndian, unicode.IgnoreBOM), Skip: 2}, true
	}
	return Charset{}, false
}

// plausible tells whether a sample is text in a charset of one byte per character. Read in a wrong one, letters stand beside those of
// another script, beside signs, or beside nothing but other letters with marks.
func plausible(c Charset, sample []byte) bool {
	text, err := c.Enc.NewDecoder().Bytes(sample)
	if err != nil || utf8.RuneCount(text) < len(sample) {
		return true // a charset of several bytes per character breaks where it is wrong
	}
	good, bad := 0, 0
	before := ' '
	for _, r := range string(text) {
		a, b := script(before), script(r)
		switch {
		case max(before, r) < utf8.RuneSelf || a == 0 || b == 0:
		case a != b || a == oddSign || (uni.Is(uni.Latin, r) && min(before, r) >= utf8.RuneSelf):
			bad++
		default:
			good++
		}
		before = r
	}
	return bad < leastBad || bad <= good
}

// Scripts as plausible tells them apart; 0: white space, digits, punctuation.
const (
	latinScript = 1 + iota
	otherScript
	oddSign
)

func script(r rune) int {
	switch {
	case uni.Is(uni.Latin, r):
		return latinScript
	case uni.IsLetter(r), uni.IsMark(r):
		return otherScript
	case r >= utf8.RuneSelf && (uni.IsSymbol(r) || uni.IsNumber(r)):
		return oddSign
	}
	return 0
}

// scanUTF8 counts the bytes that are not UTF-8, and the characters of several bytes, and tells where the first bad byte is.
func scanUTF8(r io.Reader) (broken, whole, first int64, err error) {
	buf := make([]byte, 64<<10)
	held, at := 0, int64(0)
	for {
		n, readErr := r.Read(buf[held:])
		data := buf[:held+n]
		last := readErr != nil
		for len(data) > 0 {
			ch, size := utf8.DecodeRune(data)
			if ch == utf8.RuneError && size == 1 {
				if !last && !utf8.FullRune(data) {
					break
				}
				if broken == 0 {
					first = at
				}
				broken++
			} else if size > 1 {
				whole++
			}
			at += int64(size)
			data = data[size:]
		}
		held = copy(buf, data)
		if readErr == io.EOF {
			return broken, whole, first, nil
		}
		if readErr != nil {
			return 0, 0, 0, readErr
		}
	}
}

// WholeRunes splits a text before a character that its end cuts off.
func WholeRunes[T ~string | ~[]byte](text T) (whole, cut T) {
	for at := len(text) - 1; at >= max(len(text)-utf8.UTFMax, 0); at-- {
		if utf8.RuneStart(text[at]) {
			if !utf8.FullRuneInString(string(text[at:])) {
				return text[:at], text[at:]
			}
			break
		}
	}
	return text, text[len(text):]
}

// Guess asks the detector and checks its answer by decoding the sample.
func Guess(sample []byte) (Charset, bool) {
	best := chardet.Detect(sample)
	name := strings.ToLower(best.Encoding)
	if c, ok := Named(name); ok && c.Enc != nil && best.Confidence >= sureConfidence && Decodes(c, sample) {
		return c, true
	}
	gb := Charset{Name: "gb18030", Enc: simplifiedchinese.GB18030}
	return gb, Decodes(gb, sample)
}

// Decodes tells whether the sample becomes text: no replacement characters and hardly any controls.
// The last three bytes may belong to a character that the sample cuts off.
func Decodes(c Charset, sample []byte) bool {
	text, err := c.Enc.NewDecoder().Bytes(sample)
	if err != nil || len(text) == 0 {
		return false
	}
	bad, controls, total := 0, 0, 0
	for i, r := range string(text) {
		total++
		if r == utf8.RuneError && i < len(text)-9 {
			bad++
		}
		if (r < ' ' && !strings.ContainsRune("\t\n\r\f\x1b", r)) || r == 0x7F {
			controls++
		}
	}
	return bad == 0 && float64(controls) <= MaxControlShare*float64(total)
}

// pages are the charsets of Windows' code pages.
var pages = map[int]string{
	932: "shift_jis", 936: "gb18030", 949: "euc-kr", 950: "big5", 874: "windows-874", 1250: "windows-1250", 1251: "windows-1251", 1252: "windows-1252",
	1253: "windows-1253", 1254: "windows-1254", 1255: "windows-1255", 1256: "windows-1256", 1257: "windows-1257", 1258: "windows-1258",
	866: "ibm866", 10000: "macintosh", 20127: "ascii", 20866: "koi8-r", 20932: "euc-jp", 21866: "koi8-u", 28591: "iso-8859-1", 28592: "iso-8859-2",
	28595: "iso-8859-5", 28597: "iso-8859-7", 28605: "iso-8859-15", 50220: "iso-2022-jp", 50221: "iso-2022-jp", 51932: "euc-jp", 51936: "gb18030",
	51949: "euc-kr", 52936: "gb18030", 54936: "gb18030", 65001: "utf-8",
}

// OfPage finds a charset by its number among Windows' code pages.
func OfPage(number int) (Charset, bool) { return Named(pages[number]) }

// Named finds a charset by its label; every GB label is GB18030, which contains them.
func Named(label string) (Charset, bool) {
	label = strings.ToLower(strings.TrimSpace(label))
	if label == "" || label == "ascii" || strings.HasPrefix(label, "utf-8") {
		return Charset{Name: "utf-8"}, label != ""
	}
	switch {
	case strings.HasPrefix(label, "gb") || strings.HasPrefix(label, "hz-gb"):
		return Charset{Name: "gb18030", Enc: simplifiedchinese.GB18030}, true
	case strings.HasPrefix(label, "utf-16le") || label == "utf-16":
		return Charset{Name: "utf-16le", Enc: unicode.UTF16(unicode.LittleEndian, unicode.UseBOM)}, true
	case strings.HasPrefix(label, "utf-16be"):
		return Charset{Name: "utf-16be", Enc: unicode.UTF16(unicode.BigEndian, unicode.UseBOM)}, true
	case strings.HasPrefix(label, "utf-32be"):
		return Charset{Name: "utf-32be", Enc: utf32.UTF32(utf32.BigEndian, utf32.IgnoreBOM)}, true
	case strings.HasPrefix(label, "utf-32"):
		return Charset{Name: "utf-32le", Enc: utf32.UTF32(utf32.LittleEndian, utf32.IgnoreBOM)}, true
	case label == "cp866":
		label = "ibm866"
	case label == "cp949" || label == "uhc":
		label = "euc-kr"
	}
	enc, err := htmlindex.Get(label)
	if err != nil {
		return Charset{}, false
	}
	name, err := htmlindex.Name(enc)
	if err != nil {
		name = label
	}
	return Charset{Name: name, Enc: enc}, true
}
