package console

import (
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/millweir/millweir/pkg/wire"
)

type deadLettersData struct {
	List    wire.List[wire.DeadLetter]
	Stats   wire.DeadLetterStats
	Missing string // why there is none here
	Result  string // what became of many; empty: nothing was asked
	Skipped map[string]int
}

func (h *Handler) deadLetters(p *page) error {
	return p.showDeadLetters(deadLettersData{}, "source", "task", "error")
}

// showDeadLetters shows the dead letters that fit these parameters of the address.
func (p *page) showDeadLetters(d deadLettersData, params ...string) error {
	list, err := rows[wire.DeadLetter](p.limited(), "/internal/dlq", params...)
	if d.Missing = absent(err); d.Missing != "" {
		return p.show("deadletters", p.T("Dead letters"), d)
	}
	if err != nil {
		return err
	}
	d.List = list
	if err := p.get("/internal/dlq/stats", nil, &d.Stats); err != nil {
		return err
	}
	return p.show("deadletters", p.T("Dead letters"), d)
}

// deadLettersStep replays or drops all that fit the filter of the list, or says what that would do. The page itself says what it did.
func (h *Handler) deadLettersStep(p *page) error {
	p.Section = "deadletters"
	in := wire.DeadLetterBulk{Source: p.form.Get("source"), Task: p.form.Get("task"), Bulk: p.bulkOf(p.form.Get("error"))}
	in.All = in.Source+in.Task+in.Error == ""
	step := p.form.Get("step")
	if step != "replay" && step != "drop" {
		return noSuchStep()
	}
	var did wire.BulkResult
	if err := p.call(http.MethodPost, "/internal/dlq/"+step, nil, in, &did); err != nil {
		return err
	}
	return p.showDeadLetters(deadLettersData{Result: p.bulkDone(did), Skipped: did.Skipped})
}

func (h *Handler) deadLetterStep(p *page) error {
	path := under("/internal/dlq/letters", p.r.PathValue("id"))
	step := p.r.PathValue("step")
	var err error
	switch step {
	case "replay":
		err = p.call(http.MethodPost, path+"/replay", nil, nil, nil)
	case "drop":
		err = p.call(http.MethodDelete, path, p.because(), nil, nil)
	default:
		err = noSuchStep()
	}
	if err != nil {
		return err
	}
	return p.done(step, "/deadletters")
}

// bulkOf is what the forms for many dead letters have in common.
func (p *page) bulkOf(text string) wire.Bulk {
	return wire.Bulk{Error: text, Reason: strings.TrimSpace(p.form.Get("reason")), DryRun: p.form.Get("dryRun") != ""}
}

// because is the reason that a form gives, as a parameter.
func (p *page) because() url.Values {
	q := url.Values{}
	if why := strings.TrimSpace(p.form.Get("reason")); why != "" {
		q.Set("reason", why)
	}
	return q
}

// bulkDone says what became of many dead letters.
func (p *page) bulkDone(did wire.BulkResult) (text string) {
	switch {
	case did.Replayed != nil && did.DryRun:
		text = p.T("A dry run: %d dead letters would be replayed.", *did.Replayed)
	case did.Replayed != nil:
		text = p.T("%d dead letters were replayed.", *did.Replayed)
	case did.Dropped != nil && did.DryRun:
		text = p.T("A dry run: %d dead letters would be dropped.", *did.Dropped)
	case did.Dropped != nil:
		text = p.T("%d dead letters were dropped.", *did.Dropped)
	}
	if did.Failed > 0 {
		text += " " + p.T("%d failed: %s.", did.Failed, did.Error)
	}
	if did.HasMore {
		text += " " + p.T("There are more; do it again for the next ones.")
	}
	return text
}

// topicLettersData are dead letters of a topic.
type topicLettersData struct {
	Topic   string
	At      string // this list's path below Path
	Kind    string // of parameters: kind=stream, with a question mark before it; empty: a topic
	List    wire.List[wire.TopicDeadLetter]
	Result  string // what became of many; empty: nothing was asked
	Skipped map[string]int
}

