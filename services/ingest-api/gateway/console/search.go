package console

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/millweir/millweir/pkg/wire"
)

func (h *Handler) searchScreens() map[string]handlerFunc {
	return map[string]handlerFunc{"GET /search": h.search}
}

// searchData is a search and what was found.
type searchData struct {
	Request wire.SearchRequest
	Compare string      // another base; empty: none
	Found   []found     // in each base; none: nothing was asked yet
	Bases   []wire.Base // to choose from; none: they are not for who looks
	Modes   []string
	Curl    string
	Python  string
	CLI     string
}

// found is what a search found in one base.
type found struct {
	Base   string // as it was named; empty: the default one
	Answer wire.SearchAnswer
	Hits   []hit
}

// hit is a hit with its text cut at the words that were found.
type hit struct {
	wire.Hit
	Pieces  []piece // the whole text
	Excerpt []piece // what stands around the first words found
	Longer  bool    // the excerpt is not the whole
	Other   int     // place of the same text in the other base's hits, from 1; 0: it is not among them
}

// piece is a part of a text.
type piece struct {
	Text  string
	Found bool
}

// mostBases is how many bases a form offers; others can be typed.
const mostBases = "100"

// searchWish reads a search from an address.
func searchWish(q url.Values) (wire.SearchRequest, error) {
	in := wire.SearchRequest{
		Query: strings.TrimSpace(q.Get("q")), KnowledgeBase: strings.TrimSpace(q.Get("knowledgeBase")), Mode: q.Get("mode"), Cursor: q.Get("cursor"),
		CreatedAfter: q.Get("createdAfter"), CreatedBefore: q.Get("createdBefore"),
	}
	if types := strings.TrimSpace(q.Get("type")); types != "" {
		in.MediaTypes = strings.Split(types, ",")
	}
	if text := q.Get("topK"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			return in, refuse(http.StatusUnprocessableEntity, "INVALID_FIELD", "topK is not a whole number")
		}
		in.TopK = &n
	}
	return in, nil
}

// search looks in one base, or in two beside each other. What is wrong with a search stands above its form, to be mended.
func (h *Handler) search(p *page) error {
	in, err := searchWish(p.r.URL.Query())
	if err != nil {
		return err
	}
	d := searchData{Request: in, Compare: strings.TrimSpace(p.Param("compare")), Modes: []string{"auto", "text", "vector", "hybrid"}}
	bases := wire.List[wire.Base]{}
	var refused *Refusal
	if err := p.get(basesPath, url.Values{"limit": {mostBases}}, &bases); errors.As(err, &refused) && refused.Status == http.StatusForbidden {
		refused = nil // a key that may only search
	} else if err != nil {
		return err
	}
	d.Bases = bases.Items
	if in.Query == "" {
		return p.show("search", p.T("Search"), d)
	}
	places := []string{in.KnowledgeBase}
	if d.Compare != "" {
		places, in.Cursor = append(places, d.Compare), ""
	}
	for _, place := range places {
		f := found{Base: place}
		in.KnowledgeBase = place
		err := p.call(http.MethodPost, "/api/knowledge/search", nil, in, &f.Answer)
		if errors.As(err, &refused) && refused.Status < http.StatusInternalServerError && refused.Status != http.StatusUnauthorized {
			p.refusal, d.Found = refused, nil
			return p.render(refused.Status, "search", p.T("Search"), d)
		}
		if err != nil {
			return err
		}
		for _, one := range f.Answer.Hits {
			text, highlights := excerpt(one.Text, one.Highlights)
			f.Hits = append(f.Hits, hit{Hit: one, Pieces: cut(one.Text, one.Highlights), Excerpt: cut(text, highlights), Longer: text != one.Text})
		}
		d.Found = append(d.Found, f)
	}
	if len(d.Found) == 2 {
		d.Found[0].markIn(d.Found[1])
		d.Found[1].markIn(d.Found[0])
	}
	asked := d.Request
	asked.Cursor = ""
	d.Curl, d.Python, d.CLI = curl(p.origin(), h.cfg.Open, asked), python(p.origin(), h.cfg.Open, asked), cli(asked)
	return p.show("search", p.T("Search"), d)
}

// markIn says of each hit where the other base has the same text.
func (f found) markIn(other found) {
	for i := range f.Hits {
		f.Hits[i].Other = 1 + slices.IndexFunc(other.Hits, func(h hit) bool { return h.Text == f.Hits[i].Text })
	}
}

