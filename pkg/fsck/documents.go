package fsck

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/sqldb"
	"github.com/millweir/millweir/pkg/taskstate"
)

// The states of a version (design D8).
const (
	building   = "BUILDING"
	visible    = "VISIBLE"
	superseded = "SUPERSEDED"
)

// documentRow is a document as its own row has it.
type documentRow struct {
	id, user, base, status, visible, sha string
	same                                 string // the bytes that it is found by; empty: another document is
	baseUser, latest                     string // whose base it is in, and the task of its newest upload
	visibleNo, lastUpload                int64
	segments, pass                       int
	deleted                              bool
	updated                              taskstate.DBTime
	message                              message // whose attachment it is
}

// message is the document that another one is an attachment of; of one without a row nothing but the id is known.
type message struct {
	id, user, base string
	deleted        bool
	pass           int
}

// scanDocument reads the columns of Documents.
func scanDocument(rows *sql.Rows) (d documentRow, err error) {
	err = rows.Scan(&d.id, &d.user, &d.base, &d.status, &d.visible, &d.visibleNo, &d.segments, &d.sha, &d.same, &d.lastUpload,
		&d.deleted, &d.pass, &d.updated, &d.baseUser, &d.latest, &d.message.id, &d.message.user, &d.message.base, &d.message.deleted, &d.message.pass)
	d.message.id, d.message.base = strings.TrimSpace(d.message.id), strings.TrimSpace(d.message.base)
	return d, err
}

// versionRow is a version with the state of its task and its file.
type versionRow struct {
	id, document, base, task, state string
	model, extractor, splitter      string // model: of the base, whose vectors a visible version has
	collection                      string // that the base's vectors lie in
	taskStatus                      taskstate.Status
	file, sha                       string // of the stored file's row; empty: there is none
	fileID                          string // that the version names; empty: none
	taskUser, fileUser              string // empty: there is no row
	no, upload                      int64
	dim, segments, pass             int
	created, updated, closed        taskstate.DBTime
	metadata                        ingest.Metadata    // of a visible version
	pairs                           map[string]pairRow // by which filters find a visible version, by key
}

// pairRow is a key of a version's metadata as its row has it.
type pairRow struct{ value, document, base string }

// versionsOf reads the versions of documents, by document, in the order of their numbers.
func (c *checker) versionsOf(ctx context.Context, documents ...string) (map[string][]versionRow, error) {
	out := map[string][]versionRow{}
	pairs := map[string]map[string]pairRow{} // of visible versions
	err := c.each(ctx, func(rows *sql.Rows) error {
		var v versionRow
		err := rows.Scan(&v.id, &v.document, &v.base, &v.task, &v.no, &v.state, &v.model, &v.dim, &v.collection, &v.extractor, &v.splitter, &v.segments,
			&v.created, &v.updated, &v.closed, &v.pass, &v.taskStatus, &v.file, &v.sha,
			&v.fileID, &v.upload, &v.taskUser, &v.fileUser, &v.metadata)
		v.fileID, v.collection = strings.TrimSpace(v.fileID), strings.TrimSpace(v.collection)
		if v.state == visible {
			v.pairs = map[string]pairRow{}
			pairs[v.id] = v.pairs
		}
		out[v.document] = append(out[v.document], v)
		return err
	}, c.q.List("VersionsOf", len(documents)), sqldb.Args(documents)...)
	if err != nil || len(pairs) == 0 {
		return out, err
	}
	return out, c.each(ctx, func(rows *sql.Rows) error {
		var version, key string
		var p pairRow
		err := rows.Scan(&version, &key, &p.value, &p.document, &p.base)
		pairs[version][key] = p
		return err
	}, c.q.List("MetadataOf", len(pairs)), sqldb.Args(slices.Collect(maps.Keys(pairs)))...)
}

// look reads a document with its versions; an empty one when it is gone.
func (c *checker) look(ctx context.Context, id string) (documentRow, []versionRow, error) {
	found, err := sqldb.Collect(ctx, c.db, scanDocument, c.q.List("DocumentsByID", 1), id)
	if err != nil || len(found) == 0 {
		return documentRow{}, nil, err
	}
	versions, err := c.versionsOf(ctx, id)
	return found[0], versions[id], err
}

// segmentRow is a piece of a version, with the hash of its text instead of the text.
type segmentRow struct {
	index                           int
	hash, vector, birth, path, text string
	page, tokens                    int
	start, end                      int64
}

// scanSegment reads the columns of SegmentsOf.
func scanSegment(rows *sql.Rows) (s segmentRow, err error) {
	var text string
	err = rows.Scan(&s.index, &s.hash, &s.vector, &s.birth, &s.page, &s.path, &s.start, &s.end, &s.tokens, &text)
	sum := sha256.Sum256([]byte(text))
	s.text = hex.EncodeToString(sum[:])
	return s, err
}

// digest is the content of a version: its segments with their places and text hashes.
type digest struct{ version, sum string }

// readDocuments judges documents page by page, with their versions and segments.
func (c *checker) readDocuments(ctx context.Context) error {
	digests := map[string]digest{} // by file, extractor and splitter
	err := pages(ctx, c, "Documents", scanDocument, func(d documentRow) string { return d.id }, func(ctx context.Context, page []documentRow) error {
		ids := make([]string, len(page))
		for i, d := range page {
			ids[i] = d.id
		}
		versions, err := c.versionsOf(ctx, ids...)
		if err != nil {
			return err
		}
		for _, d := range page {
			if err := c.document(ctx, d, versions[d.id], digests); err != nil {
				return fmt.Errorf("document %s: %w", d.id, err)
			}
		}
		return c.presentAll(ctx)
	})
	c.judgeStrangers()
	return err
}

// document judges one. The first look may be at rows of two moments; what seems wrong is read again in one statement each
// and judged only if nothing has moved meanwhile.
func (c *checker) document(ctx context.Context, d documentRow, vs []versionRow, digests map[string]digest) error {
	c.client.saw(d.id)
	problems := shape(d, vs)
	for moved := true; len(problems) > 0 && moved; problems = shape(d, vs) {
		was := d.updated
		var err error
		if d, vs, err = c.look(ctx, d.id); err != nil || d.id == "" {
			return err
		}
		moved = !d.updated.Equal(was.Time)
	}
	for _, p := range problems {
		c.bad(p.rule, d.id, "%s", p.text)
	}
	if len(problems) > 0 {
		c.suspect(d, vs)
	}
	if d.deleted {
		return c.tombstone(ctx, d)
	}
	c.judged("I12")
	c.judged("I23")
	c.judged("I30")
	if d.message.id != "" {
		c.judged("I43")
	}
	c.client.document(c, d, vs)
	for _, v := range vs {
		if v.state == visible || v.state == superseded {
			c.judged("I24")
		}
		if v.state == visible {
			if err := c.whole(ctx, d, v, vs, digests); err != nil {
				return err
			}
		}
	}
	return nil
}

// flaw is something wrong with a document's rows.
type flaw struct{ rule, text string }

// flaws are all that is wrong.
type flaws []flaw

func (f *flaws) add(rule, format string, args ...any) {
	*f = append(*f, flaw{rule, fmt.Sprintf(format, args...)})
}

// shape judges a document's row against its versions: I23 and I24, what it holds: I12, I25 and I30, and its message: I43.
func shape(d documentRow, vs []versionRow) flaws {
	out := append(holdings(d, vs), attached(d)...)
	shown, once, last := 0, false, versionRow{}
	for _, v := range vs {
		switch {
		case v.state == visible:
			shown++
			once, last = true, v
			if v.taskStatus != taskstate.StatusSucceeded {
				out.add("I23", "version %s is visible and its task %s is %s", v.id, v.task, v.taskStatus)
			}
			if d.visible != v.id || d.visibleNo != v.no {
				out.add("I23", "version %s (no %d) is visible, the document names %q (no %d)", v.id, v.no, d.visible, d.visibleNo)
			}
		case v.state == superseded:
			once = true
			if d.visibleNo > 0 && v.no > d.visibleNo {
				out.add("I23", "version %d was visible, and now the older %d is", v.no, d.visibleNo)
			}
		case v.state == building && v.taskStatus.Terminal():
			out.add("I23", "version %s is BUILDING and its task %s is %s", v.id, v.task, v.taskStatus)
		}
	}
	switch {
	case shown > 1:
		out.add("I23", "%d versions are visible", shown)
	case d.deleted && (shown > 0 || d.visible != ""):
		out.add("I29", "it is deleted and version %s is visible", d.visible)
	case d.deleted:
	case once && shown == 0:
		out.add("I24", "it had a visible version, was not deleted, and has none")
	case shown == 0 && d.visible != "":
		out.add("I23", "it names visible version %q, which is not", d.visible)
	case (d.status == "READY") != (shown == 1):
		out.add("I24", "its status is %s with %d visible versions", d.status, shown)
	}
	if shown == 1 && !d.deleted && d.segments != last.segments {
		out.add("I25", "it counts %d segments, its visible version %d", d.segments, last.segments)
	}
	return out
}

// holdings judges what a living document holds: the stored files of its versions have rows (I12), its bytes are those of
// its newest upload (I12), it, its base, its tasks and its files are one user's (I30), and filters find it by the metadata
// that its visible version has (I25).
func holdings(d documentRow, vs []versionRow) (out flaws) {
	if d.deleted {
		return nil
	}
	if d.baseUser != "" && d.baseUser != d.user {
		out.add("I30", "it is the document of user %q, its base that of user %q", d.user, d.baseUser)
	}
	tasks := map[string]bool{}
	for _, v := range vs {
		if v.taskUser != "" && v.taskUser != d.user && !tasks[v.task] {
			tasks[v.task] = true
			out.add("I30", "it is the document of user %q, its task %s that of user %q", d.user, v.task, v.taskUser)
		}
		if v.fileUser != "" && v.fileUser != d.user {
			out.add("I30", "it is the document of user %q, version %s has a file of user %q", d.user, v.id, v.fileUser)
		}
		switch {
		case v.fileID != "" && v.file == "":
			out.add("I12", "version %s is of stored file %s, which has no row", v.id, v.fileID)
		case v.fileID == "" && v.state == visible:
			out.add("I12", "version %s is visible and names no stored file", v.id)
		}
		if v.upload == d.lastUpload && v.sha != "" && v.sha != d.sha {
			out.add("I12", "its row has SHA-256 %s, the stored file of its newest upload %s", d.sha, v.sha)
		}
		if v.state == visible {
			out = append(out, metadataFlaws(v)...)
		}
	}
	if d.same != "" && d.same != d.sha {
		out.add("I12", "its row has SHA-256 %s and is found by %s", d.sha, d.same)
	}
	return out
}

// attached judges a living attachment against its message: the first pass of the sweep over a deleted one deletes it.
func attached(d documentRow) (out flaws) {
	switch m := d.message; {
	case d.deleted || m.id == "":
	case m.user == "":
		out.add("I43", "it is an attachment of document %s, which is gone", m.id)
	case m.deleted && m.pass > 0:
		out.add("I43", "it is an attachment of document %s, which is deleted and was swept %d times", m.id, m.pass)
	case m.user != d.user || m.base != d.base:
		out.add("I43", "it is in knowledge base %s of user %q, its message %s in %s of user %q", d.base, d.user, m.id, m.base, m.user)
	}
	return out
}

// metadataFlaws compares the rows by which filters find a visible version with its metadata.
func metadataFlaws(v versionRow) (out flaws) {
	if !v.said() {
		out.add("I25", "the metadata of version %s cannot be read", v.id)
		return out
	}
	extra := maps.Clone(v.pairs)
	for _, pair := range v.metadata.Pairs() {
		switch row, there := v.pairs[pair[0]]; {
		case !there:
			out.add("I25", "version %s has metadata %q without its row", v.id, pair[0])
		case row != pairRow{pair[1], v.document, v.base}:
			out.add("I25", "version %s has metadata %q with another row", v.id, pair[0])
		}
		delete(extra, pair[0])
	}
	for _, key := range slices.Sorted(maps.Keys(extra)) {
		out.add("I25", "version %s has a row of metadata %q, which it has not", v.id, key)
	}
	return out
}

// said reports whether a version's metadata can be read.
func (v versionRow) said() bool {
	_, err := ingest.ParseMetadata("metadata", string(v.metadata))
	return err == nil
}

// suspect keeps a document for Repair when its holdings are wrong.
func (c *checker) suspect(d documentRow, vs []versionRow) {
	if n := len(holdings(d, vs)); n > 0 {
		keep(&c.Suspects, Suspect{Document: d.id, Flaws: int64(n)})
	}
}

// whole judges a visible version's segments: I25, I26, I27; its vectors are asked for with those of others.
func (c *checker) whole(ctx context.Context, d documentRow, v versionRow, vs []versionRow, digests map[string]digest) error {
	rows, err := sqldb.Collect(ctx, c.db, scanSegment, c.q.Get("SegmentsOf"), v.id)
	if err != nil {
		return err
	}
	found, altered, sum := segmentFlaws(v, vs, rows)
	content := v.sha + " " + v.extractor + " " + v.splitter // what its segments must depend on alone
	other, again := digests[content]
	differs := again && other.sum != sum
	if len(found) > 0 || differs {
		if moved, err := c.moved(ctx, d); err != nil || moved {
			return err // another version is visible by now: the next look judges that one
		}
	}
	c.judged("I25")
	c.tally.Judged("I26", int64(len(rows)))
	for _, f := range found {
		c.bad(f.rule, d.id, "%s", f.text)
	}
	if altered > 0 {
		keep(&c.Lost, Lost{Document: d.id, Reason: fmt.Sprintf("the text of %d segments is not what was extracted; upload it again with force", altered)})
	}
	if v.sha != "" { // else its file is gone: a later upload is visible
		if !again {
			digests[content] = digest{v.id, sum}
		} else {
			c.verdict(!differs, "I27", d.id, "versions %s and %s were made of the same bytes (%s) with the same settings and differ", other.version, v.id, v.sha)
		}
	}
	return c.want(ctx, d, v, rows)
}

// segmentFlaws judges a version's segments, counts those whose text is not the one that its vector was made for, and returns
// the digest of their content.
func segmentFlaws(v versionRow, vs []versionRow, rows []segmentRow) (out flaws, altered int, sum string) {
	if len(rows) == 0 || len(rows) != v.segments {
		out.add("I25", "version %s has %d segments, its row says %d", v.id, len(rows), v.segments)
	}
	births := map[string]int64{}
	for _, one := range vs {
		births[one.id] = one.no
	}
	content, seen := sha256.New(), map[string]bool{}
	for i, s := range rows {
		if s.index != i {
			out.add("I25", "version %s: segment %d stands at place %d", v.id, s.index, i)
		}
		if s.text != s.hash {
			out.add("I25", "version %s: the text of segment %d has SHA-256 %s, its row says %s", v.id, s.index, s.text, s.hash)
			altered++
		}
		if seen[s.vector] {
			out.add("I25", "version %s: two segments share vector %s", v.id, s.vector)
		}
		seen[s.vector] = true
		if no, known := births[s.birth]; !known || no > v.no {
			out.add("I26", "version %s: segment %d was born in version %s, which is no earlier one of the document", v.id, i, s.birth)
		}
		_, _ = fmt.Fprintf(content, "%d %s %d %s %d %d %d\n", s.index, s.hash, s.page, s.path, s.start, s.end, s.tokens)
	}
	return out, altered, hex.EncodeToString(content.Sum(nil))
}

// moved reports whether the document shows another version by now.
func (c *checker) moved(ctx context.Context, d documentRow) (bool, error) {
	again, _, err := c.look(ctx, d.id)
	return err == nil && (again.visible != d.visible || again.deleted != d.deleted || again.id == ""), err
}

// tombstone is I29 by rows: the first pass of the sweep removes the segments of a deleted document and ends its tasks.
func (c *checker) tombstone(ctx context.Context, d documentRow) error {
	c.judged("I29")
	if d.pass == 0 {
		return nil // the sweep has not passed yet
	}
	for query, what := range map[string]string{"RowsLeft": "segments", "OpenTasksOf": "open tasks"} {
		n, err := c.count(ctx, query, d.id)
		if err != nil {
			return err
		}
		if n > 0 {
			c.bad("I29", d.id, "it was deleted, the sweep passed %d times, and %d %s are left", d.pass, n, what)
		}
	}
	return nil
}

// judgeReceipts is I44. Receipts, and the documents that they are of, are read by one statement.
func (c *checker) judgeReceipts(ctx context.Context) error {
	return c.each(ctx, func(rows *sql.Rows) error {
		var what, id string
		var all int64
		if err := rows.Scan(&what, &id, &all); err != nil {
			return err
		}
		switch id = strings.TrimSpace(id); what {
		case "none":
			c.verdict(false, "I44", id, "it is deleted and has no receipt")
		case "left":
			c.verdict(false, "I44", id, "its receipt says that it was removed, and rows of it are left")
		case "unsaid":
			c.verdict(false, "I44", id, "its receipt does not say that it was removed, and it is no deleted document")
		case "order":
			c.verdict(false, "I44", id, "the times of its receipt are not in the order of deletion, removal and verification")
		default:
			c.tally.Judged("I44", all)
		}
		return nil
	}, c.q.Get("Receipts"))
}
