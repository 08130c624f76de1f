package fsck

import "fmt"

// holdings judges what a living document holds: the stored files of its versions have rows (I12), its bytes are those of
// its newest upload (I12), and it, its base, its tasks and its files are one user's (I30).
func holdings(d documentRow, vs []versionRow) (out []flaw) {
	if d.deleted {
		return nil
	}
	add := func(rule, format string, args ...any) { out = append(out, flaw{rule, fmt.Sprintf(format, args...)}) }
	if d.baseUser != "" && d.baseUser != d.user {
		add("I30", "it is the document of user %q, its base that of user %q", d.user, d.baseUser)
	}
	tasks := map[string]bool{}
	for _, v := range vs {
		if v.taskUser != "" && v.taskUser != d.user && !tasks[v.task] {
			tasks[v.task] = true
			add("I30", "it is the document of user %q, its task %s that of user %q", d.user, v.task, v.taskUser)
		}
		if v.fileUser != "" && v.fileUser != d.user {
			add("I30", "it is the document of user %q, version %s has a file of user %q", d.user, v.id, v.fileUser)
		}
		switch {
		case v.fileID != "" && v.file == "":
			add("I12", "version %s is of stored file %s, which has no row", v.id, v.fileID)
		case v.fileID == "" && v.state == visible:
			add("I12", "version %s is visible and names no stored file", v.id)
		}
		if v.upload == d.lastUpload && v.sha != "" && v.sha != d.sha {
			add("I12", "its row has SHA-256 %s, the stored file of its newest upload %s", d.sha, v.sha)
		}
	}
	if d.same != "" && d.same != d.sha {
		add("I12", "its row has SHA-256 %s and is found by %s", d.sha, d.same)
	}
	return out
}

// Suspect is a document whose row, or whose files' rows, are not what they were.
type Suspect struct {
	Document string
	Flaws    int64 // violations that are its
}

// Lost is what a repair cannot make again, with the way to it.
type Lost struct{ Document, Reason string }

// suspect keeps a document for Repair when its holdings are wrong.
func (c *checker) suspect(d documentRow, problems []flaw) {
	s := Suspect{Document: d.id}
	for _, p := range problems {
		if p.rule == "I12" || p.rule == "I30" {
			s.Flaws++
		}
	}
	if s.Flaws > 0 && len(c.suspects) < keptFindings {
		c.suspects = append(c.suspects, s)
	}
}

// keep notes what a repair cannot mend.
func (c *checker) keep(l Lost) {
	if len(c.lost) < keptFindings {
		c.lost = append(c.lost, l)
	}
}