// An excerpt has so many characters before the first word found, and so many in all.
const excerptBefore, excerptWhole = 120, 480

// excerpt is a text's part around the first range, with the ranges that lie in it.
func excerpt(text string, ranges [][2]int) (string, [][2]int) {
	runes := []rune(text)
	if len(runes) <= excerptWhole {
		return text, ranges
	}
	from := 0
	if len(ranges) > 0 {
		from = min(max(ranges[0][0]-excerptBefore, 0), len(runes)-excerptWhole)
	}
	part, shift := string(runes[from:from+excerptWhole]), -from
	if from > 0 {
		part, shift = "…"+part, 1-from
	}
	if from+excerptWhole < len(runes) {
		part += "…"
	}
	out := make([][2]int, len(ranges))
	for i, r := range ranges {
		out[i] = [2]int{r[0] + shift, r[1] + shift}
	}
	return part, out
}

// Score is a part of a score.
func (p *page) Score(s *float64) string { return strconv.FormatFloat(*s, 'f', 3, 64) }

// cut divides a text at ranges of characters. Ranges that do not fit are left out.
func cut(text string, ranges [][2]int) []piece {
	runes := []rune(text)
	if !utf8.ValidString(text) {
		return []piece{{Text: text}}
	}
	var out []piece
	at := 0
	for _, r := range slices.SortedFunc(slices.Values(ranges), func(a, b [2]int) int { return a[0] - b[0] }) {
		if r[0] < at || r[1] <= r[0] || r[1] > len(runes) {
			continue
		}
		if r[0] > at {
			out = append(out, piece{Text: string(runes[at:r[0]])})
		}
		out = append(out, piece{Text: string(runes[r[0]:r[1]]), Found: true})
		at = r[1]
	}
	if at < len(runes) {
		out = append(out, piece{Text: string(runes[at:])})
	}
	return out
}

// origin is the address of this service as the browser knows it.
func (p *page) origin() string {
	scheme := "http"
	if p.tls {
		scheme = "https"
	}
	return scheme + "://" + p.r.Host + p.prefix
}

// curl is a search for a shell.
func curl(origin string, open bool, in wire.SearchRequest) string {
	body, err := json.Marshal(in)
	if err != nil {
		return ""
	}
	key := ""
	if !open {
		key = " -H \"Authorization: Bearer $MILLWEIR_API_KEY\""
	}
	return "curl" + key + " -H 'Content-Type: application/json' -d " + quoted(string(body)) + " " + quoted(origin+"/api/knowledge/search")
}

// python is a search for Python 3, with nothing but what it has. A text of JSON is one of Python too.
func python(origin string, open bool, in wire.SearchRequest) string {
	body, err := json.Marshal(in)
	if err != nil {
		return ""
	}
	literal := func(text string) string {
		b, err := json.Marshal(text)
		if err != nil {
			return ""
		}
		return string(b)
	}
	text, key := "import json, urllib.request\n", ""
	if !open {
		text, key = "import json, os, urllib.request\n", `, "Authorization": "Bearer " + os.environ["MILLWEIR_API_KEY"]`
	}
	return text + "request = urllib.request.Request(" + literal(origin+"/api/knowledge/search") + ", " + literal(string(body)) + ".encode(), " +
		`{"Content-Type": "application/json"` + key + "})\n" + `print(json.load(urllib.request.urlopen(request))["hits"])` + "\n"
}

// cli is a search for the command line.
func cli(in wire.SearchRequest) string {
	text := "millweir search " + quoted(in.Query)
	if in.KnowledgeBase != "" {
		text += " --kb " + quoted(in.KnowledgeBase)
	}
	if in.Mode != "" {
		text += " --mode " + quoted(in.Mode)
	}
	if in.TopK != nil {
		text += " --top " + strconv.Itoa(*in.TopK)
	}
	if len(in.MediaTypes) > 0 {
		text += " --type " + quoted(strings.Join(in.MediaTypes, ","))
	}
	for _, c := range []struct{ flag, value string }{{"--created-after", in.CreatedAfter}, {"--created-before", in.CreatedBefore}} {
		if c.value != "" {
			text += " " + c.flag + " " + quoted(c.value)
		}
	}
	return text
}

// quoted is a text for a POSIX shell.
func quoted(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }
