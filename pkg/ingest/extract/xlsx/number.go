package xlsx

import (
	"encoding/xml"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/millweir/millweir/pkg/ingest/extract/archive"
	"github.com/millweir/millweir/pkg/ingest/extract/office"
)

// styles says how the numbers of cells are shown.
type styles struct {
	office.Attributes
	codes map[int]string // of a workbook's own formats
	cells []int          // style of a cell → format
	xfs   bool           // inside of cellXfs
}

// Start implements office.Visitor.
func (s *styles) Start(name string, attrs []xml.Attr) error {
	id, _ := strconv.Atoi(office.Attr(attrs, "numFmtId"))
	switch {
	case name == "numFmt" && len(s.codes) < archive.MaxEntries:
		s.codes[id] = office.Attr(attrs, "formatCode")
	case name == "cellXfs":
		s.xfs = true
	case name == "xf" && s.xfs && len(s.cells) < 64<<10+archive.MaxEntries:
		s.cells = append(s.cells, id)
	}
	return nil
}

// End implements office.Visitor.
func (s *styles) End(name string) error {
	if name == "cellXfs" {
		s.xfs = false
	}
	return nil
}

// builtIn are the codes of formats that every program knows, as far as they matter here (ECMA-376, 18.8.30).
var builtIn = map[int]string{
	9: "0%", 10: "0.00%", 14: "y-m-d", 15: "d-m-y", 16: "d-m", 17: "m-y", 18: "h:mm", 19: "h:mm:ss", 20: "h:mm", 21: "h:mm:ss", 22: "y-m-d h:mm", 27: "y-m-d",
	28: "y-m-d", 29: "y-m-d", 30: "y-m-d", 31: "y-m-d", 32: "h:mm", 33: "h:mm:ss", 34: "h:mm", 35: "h:mm:ss", 36: "y-m-d", 45: "mm:ss", 46: "h:mm:ss", 47: "mm:ss",
	50: "y-m-d", 51: "y-m-d", 52: "y-m-d", 53: "y-m-d", 54: "y-m-d", 55: "y-m-d", 56: "y-m-d", 57: "y-m-d", 58: "y-m-d",
}

// number is a number as it is read: a date or time, a share in percent, or the number itself.
func (s *styles) number(raw string, style int, since1904 bool) string {
	raw = strings.TrimSpace(raw)
	v, err := strconv.ParseFloat(raw, 64)
	if err != nil || math.IsInf(v, 0) || math.IsNaN(v) {
		return raw
	}
	code := ""
	if style >= 0 && style < len(s.cells) {
		id := s.cells[style]
		if code = s.codes[id]; code == "" {
			code = builtIn[id]
		}
	}
	code = plainCode(code)
	switch {
	case strings.Contains(code, "%"):
		_, decimals, _ := strings.Cut(code, ".")
		places := strings.Count(decimals, "0")
		shown := v * 100
		if scale := math.Pow10(places); places < 6 && math.Abs(shown) < 1e9 { // Excel rounds halves up, of the 15 digits that it keeps
			kept, _ := strconv.ParseFloat(strconv.FormatFloat(shown*scale, 'g', 15, 64), 64)
			shown = math.Round(kept) / scale
		}
		return strconv.FormatFloat(shown, 'f', places, 64) + "%"
	case strings.ContainsAny(code, "ydhs") || strings.Contains(code, "mm"):
		if text, ok := date(v, code, since1904); ok {
			return text
		}
	}
	if v == math.Trunc(v) && math.Abs(v) < 1e15 {
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	return strconv.FormatFloat(v, 'g', 15, 64) // as many digits as Excel keeps
}

// plainCode is the first section of a format's code in lower case, without quoted text, escaped characters, conditions and colours.
func plainCode(code string) string {
	var b strings.Builder
	for i := 0; i < len(code); i++ {
		switch c := code[i]; c {
		case ';':
			return strings.ToLower(b.String())
		case '"', '[':
			end := strings.IndexByte(code[i+1:], map[byte]byte{'"': '"', '[': ']'}[c])
			if end < 0 {
				return strings.ToLower(b.String())
			}
			if inner := strings.ToLower(code[i+1 : i+1+end]); c == '[' && strings.Trim(inner, "hms") == "" {
				b.WriteString(inner) // hours beyond a day
			}
			i += end + 1
		case '\\', '_', '*':
			i++
		default:
			b.WriteByte(c)
		}
	}
	code = strings.ToLower(b.String())
	return strings.ReplaceAll(code, "general", "")
}

// date writes a day number; ok is false for one that is no day.
func date(v float64, code string, since1904 bool) (text string, ok bool) {
	const lastDay = 2_958_466 // 10000-01-01
	if v < 0 || v >= lastDay {
		return "", false
	}
	first := time.Date(1899, 12, 30, 0, 0, 0, 0, time.UTC)
	if since1904 {
		first = time.Date(1904, 1, 1, 0, 0, 0, 0, time.UTC)
	}
	day := math.Trunc(v)
	when := first.AddDate(0, 0, int(day)).Add(time.Duration(math.Round((v-day)*86_400)) * time.Second)
	days, times := strings.ContainsAny(code, "yd"), strings.ContainsAny(code, "hs")
	if !days && !times {
		days = true // months alone
	}
	switch {
	case !times:
		return when.Format(time.DateOnly), true
	case days:
		return when.Format(time.DateTime), true
	}
	return when.Format(time.TimeOnly), true
}
