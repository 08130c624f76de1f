package fsck

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"github.com/millweir/millweir/pkg/taskstate"
)

// The states of a version (design D8).
const (
	building   = "BUILDING"
	visible    = "VISIBLE"
	superseded = "SUPERSEDED"
)

const documentPage = 200

// digest is the content of a version: its segments with their places and text hashes.
type digest struct{ version, sum string }

// readDocuments judges documents page by page, with their versions and segments.
func (c *checker) readDocuments(ctx context.Context) error {
	digests := map[string]digest{} // by file, extractor and splitter
	for after := ""; ; {
		page, err := c.documents(ctx, c.q.Get("Documents"), after, documentPage)
		if err != nil {
			return err
		}
		if len(page) == 0 {
			break
		}
		after = page[len(page)-1].id
		ids := make([]string, len(page))
		for i, d := range page {
			ids[i] = d.id
		}
		versions, err := c.versionsOf(ctx, ids)
		if err != nil {
			return err
		}
		for _, d := range page {
			if err := c.document(ctx, d, versions[d.id], digests, true); err != nil {
				return fmt.Errorf("document %s: %w", d.id, err)
			}
		}
		if err := c.presentAll(ctx); err != nil {
			return err
		}
	}
	c.judgeStrangers()
	return nil
}

// document judges one. The first look may be at rows of two moments; what seems wrong is read again in one statement each
// and judged only if nothing has moved meanwhile.
func (c *checker) document(ctx context.Context, d documentRow, vs []versionRow, digests map[string]digest, first bool) error {
	c.client.saw(d.id)
	problems := c.shape(d, vs)
	if len(problems) > 0 && first {
		again, err := c.documents(ctx, c.q.List("DocumentsByID", 1), d.id)
		if err != nil || len(again) == 0 {
			return err
		}
		versions, err := c.versionsOf(ctx, []string{d.id})
		if err != nil {
			return err
		}
		return c.document(ctx, again[0], versions[d.id], digests, len(problems) > 0 && !again[0].updated.Equal(d.updated.Time))
	}
	for _, p := range problems {
		c.bad(p.rule, d.id, "%s", p.text)
	}
	c.suspect(d, problems)
	if d.deleted {
		return c.tombstone(ctx, d)
	}
	c.judged("I12")
	c.judged("I23")
	c.judged("I30")
	c.client.document(c, d, vs)
	for _, v := range vs {
		switch v.state {
		case visible:
			c.judged("I24")
			if err := c.whole(ctx, d, v, vs, digests); err != nil {
				return err
			}
		case superseded:
			c.judged("I24")
		}
	}
	return nil
}

// flaw is something wrong with a document's rows.
type flaw struct{ rule, text string }

// shape judges a document's row against its versions: I23 and I24, and what it holds: I12 and I30.
func (c *checker) shape(d documentRow, vs []versionRow) []flaw {
	out := holdings(d, vs)
	add := func(rule, format string, args ...any) { out = append(out, flaw{rule, fmt.Sprintf(format, args...)}) }
	shown, once, last := 0, false, versionRow{}
	for _, v := range vs {
		switch {
		case v.state == visible:
			shown++
			once, last = true, v
			if v.taskStatus != taskstate.StatusSucceeded {
				add("I23", "version %s is visible and its task %s is %s", v.id, v.task, v.taskStatus)
			}
			if d.visible != v.id || d.visibleNo != v.no {
				add("I23", "version %s (no %d) is visible, the document names %q (no %d)", v.id, v.no, d.visible, d.visibleNo)
			}
		case v.state == superseded:
			once = true
			if d.visibleNo > 0 && v.no > d.visibleNo {
				add("I23", "version %d was visible, and now the older %d is", v.no, d.visibleNo)
			}
		case v.state == building && v.taskStatus.Terminal():
			add("I23", "version %s is BUILDING and its task %s is %s", v.id, v.task, v.taskStatus)
		}
	}
	switch {
	case shown > 1:
		add("I23", "%d versions are visible", shown)
	case d.deleted && (shown > 0 || d.visible != ""):
		add("I29", "it is deleted and version %s is visible", d.visible)
	case !d.deleted && once && shown == 0:
		add("I24", "it had a visible version, was not deleted, and has none")
	case !d.deleted && shown == 0 && d.visible != "":
		add("I23", "it names visible version %q, which is not", d.visible)
	case !d.deleted && (d.status == "READY") != (shown == 1):
		add("I24", "its status is %s with %d visible versions", d.status, shown)
	}
	if shown == 1 && !d.deleted && d.segments != last.segments {
		add("I25", "it counts %d segments, its visible version %d", d.segments, last.segments)
	}
	return out
}

