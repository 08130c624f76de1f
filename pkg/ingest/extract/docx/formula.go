package docx

import (
	"encoding/xml"

	"github.com/millweir/millweir/pkg/ingest/extract/office"
)

// maxFormula bounds open structures: end tags that do not fit leave theirs open.
const maxFormula = 512

// structure is an open element of a formula that has parts: a fraction, a root, a pair of brackets, a sum.
type structure struct {
	name        string
	begin, last string // of brackets
	sign        string // of a sum or an integral
	parts       int    // that have begun
}

// formula writes a formula (m:oMath) in one line, with the marks of LaTeX, so that its parts are not glued together.
type formula struct {
	depth int // of m:oMath
	open  []structure
	root  bool // a root's degree has begun and has no text so far
}

// innermost is the structure being read; of no name: none.
func (f *formula) innermost() *structure {
	if n := len(f.open); n > 0 {
		return &f.open[n-1]
	}
	return &structure{}
}

// start returns what an element writes before its content.
func (f *formula) start(name string, attrs []xml.Attr) string {
	if name == "oMath" {
		f.depth++
		return " "
	}
	if f.depth == 0 || len(f.open) > maxFormula {
		return ""
	}
	in := f.innermost()
	switch name {
	case "f", "rad", "d", "nary", "sSup", "sSub", "sSubSup":
		f.open = append(f.open, structure{name: name, begin: "(", last: ")", sign: "∫"})
		return map[string]string{"f": `\frac`, "rad": `\sqrt`}[name]
	case "begChr":
		in.begin = office.Attr(attrs, "val")
	case "endChr":
		in.last = office.Attr(attrs, "val")
	case "chr":
		in.sign = office.Attr(attrs, "val")
	case "num", "den":
		return "{"
	case "sub":
		return "_{"
	case "sup":
		return "^{"
	case "deg":
		f.root = true
	case "e":
		return f.part(in)
	}
	return ""
}

// part returns what stands before a part of a structure.
func (f *formula) part(in *structure) string {
	in.parts++
	switch {
	case in.name == "rad":
		f.root = false
		return "{"
	case in.name == "d" && in.parts == 1:
		return in.begin
	case in.name == "d":
		return ","
	}
	return ""
}

// end returns what an element writes behind its content.
func (f *formula) end(name string) string {
	if f.depth == 0 {
		return ""
	}
	in := f.innermost()
	switch name {
	case "oMath":
		if f.depth--; f.depth == 0 {
			f.open, f.root = nil, false
		}
		return " "
	case "num", "den", "sub", "sup":
		return "}"
	case "naryPr":
		return in.sign
	case "deg":
		if !f.root {
			return "]"
		}
		f.root = false
	case "e":
		if in.name == "rad" {
			return "}"
		}
	case in.name:
		f.open = f.open[:len(f.open)-1]
		if in.name == "d" {
			return in.last
		}
	}
	return ""
}

// text returns what stands before a text.
func (f *formula) text() string {
	if !f.root {
		return ""
	}
	f.root = false
	return "["
}
