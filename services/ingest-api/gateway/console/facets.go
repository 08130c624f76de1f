package console

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/millweir/millweir/pkg/tasks/filter"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/wire"
)

// facet is a status to choose, with how many tasks have it.
type facet struct {
	Status taskstate.Status
	Count  string // empty: not known to this person
	Chosen bool
	Link   string // to the list of tasks with it, or without it when it is chosen
}

// wordFacet is a word of a filter expression to choose, with how many tasks it finds.
type wordFacet struct {
	Name   string
	Count  string // empty: not known
	Chosen bool
	Link   string
}

// countsOf are the counts of all tasks; nil: they are not for who looks.
func countsOf(stats *wire.Stats) map[taskstate.Status]int64 {
	if stats == nil {
		return nil
	}
	return stats.Counts
}

// facets are the statuses. They are a parameter of their own; beside an expression, which takes no other filter, they are a word of it.
func (p *page) facets(counts map[taskstate.Status]int64) []facet {
	words := expression(p.Param("filter"))
	chosen := strings.Split(p.Param("status"), ",")
	var out []facet
	for _, s := range statuses() {
		f := facet{Status: s}
		if counts != nil {
			f.Count = strconv.FormatInt(counts[s], 10)
		}
		if len(words) > 0 {
			rest, has := words.toggled("status", string(s))
			f.Chosen, f.Link = has, p.filtered(rest)
		} else {
			f.Chosen = slices.Contains(chosen, string(s))
			f.Link = p.With("status", map[bool]string{false: string(s)}[f.Chosen])
		}
		out = append(out, f)
	}
	return out
}

// baseFacets are the knowledge bases with how many tasks of the chosen statuses they have, the most first. An operator sees bases of many
// people that may have one name, so that a click names the base by its id.
func (p *page) baseFacets(bases []wire.BaseTasks) (out []wordFacet) {
	words, counted, order := p.words(), p.chosenStatuses(), map[string]int64{}
	for _, b := range bases {
		value := b.Name
		if p.Who.Operator() {
			value = b.KnowledgeBaseID
		}
		rest, has := words.toggled("kb", value)
		f := wordFacet{Name: b.Name, Chosen: has || p.Param("knowledgeBase") == b.KnowledgeBaseID, Link: p.filtered(rest)}
		var tasks int64
		for s, n := range b.Counts {
			if len(counted) == 0 || slices.Contains(counted, string(s)) {
				tasks += n
			}
		}
		f.Count = strconv.FormatInt(tasks, 10)
		out, order[f.Link] = append(out, f), tasks
	}
	slices.SortStableFunc(out, func(a, b wordFacet) int { return cmp.Compare(order[b.Link], order[a.Link]) })
	return out
}

// stageFacets are the stages at which tasks run. Where no status is chosen a click chooses RUNNING too: a task that has failed keeps its
// stage, and is not counted here.
func (p *page) stageFacets(stages map[taskstate.Stage]int64) (out []wordFacet) {
	words := p.words()
	names := slices.Sorted(maps.Keys(stages))
	for _, w := range words { // what is chosen can be taken back when no task is there any more
		if w.name == "stage" && !slices.Contains(names, taskstate.Stage(w.value)) {
			names = append(names, taskstate.Stage(w.value))
		}
	}
	for _, stage := range names {
		rest, has := words.toggled("stage", string(stage))
		f := wordFacet{Name: string(stage), Chosen: has}
		if chosen := p.chosenStatuses(); len(chosen) == 0 || slices.Contains(chosen, string(taskstate.StatusRunning)) {
			f.Count = strconv.FormatInt(stages[stage], 10)
		}
		if len(p.chosenStatuses()) == 0 && !has {
			rest, _ = rest.toggled("status", string(taskstate.StatusRunning))
		}
		f.Link = p.filtered(rest)
		out = append(out, f)
	}
	return out
}

// chosenStatuses are those that the address names; empty: all.
func (p *page) chosenStatuses() (out []string) {
	for _, w := range p.words() {
		if w.name == "status" {
			out = append(out, strings.Split(strings.ToUpper(w.value), ",")...)
		}
	}
	return out
}

// filtered is the list of tasks with this expression in place of all other filters.
func (p *page) filtered(ws words) string {
	return p.With("filter", ws.String(), "status", "", "knowledgeBase", "", "stage", "", "q", "", "documentId", "")
}

// words are all filters of the address as one expression.
func (p *page) words() words {
	out := expression(p.Param("filter"))
	for _, c := range []struct{ param, name string }{{"status", "status"}, {"knowledgeBase", "kb"}, {"stage", "stage"}, {"documentId", "doc"}} {
		if v := p.Param(c.param); v != "" {
			out = append(out, word{name: c.name, value: v, raw: c.name + ":" + asValue(v)})
		}
	}
	if q := strings.TrimSpace(p.Param("q")); q != "" {
		out = append(out, word{raw: filter.Quote(q)})
	}
	return out
}

// word is one condition of a filter expression as it stands there. name and value are those of a condition with a colon; of another they
// are empty.
type word struct{ name, value, raw string }

type words []word

// String is the expression.
func (ws words) String() string {
	raw := make([]string, len(ws))
	for i, w := range ws {
		raw[i] = w.raw
	}
	return strings.Join(raw, " ")
}

// toggled is the expression with name:value in place of another value of that name, or without it when it has it.
func (ws words) toggled(name, value string) (out words, has bool) {
	for _, w := range ws {
		if w.name != name {
			out = append(out, w)
		} else if strings.EqualFold(w.value, value) {
			has = true
		}
	}
	if !has {
		out = append(out, word{name, value, name + ":" + asValue(value)})
	}
	return out, has
}

// asValue is a value as it stands in an expression.
func asValue(v string) string {
	if strings.ContainsFunc(v, unicode.IsSpace) || strings.ContainsAny(v, `"\\`) {
		return filter.Quote(v)
	}
	return v
}

// expression splits a filter expression at its blanks, as contract §4 says: a value in quotation marks is one. Whether it is valid is
// the API's to say.
func expression(text string) (out words) {
	runes := []rune(strings.TrimSpace(text))
	for at := 0; at < len(runes); {
		for at < len(runes) && unicode.IsSpace(runes[at]) {
			at++
		}
		begin, inside := at, false
		var value strings.Builder
		colon := -1
		for ; at < len(runes) && (inside || !unicode.IsSpace(runes[at])); at++ {
			r := runes[at]
			switch {
			case r == '"':
				inside = !inside
			case inside && r == '\\' && at+1 < len(runes):
				at++
				value.WriteRune(runes[at])
			case !inside && r == ':' && colon < 0:
				colon = at
				value.Reset()
			default:
				value.WriteRune(r)
			}
		}
		w := word{raw: string(runes[begin:at])}
		if colon > begin && !strings.ContainsFunc(string(runes[begin:colon]), func(r rune) bool { return r < 'a' || r > 'z' }) {
			w.name, w.value = string(runes[begin:colon]), value.String()
		}
		if w.raw != "" {
			out = append(out, w)
		}
	}
	return out
}
