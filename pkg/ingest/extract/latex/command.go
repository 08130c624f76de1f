package latex

import (
	"strconv"
	"strings"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/extract/document"
)

// maxSpan bounds in how many columns a cell is repeated.
const maxSpan = 64

// symbols are commands that stand for characters.
var symbols = map[string]string{
	"&": "&", "%": "%", "$": "$", "#": "#", "_": "_", "{": "{", "}": "}", " ": " ", ",": " ", ";": " ", ":": " ", "\n": " ", "@": "",
	"-": "", "/": "", "!": "", "quad": " ", "qquad": " ", "newline": "\n", "linebreak": "\n", "and": ", ", "ss": "ß", "ae": "æ", "AE": "Æ", "oe": "œ",
	"OE": "Œ", "o": "ø", "O": "Ø", "aa": "å", "AA": "Å", "l": "ł", "L": "Ł", "i": "ı", "j": "ȷ", "ldots": "…", "dots": "…", "textellipsis": "…",
	"LaTeX": "LaTeX", "TeX": "TeX", "LaTeXe": "LaTeX2e", "S": "§", "P": "¶", "copyright": "©", "pounds": "£", "euro": "€", "textbackslash": `\`,
	"textasciitilde": "~", "textasciicircum": "^", "textbar": "|", "textless": "<", "textgreater": ">", "textendash": "–", "textemdash": "—",
	"textquotedblleft": "“", "textquotedblright": "”", "textquoteleft": "‘", "textquoteright": "’", "textregistered": "®", "texttrademark": "™",
	"textdegree": "°", "degree": "°", "textbullet": "•", "textunderscore": "_", "dag": "†", "ddag": "‡", "slash": "/", "lbrack": "[", "rbrack": "]",
}

// accents are commands that put a mark on a letter.
var accents = map[string]rune{
	"'": '\u0301', "`": '\u0300', "^": '\u0302', `"`: '\u0308', "~": '\u0303', "=": '\u0304', ".": '\u0307', "c": '\u0327', "v": '\u030C',
	"u": '\u0306', "H": '\u030B', "r": '\u030A', "k": '\u0328', "d": '\u0323', "b": '\u0331',
}

// withoutText are commands whose arguments say nothing, and how many they have.
var withoutText = map[string]int{
	"label": 1, "index": 1, "glossary": 1, "vspace": 1, "hspace": 1, "setlength": 2, "addtolength": 2, "usepackage": 1, "RequirePackage": 1,
	"documentclass": 1, "documentstyle": 1, "pagestyle": 1, "thispagestyle": 1, "pagenumbering": 1, "bibliographystyle": 1, "hypersetup": 1,
	"geometry": 1, "graphicspath": 1, "setcounter": 2, "addtocounter": 2, "newcounter": 1, "color": 1, "definecolor": 3, "includegraphics": 1,
	"newcommand": 2, "renewcommand": 2, "providecommand": 2, "DeclareMathOperator": 2, "newtheorem": 2, "newenvironment": 3, "renewenvironment": 3,
	"addcontentsline": 3, "cline": 1, "rowcolor": 1, "cellcolor": 1, "columncolor": 1, "textcolor": 1, "colorbox": 1, "fontsize": 2, "selectlanguage": 1,
	"fontfamily": 1, "usetikzlibrary": 1, "tikzset": 1, "lstset": 1, "captionsetup": 1, "bibliography": 1, "addbibresource": 1, "rule": 2,
	"href": 1, "hyphenation": 1, "phantom": 1, "hphantom": 1, "vphantom": 1, "resizebox": 2, "scalebox": 1, "rotatebox": 1, "raisebox": 1, "parbox": 1,
	"multirow": 2, "usetheme": 1, "institute": 0, "hypertarget": 1, "hyperlink": 1, "theoremstyle": 1, "markboth": 2, "markright": 1, "nocite": 1,
	"cmidrule": 1, "enlargethispage": 1, "setmainfont": 1, "stepcounter": 1, "numberwithin": 2, "lstinputlisting": 1, "today": 0,
}

// command reads what begins with a backslash.
func (p *parser) command() error {
	p.pos++
	name := p.name()
	if mark, ok := accents[name]; ok {
		return p.accent(mark)
	}
	letters := len(name) > 1 || name != "" && (name[0]|0x20 >= 'a' && name[0]|0x20 <= 'z')
	if letters && strings.HasPrefix(p.rest(), "*") && name != "verb" {
		p.pos++
	}
	if text, ok := symbols[name]; ok {
		if letters {
			p.pos = p.end - len(strings.TrimLeft(p.rest(), " \t"))
		}
		p.write(text)
		return nil
	}
	switch name {
	case `\`:
		p.options()
		return p.nextRow()
	case "(":
		return p.upTo(`\)`, func(text string) error {
			p.write("$" + text + "$")
			return nil
		})
	case "[":
		return p.upTo(`\]`, p.formula)
	case "par":
		return p.flush()
	case "begin":
		return p.environment(p.raw())
	case "end":
		return p.endOf(p.raw())
	case "verb":
		p.verb()
		return nil
	case "tabularnewline":
		return p.nextRow()
	case "def":
		p.definition()
		return nil
	}
	return p.word(name)
}

// word reads a command that is named by a word.
func (p *parser) word(name string) error {
	switch name {
	case "title", "part", "chapter", "section", "subsection", "subsubsection", "frametitle", "paragraph", "subparagraph":
		p.options()
		return p.heading(name)
	case "author", "date", "caption", "institute", "subtitle", "framesubtitle", "thanks", "footnote", "footnotetext":
		p.options()
		return p.apart(name)
	case "item", "bibitem":
		p.pos = p.end - len(strings.TrimLeft(p.rest(), " \t"))
		label, _ := p.options()
		if name == "bibitem" {
			p.raw()
			label = ""
		}
		return p.begin(label)
	case "input", "include", "subfile", "import":
		if name := p.raw(); !p.preamble && name != "" {
			p.out.Warn("%q is another file, which was not read", name)
		}
		return nil
	case "multicolumn":
		return p.span()
	case "cite", "citep", "citet", "citeauthor", "citeyear", "textcite", "parencite", "autocite", "footcite", "ref", "eqref", "pageref", "autoref",
		"cref", "Cref", "nameref", "vref":
		p.options()
		if key := p.raw(); key != "" {
			p.write("[" + key + "]")
		}
		return nil
	case "url", "path", "nolinkurl", "lstinline":
		p.options()
		p.write(p.raw())
		return nil
	}
	p.options()
	if strings.HasPrefix(p.rest(), "(") && name == "cmidrule" {
		p.pos += strings.IndexByte(p.rest(), ')') + 1
	}
	if rest, named := strings.CutPrefix(strings.TrimLeft(p.rest(), " "), `\`); named && strings.HasSuffix(name, "command") {
		p.pos = p.end - len(rest) // \newcommand\name{…}
		p.name()
		p.options()
		p.raw()
		return nil
	}
	for range withoutText[name] {
		p.raw()
		p.options()
	}
	// Letters end at what is no letter; the white space there is none.
	if trimmed := strings.TrimLeft(p.rest(), " \t"); trimmed != p.rest() && withoutText[name] == 0 {
		p.pos = p.end - len(trimmed)
	}
	return nil
}

// heading sends one; inside of other text it is a part of it.
func (p *parser) heading(name string) error {
	if p.nested == 0 && p.tables == 0 {
		if err := p.flush(); err != nil {
			return err
		}
	}
	text, err := p.inner()
	if err != nil || text == "" {
		return err
	}
	if name == "title" && p.title == "" {
		p.title = text
	}
	if p.nested > 0 || p.tables > 0 {
		p.write(text + "\n")
		return nil
	}
	return p.out.Block(ingest.Block{Kind: ingest.BlockHeading, Level: p.levels[name], Text: text})
}

// apart reads text that is a paragraph of its own: a footnote's follows its paragraph.
func (p *parser) apart(name string) error {
	text, err := p.inner()
	if err != nil || text == "" {
		return err
	}
	switch {
	case name == "footnote" || name == "thanks" || name == "footnotetext":
		p.notes = append(p.notes, text)
		return nil
	case p.nested > 0 || p.tables > 0:
		p.write(text + "\n")
		return nil
	case name == "author":
		text = strings.ReplaceAll(text, " ,", ",")
	}
	if err := p.flush(); err != nil {
		return err
	}
	return p.out.Block(ingest.Block{Kind: ingest.BlockParagraph, Text: text})
}

// span reads a cell that takes several columns: it stands in each.
func (p *parser) span() error {
	columns, err := strconv.Atoi(p.raw())
	if err != nil {
		columns = 1
	}
	p.raw()
	text, err := p.inner()
	for range min(columns, maxSpan) - 1 {
		if p.tables == 1 {
			p.cells = append(p.cells, text)
		}
	}
	p.write(text)
	return err
}

// verb reads verbatim text between two marks in a line.
func (p *parser) verb() {
	p.pos += len(p.rest()) - len(strings.TrimPrefix(p.rest(), "*"))
	if p.pos >= p.end {
		return
	}
	line, _, _ := strings.Cut(p.rest(), "\n")
	if n := strings.IndexByte(line[min(1, len(line)):], p.tex[p.pos]); n >= 0 {
		p.write(line[1 : 1+n])
		p.pos += n + 2
	}
}

// definition passes \def\name#1{…}.
func (p *parser) definition() {
	line, _, _ := strings.Cut(p.rest(), "\n")
	if n := strings.IndexByte(line, '{'); n >= 0 {
		p.pos += n
		p.raw()
	}
}

// upTo reads up to an end mark and gives what stands before it to use; without the mark nothing is read.
func (p *parser) upTo(end string, use func(text string) error) error {
	at := p.find(p.pos, end)
	if at+len(end) > p.end {
		return nil
	}
	text := p.tex[p.pos:at]
	p.pos = at + len(end)
	return use(text)
}

// argumentsOf are environments whose first arguments say nothing, and how many they have.
var argumentsOf = map[string]int{
	"tabular": 1, "tabular*": 2, "tabularx": 2, "tabulary": 2, "longtable": 1, "tabu": 1, "supertabular": 1, "xltabular": 2, "longtabu": 1, "tblr": 1,
	"minipage": 1, "multicols": 1, "thebibliography": 1, "list": 2, "minted": 1, "wrapfigure": 2, "adjustbox": 1, "spacing": 1, "otherlanguage": 1,
}

// isTable tells the environments of rows and cells.
func isTable(name string) bool {
	return strings.HasPrefix(name, "tabu") || strings.HasPrefix(name, "longtab") || name == "supertabular" || name == "xltabular" || name == "tblr"
}

// environment begins one.
func (p *parser) environment(name string) error {
	plain := strings.TrimSuffix(name, "*")
	end := `\end{` + name + `}`
	switch plain {
	case "":
		return nil
	case "document":
		p.preamble = false
		p.take()
		return nil
	case "verbatim", "Verbatim", "lstlisting", "minted", "alltt":
		p.options()
		if plain == "minted" {
			p.raw()
		}
		return p.upTo(end, p.verbatim)
	case "equation", "align", "gather", "multline", "eqnarray", "displaymath", "flalign", "alignat", "math":
		return p.upTo(end, p.formula)
	case "comment", "tikzpicture", "pgfpicture", "picture", "filecontents":
		return p.upTo(end, func(string) error { return nil })
	}
	if err := p.flush(); err != nil {
		return err
	}
	option, some := p.options()
	for range argumentsOf[name] {
		p.raw()
	}
	switch {
	case plain == "frame":
		return p.heading("frametitle")
	case isTable(plain):
		if p.tables++; p.tables == 1 {
			p.rows, p.cells = &document.TableWriter{Out: p.out}, nil
			if p.nested > 0 {
				p.tables++ // a table inside of other text has no rows
			}
		}
	case plain == "itemize" || plain == "description" || plain == "thebibliography":
		p.lists = append(p.lists, list{-1})
	case plain == "enumerate":
		p.lists = append(p.lists, list{0})
	case some && strings.Trim(option, "htbpHcr!") != "" && !strings.Contains(option, "="):
		p.write(option + "\n") // a theorem's name
	}
	if len(p.lists) > 256 { // lists that are never closed must not grow without bound
		p.lists = p.lists[1:]
	}
	return nil
}

// verbatim sends code.
func (p *parser) verbatim(text string) error {
	if p.nested > 0 || p.tables > 0 {
		p.write(text)
		return nil
	}
	if err := p.flush(); err != nil || p.preamble {
		return err
	}
	return p.out.Block(ingest.Block{Kind: ingest.BlockCode, Text: text})
}

// endOf ends an environment.
func (p *parser) endOf(name string) error {
	plain := strings.TrimSuffix(name, "*")
	switch {
	case plain == "document":
		p.pos = p.end
		return nil
	case isTable(plain) && p.tables > 0:
		if p.tables > 1 {
			if p.tables--; p.nested > 0 && p.tables == 1 {
				p.tables = 0
			}
			return nil
		}
		return p.finish()
	}
	err := p.flush()
	switch plain {
	case "itemize", "description", "thebibliography", "enumerate":
		if n := len(p.lists); n > 0 {
			p.lists = p.lists[:n-1]
		}
	}
	return err
}