// letterFilter are the parameters of a list of a topic's dead letters: those that the bulk form takes over.
func letterFilter() []string {
	return []string{"kind", "group", "partition", "key", "error", "unreplayed"}
}

// lettersOf is the API's path of the dead letters of the topic that the address names.
func (p *page) lettersOf() string { return under("/internal/dlq/topics", p.r.PathValue("topic")) }

// ofTopic is what the screens of a topic's dead letters know of it.
func (p *page) ofTopic() topicLettersData {
	p.Section = "queues"
	name := p.r.PathValue("topic")
	return topicLettersData{Topic: name, At: under("/queues", name, "letters"), Kind: suffix(p.query("kind"), nil)}
}

// Path is the address below Path of a step of one of these dead letters.
func (d topicLettersData) Path(id, step string) string { return under(d.At, id, step) + d.Kind }

func (h *Handler) topicLetters(p *page) error { return p.showTopicLetters(p.ofTopic()) }

// showTopicLetters shows the dead letters of a topic that fit the filter of the address.
func (p *page) showTopicLetters(d topicLettersData) (err error) {
	if d.List, err = rows[wire.TopicDeadLetter](p.limited(), p.lettersOf()+"/letters", letterFilter()...); err != nil {
		return err
	}
	return p.show("topicletters", p.T("Dead letters of %s", p.Clip(d.Topic, 80)), d)
}

// topicLettersStep replays or drops all that fit the filter of the address, or says what that would do. The page itself says what it did.
func (h *Handler) topicLettersStep(p *page) error {
	step := p.form.Get("step")
	if step != "replay" && step != "drop" {
		return noSuchStep()
	}
	in := wire.TopicDeadLetterBulk{Group: p.Param("group"), Key: p.Param("key"), Unreplayed: p.Param("unreplayed") != "", Bulk: p.bulkOf(p.Param("error"))}
	if text := p.Param("partition"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			return refuse(http.StatusUnprocessableEntity, "INVALID_FIELD", "partition is not a whole number")
		}
		in.Partition = &n
	}
	in.All = len(p.query(letterFilter()[1:]...)) == 0
	var did wire.BulkResult
	if err := p.call(http.MethodPost, p.lettersOf()+"/"+step, p.query("kind"), in, &did); err != nil {
		return err
	}
	d := p.ofTopic()
	d.Result, d.Skipped = p.bulkDone(did), did.Skipped
	return p.showTopicLetters(d)
}

// topicLetterData is one dead letter of a topic.
type topicLetterData struct {
	topicLettersData
	Letter wire.TopicDeadLetter
	JSON   string
}

func (h *Handler) topicLetter(p *page) (err error) {
	d := topicLetterData{topicLettersData: p.ofTopic()}
	path := under(p.lettersOf()+"/letters", p.r.PathValue("id"))
	if err = p.get(path, p.query("kind"), &d.Letter); err != nil {
		return err
	}
	if d.JSON, err = p.raw(path + d.Kind); err != nil {
		return err
	}
	return p.show("topicletter", p.T("Dead letter %s", p.Clip(d.Letter.ID, 40)), d)
}

func (h *Handler) topicLetterStep(p *page) error {
	path := under(p.lettersOf()+"/letters", p.r.PathValue("id"))
	q := p.query("kind")
	var err error
	switch step := p.r.PathValue("step"); step {
	case "replay":
		err = p.call(http.MethodPost, path+"/replay", q, nil, nil)
	case "drop":
		maps.Copy(q, p.because())
		err = p.call(http.MethodDelete, path, q, nil, nil)
	default:
		err = noSuchStep()
	}
	if err != nil {
		return err
	}
	return p.done(p.r.PathValue("step"), under("/queues", p.r.PathValue("topic"), "letters")+suffix(q, []any{"reason", ""}))
}
