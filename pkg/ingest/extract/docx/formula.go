package docx

import (
	"encoding/xml"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/millweir/millweir/pkg/ingest/extract/office"
)

// maxFormula bounds open structures and parts: end tags that do not fit leave theirs open.
const maxFormula = 512

// structure is an open element of a formula that has parts: a fraction, a root, a pair of brackets, a sum.
type structure struct {
	name        string
	begin, last string // of brackets
	sign        string // of a sum, an integral, an accent or a brace; the type of a fraction
	top         bool   // the sign stands over the part, not under it
	parts       int    // that have begun; of a matrix: in the row
}

// signs are those that structures have by default.
var signs = map[string]string{"nary": "∫", "acc": "\u0302", "groupChr": "⏟"}

// accents are the names of signs over or under a part.
var accents = map[string]string{
	"\u0302": `\hat`, "\u0303": `\tilde`, "\u0304": `\bar`, "\u0305": `\bar`, "\u0307": `\dot`, "\u0308": `\ddot`, "\u20D7": `\vec`,
	"⏞": `\overbrace`, "⏟": `\underbrace`,
}

// scripts is how the parts beside others begin.
var scripts = map[string]string{"sub": "_{", "sup": "^{", "deg": "[", "limLow": "_{", "limUpp": "^{"}

// formula writes a formula (m:oMath) in one line, with the marks of LaTeX, so that its parts are not glued together.
type formula struct {
	depth int // of m:oMath
	open  []structure
	unset []string              // what begins the open parts that hold nothing so far: a part that ends so is left out
	gap   func(first rune) bool // tells whether a blank stands before what follows; nil: no
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
	if f.depth == 0 || len(f.open)+len(f.unset) > maxFormula {
		return ""
	}
	in := f.innermost()
	switch name {
	case "f", "rad", "d", "nary", "sSup", "sSub", "sSubSup", "sPre", "func", "limLow", "limUpp", "acc", "bar", "groupChr", "box", "borderBox",
		"phant", "m", "eqArr":
		f.open = append(f.open, structure{name: name, begin: "(", last: ")", sign: signs[name], top: name == "acc"})
		return f.mark(map[string]string{"rad": `\sqrt`, "sPre": "{}"}[name])
	case "begChr":
		in.begin = office.Attr(attrs, "val")
	case "endChr":
		in.last = office.Attr(attrs, "val")
	case "chr", "type":
		in.sign = office.Attr(attrs, "val")
	case "pos":
		in.top = office.Attr(attrs, "val") == "top"
	case "num":
		if in.sign == "noBar" {
			return f.mark(`\binom{`)
		}
		return f.mark(`\frac{`)
	case "den":
		return f.mark("{")
	case "sub", "sup", "deg":
		f.unset = append(f.unset, scripts[name])
	case "lim":
		f.unset = append(f.unset, scripts[in.name])
	case "mr":
		if in.parts > 0 {
			in.parts = 0
			return f.mark(`\\`)
		}
	case "e":
		return f.mark(f.part(in))
	}
	return ""
}

// part returns what stands before a part of a structure.
func (f *formula) part(in *structure) string {
	in.parts++
	switch in.name {
	case "rad":
		return "{"
	case "acc", "groupChr", "bar":
		return in.accent() + "{"
	case "func":
		f.gap = func(first rune) bool { return !strings.ContainsRune("([{|⟨⌈⌊}]),", first) }
	case "d":
		if in.parts == 1 {
			return in.begin
		}
		return ","
	case "m", "eqArr":
		if in.parts > 1 {
			return map[string]string{"m": "&", "eqArr": `\\`}[in.name]
		}
	}
	return ""
}

// accent names the sign over or under a part.
func (s *structure) accent() string {
	switch name := accents[s.sign]; {
	case s.name == "bar" && s.top:
		return `\overline`
	case s.name == "bar":
		return `\underline`
	case name != "":
		return name
	case s.top:
		return `\overset{` + s.sign + "}"
	}
	return `\underset{` + s.sign + "}"
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
			*f = formula{}
		}
		return " "
	case "num", "den":
		return f.mark("}")
	case "sub", "sup", "lim", "deg":
		if n := len(f.unset); n > 0 {
			f.unset = f.unset[:n-1]
			return ""
		}
		if name == "deg" {
			return f.mark("]")
		}
		return f.mark("}")
	case "naryPr":
		return f.mark(in.sign)
	case "e":
		switch in.name {
		case "rad", "acc", "groupChr", "bar":
			return f.mark("}")
		}
	case in.name:
		return f.close(*in)
	}
	return ""
}

// close ends the innermost structure.
func (f *formula) close(in structure) string {
	f.open = f.open[:len(f.open)-1]
	switch in.name {
	case "d":
		return f.mark(in.last)
	case "func", "limLow", "limUpp":
		f.gap = unicode.IsLetter
	}
	return ""
}

// mark returns a mark with what stands before it.
func (f *formula) mark(s string) string {
	return f.before(s) + s
}

// before returns what stands before a mark or text: the beginnings of the parts that it is the first of, and a blank.
func (f *formula) before(s string) string {
	if s == "" {
		return ""
	}
	begin := strings.Join(f.unset, "")
	first, _ := utf8.DecodeRuneInString(begin + s)
	if f.gap != nil && f.gap(first) {
		begin = " " + begin
	}
	f.unset, f.gap = nil, nil
	return begin
}