// whole judges a visible version's segments: I25, I26, I27; its vectors are asked for with those of others.
func (c *checker) whole(ctx context.Context, d documentRow, v versionRow, vs []versionRow, digests map[string]digest) error {
	rows, err := c.segmentsOf(ctx, v.id)
	if err != nil {
		return err
	}
	flaws, sum := segmentFlaws(v, vs, rows)
	other, again := digests[contentKey(v)]
	differs := again && other.sum != sum
	if len(flaws) > 0 || differs {
		if moved, err := c.moved(ctx, d); err != nil || moved {
			return err // another version is visible by now: the next look judges that one
		}
	}
	if err := c.texts(ctx, d, v); err != nil {
		return err
	}
	c.judged("I25")
	c.tally.Judged("I26", int64(len(rows)))
	for _, f := range flaws {
		c.bad(f.rule, d.id, "%s", f.text)
	}
	if v.sha != "" { // else its file is gone: a later upload is visible
		if !again {
			digests[contentKey(v)] = digest{v.id, sum}
		} else {
			c.verdict(!differs, "I27", d.id, "versions %s and %s were made of the same bytes (%s) with the same settings and differ", other.version, v.id, v.sha)
		}
	}
	return c.want(ctx, d, v, rows)
}

// texts is the part of I25 that reads the segments' texts: each has the SHA-256 that its vector was made for.
func (c *checker) texts(ctx context.Context, d documentRow, v versionRow) error {
	var flaws []string
	err := c.each(ctx, c.q.Get("SegmentContents"), []any{v.id}, func(scan func(...any) error) error {
		var index int
		var want, text string
		if err := scan(&index, &want, &text); err != nil {
			return err
		}
		if got := sha256.Sum256([]byte(text)); hex.EncodeToString(got[:]) != want {
			flaws = append(flaws, fmt.Sprintf("version %s: the text of segment %d has SHA-256 %x, its row says %s", v.id, index, got, want))
		}
		return nil
	})
	if err != nil || len(flaws) == 0 {
		return err
	}
	if moved, err := c.moved(ctx, d); err != nil || moved {
		return err
	}
	for _, text := range flaws {
		c.bad("I25", d.id, "%s", text)
	}
	c.keep(Lost{Document: d.id, Reason: fmt.Sprintf("the text of %d segments is not what was extracted; upload it again with force", len(flaws))})
	return nil
}

// segmentFlaws judges a version's segments and returns the digest of its content.
func segmentFlaws(v versionRow, vs []versionRow, rows []segmentRow) (out []flaw, sum string) {
	add := func(rule, format string, args ...any) { out = append(out, flaw{rule, fmt.Sprintf(format, args...)}) }
	if len(rows) == 0 || len(rows) != v.segments {
		add("I25", "version %s has %d segments, its row says %d", v.id, len(rows), v.segments)
	}
	births := map[string]int64{}
	for _, one := range vs {
		births[one.id] = one.no
	}
	content, seen := sha256.New(), map[string]bool{}
	for i, s := range rows {
		if s.index != i {
			add("I25", "version %s: segment %d stands at place %d", v.id, s.index, i)
		}
		if seen[s.vector] {
			add("I25", "version %s: two segments share vector %s", v.id, s.vector)
		}
		seen[s.vector] = true
		if no, known := births[s.birth]; !known || no > v.no {
			add("I26", "version %s: segment %d was born in version %s, which is no earlier one of the document", v.id, i, s.birth)
		}
		_, _ = fmt.Fprintf(content, "%d %s %d %s %d %d %d\n", s.index, s.hash, s.page, s.path, s.start, s.end, s.tokens)
	}
	return out, hex.EncodeToString(content.Sum(nil))
}

// contentKey is what a version's content must depend on alone.
func contentKey(v versionRow) string { return v.sha + " " + v.extractor + " " + v.splitter }

// moved reports whether the document shows another version by now.
func (c *checker) moved(ctx context.Context, d documentRow) (bool, error) {
	again, err := c.documents(ctx, c.q.List("DocumentsByID", 1), d.id)
	return err == nil && (len(again) == 0 || again[0].visible != d.visible || again[0].deleted != d.deleted), err
}

// tombstone is I29 by rows: the first pass of the sweep removes the segments of a deleted document and ends its tasks.
func (c *checker) tombstone(ctx context.Context, d documentRow) error {
	c.judged("I29")
	if d.pass == 0 {
		return nil // the sweep has not passed yet
	}
	for query, what := range map[string]string{"RowsLeft": "segments", "OpenTasksOf": "open tasks"} {
		n := 0
		if err := c.db.QueryRowContext(ctx, c.q.Get(query), d.id).Scan(&n); err != nil {
			return err
		}
		if n > 0 {
			c.bad("I29", d.id, "it was deleted, the sweep passed %d times, and %d %s are left", d.pass, n, what)
		}
	}
	return nil
}
