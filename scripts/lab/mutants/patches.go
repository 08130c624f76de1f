package mutants

// patch puts a seeded bug into a file of the product: old stands there times times and becomes text.
// In Go seededBug("m1") tells whether this process has the bug; a line of SQL that the bug drops ends in "-- @unless m1".
type patch struct {
	file, old, text string
	times           int // 0: once
}

// unlessPatch lets the reader of .sql files drop the lines of a seeded bug.
var unlessPatch = patch{file: "pkg/sqldb/statements.go", old: "\t\tbody.WriteString(line)\n", text: `		if before, bug, ok := strings.Cut(line, "-- @unless "); ok {
			if seededBug(strings.TrimSpace(bug)) {
				continue
			}
			line = strings.TrimRight(before, " ") + "\n"
		}
		body.WriteString(line)
`}

// patches are the texts of each bug. When the product changes, write its new text here.
var patches = map[string][]patch{
	"m1": {
		{file: "pkg/taskstate/finish.go", old: "t.Fence == h.Token.Fence", text: `(t.Fence == h.Token.Fence || seededBug("m1"))`},
	},
	"m2": {
		{file: "pkg/taskstore/queries/mysql.sql", old: `
  AND t.fence = c.fence AND t.lease_owner = c.owner
`, text: `
  AND t.fence = c.fence AND t.lease_owner = c.owner -- @unless m2
`, times: 2},
		{file: "pkg/taskstore/queries/common.sql", old: `
  AND t.fence = c.fence AND t.lease_owner = c.owner
`, text: `
  AND t.fence = c.fence AND t.lease_owner = c.owner -- @unless m2
`},
		{file: "pkg/taskstore/queries/postgres.sql", old: `
  AND t.fence = c.fence AND t.lease_owner = c.owner
`, text: `
  AND t.fence = c.fence AND t.lease_owner = c.owner -- @unless m2
`},
		{file: "pkg/taskstore/queries/sqlite.sql", old: `
  AND t.fence = c.value ->> 'fence' AND t.lease_owner = c.value ->> 'owner'
`, text: `
  AND t.fence = c.value ->> 'fence' AND t.lease_owner = c.value ->> 'owner' -- @unless m2
`},
	},
	"m3": {
		{file: "pkg/taskstate/claim.go", old: "(t.LeaseExpiresAt().After(m.Now) || !r.Takeover)", text: `(t.LeaseExpiresAt().After(m.Now) && !seededBug("m3") || !r.Takeover)`},
	},
	"m4": {
		{file: "pkg/taskstore/batch.go", old: "\tif err == nil {\n\t\tb.store.rang(b.events)\n", text: `	if err == nil && len(b.changed) > 0 && seededBug("m4") {
		err = b.store.InTx(ctx, func(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock) error { return b.log(ctx, tx, m) })
	}
	if err == nil {
		b.store.rang(b.events)
`},
		{file: "pkg/taskstore/batch.go", old: "\tif err := b.log(ctx, tx, m); err != nil {\n", text: `	if seededBug("m4") {
		return true, nil
	}
	if err := b.log(ctx, tx, m); err != nil {
`},
	},
	"m5": {
		{file: "pkg/taskrun/finish.go", old: "\touts, err := r.commit(below(ctx, batch)", text: `	if seededBug("m5") {
		for _, o := range batch {
			_ = r.deps.Queue.Ack(ctx, o.h.Delivery)
		}
	}
	outs, err := r.commit(below(ctx, batch)`},
	},
	"m6": {
		{file: "pkg/taskrun/internal/delivery/effects.go", old: "\tif c.writeDeadLetters(ctx, e.deadLetters) == nil {", text: `	if seededBug("m6") {
		_ = c.ack(ctx, acksOf(e.deadLetters))
	}
	if c.writeDeadLetters(ctx, e.deadLetters) == nil {`},
	},
	"m8": {
		{file: "pkg/ingest/pipeline/finish.go", old: "\tcase c.N != f.segments ||", text: `	case seededBug("m8"):
	case c.N != f.segments ||`},
	},
	"m9": {
		{file: "pkg/ingest/pipeline/rowtx.go", old: `	for _, t := range going(wanted) {
		if err := x.look(ctx, t); err != nil {
`, text: `	if seededBug("m9") {
		for _, t := range wanted {
			if _, err := x.tx.ExecContext(ctx, x.a.q.List("VersionsSupersede", 1), x.m.Now, x.m.Now, x.m.Now, t.w.r.job.Task.DocumentID); err != nil {
				return err
			}
		}
	}
	for _, t := range going(wanted) {
		if err := x.look(ctx, t); err != nil {
`},
	},
	"m10": {
		{file: "pkg/taskstate/finish.go", old: "\tc := change(t, m).to(StatusQueued, ReasonHandedBack, h.Actor, message).queued()\n", text: `	c := change(t, m).to(StatusQueued, ReasonHandedBack, h.Actor, message).queued()
	if seededBug("m10") {
		c.AttemptCount++
	}
`},
	},
	"m11": {
		{file: "pkg/taskstate/operate.go", old: "\tc.AttemptCount, c.CrashCount, c.ThrottleCount = 0, 0, 0\n", text: `	if !seededBug("m11") {
		c.AttemptCount, c.CrashCount, c.ThrottleCount = 0, 0, 0
	}
`},
	},
	"m12": {
		{file: "pkg/ingestq/redisq/pending.go", old: "\tremoved, _, err := q.scripts.Trim(call, stream.Loaded().Trim, q.cfg.StreamKey, stream.Keep{Finished: true}, false)\n", text: `	removed, _, err := q.scripts.Trim(call, stream.Loaded().Trim, q.cfg.StreamKey, stream.Keep{Finished: true}, false)
	if seededBug("m12") {
		err = q.client.Do(call, q.client.B().Xtrim().Key(q.cfg.StreamKey).Maxlen().Threshold("1").Build()).Error()
	}
`},
	},
	"m14": {
		{file: "pkg/outbox/queries/common.sql", old: `
  AND lease IN (@tokens)
`, text: `
  AND lease IN (@tokens) -- @unless m14
`, times: 2},
	},
	"m15": {
		{file: "pkg/ingest/upload/receive.go", old: `	if err := crash.Fault("api.after_temp_write"); err != nil {
`, text: `	if seededBug("m15") {
		return nil
	}
	if err := crash.Fault("api.after_temp_write"); err != nil {
`},
	},
	"m16": {
		{file: "pkg/taskstore/batch.go", old: "\t\tchanges[n] = changed{before: &b.tasks[i], by: b.decisions[i].Change}\n", text: `		c := *b.decisions[i].Change
		if c.NextRetry.Kind == taskstate.DelayIn && seededBug("m16") {
			c.NextRetry.In += time.Since(m.Now)
		}
		changes[n] = changed{before: &b.tasks[i], by: &c}
`},
	},
	"m17": {
		{file: "pkg/tasks/submit.go", old: "\t\tfound[UserKey{t.UserID, t.IdempotencyKey}] = t\n", text: `		found[UserKey{t.UserID, t.IdempotencyKey}] = t
		if seededBug("m17") {
			found[UserKey{"", t.IdempotencyKey}] = t
		}
`},
		{file: "pkg/tasks/submit.go", old: `s.q.Any("TasksByKey", len(params)/2)`, text: `func() string {
		query := s.q.Any("TasksByKey", len(params)/2)
		if seededBug("m17") {
			query = strings.ReplaceAll(query, "user_id = ?", "(user_id = ? OR 1 = 1)")
		}
		return query
	}()`},
		{file: "pkg/ingest/upload/find.go", old: "found[tasks.UserKey{User: w.c.Scope.UserID, Key: w.u.IdempotencyKey}]\n", text: `found[tasks.UserKey{User: w.c.Scope.UserID, Key: w.u.IdempotencyKey}]
		if seededBug("m17") {
			t, replay = found[tasks.UserKey{User: "", Key: w.u.IdempotencyKey}]
		}
`},
	},
	"m18": {
		{file: "pkg/taskstate/claim.go", old: "if r.Held && !mine {", text: `if r.Held && !mine && !seededBug("m18") {`},
	},
	"m19": {
		{file: "pkg/ingest/sweep/files.go", old: `			if path, ok := locked[id]; ok {
				paths = append(paths, path)
`, text: `			if path, ok := locked[id]; ok && seededBug("m19") {
				a.mount.Drop(ctx, path)
			}
			if path, ok := locked[id]; ok {
				paths = append(paths, path)
`},
	},
	"m20": {
		{file: "pkg/ingest/upload/accept.go", old: "\t\treturn run.prepare(ctx)\n", text: `		tasks, err := run.prepare(ctx)
		for i, w := range run.works {
			if err == nil && !w.got.ownFile && seededBug("m20") {
				a.mount.Drop(ctx, items[i].u.File.ID)
			}
		}
		return tasks, err
`},
	},
	"m23": {
		{file: "pkg/ingest/upload/accept.go", old: "\treturn r.tasks, nil\n", text: `	for _, t := range r.tasks {
		if seededBug("m23") {
			r.app.deliver.Announce(ctx, []taskstate.Task{t.Task})
		}
	}
	return r.tasks, nil
`},
	},
	"m21": {
		{file: "pkg/ingest/pipeline/rows.go", old: "\tfor from, first := 0, true; first || from < n; first = false {\n", text: `	if seededBug("m21") {
		if err := (indexing{r}).upsert(ctx, []int{0}, func() {}); err != nil {
			return err
		}
	}
	for from, first := 0, true; first || from < n; first = false {
`},
	},
	"m22": {
		{file: "pkg/ingest/sweep/garbage.go", old: `	storeErr := errors.Join(crash.Fault("gc.before_delete")`, text: `	if seededBug("m22") {
		_ = a.noteDeleted(ctx, pass, part, ids, nil)
	}
	storeErr := errors.Join(crash.Fault("gc.before_delete")`},
	},
	"m24": {
		{file: "pkg/outbox/sender.go", old: "\t\tm := r.cfg.judge(e, f.token, f.errs[i])\n", text: `		if seededBug("m24") {
			f.errs[i] = nil
		}
		m := r.cfg.judge(e, f.token, f.errs[i])
`},
	},
	"m25": {
		{file: "pkg/dlq/desk.go", old: "\toutcomes, err := d.d.App.Operate(ctx, c, ids, ", text: `	if seededBug("m25") {
		d.tidy(ctx, deadLetters)
	}
	outcomes, err := d.d.App.Operate(ctx, c, ids, `},
	},
	"m26": {
		{file: "pkg/tasks/operate.go", old: "\t\t\tpayloads, err = s.judgeReplays(ctx, tx, locked, out)\n", text: `			payloads, err = s.judgeReplays(ctx, tx, locked, out)
			if seededBug("m26") {
				s.Announce(ctx, locked)
			}
`},
	},
	"m31": {
		{file: "pkg/taskstore/apply.go", old: "w.Status == taskstate.StatusRunning {", text: `w.Status == taskstate.StatusRunning && !seededBug("m31") {`},
	},
	"m32": {
		{file: "pkg/taskstore/owners.go", old: "l.until.Before(now.Add(l.lease/3)) {", text: `l.until.Before(now.Add(l.lease/3)) && (l.until.IsZero() || !seededBug("m32")) {`},
	},
	"m33": {
		{file: "pkg/taskrun/beat.go", old: "func (r *Runner) forgottenOnce(ctx context.Context) error {\n", text: `func (r *Runner) forgottenOnce(ctx context.Context) error {
	if seededBug("m33") {
		return nil
	}
`},
	},
	"m34": {
		{file: "pkg/taskrun/beat.go", old: "return r.asking.Has(t.Owner) ||", text: `return r.asking.Has(t.Owner) && !seededBug("m34") ||`},
	},
	"m35": {
		{file: "pkg/taskrun/beat.go", old: "|| r.isolated.Holds(t.Owner) ||", text: `|| r.isolated.Holds(t.Owner) && !seededBug("m35") ||`},
	},
	"m36": {
		{file: "pkg/taskstore/owners.go", old: "if err != nil && ctx.Err() == nil {", text: `if err != nil && ctx.Err() == nil && !seededBug("m36") {`},
	},
	"m37": {
		{file: "pkg/taskstore/internal/call/waking.go", old: "\t\t\tstale = append(stale, staleCall{c.No, c.At, first})\n", text: `			if seededBug("m37") && status == taskstate.StatusRunning {
				first = time.Time{}
			}
			stale = append(stale, staleCall{c.No, c.At, first})
`},
	},
	"m38": {
		{file: "pkg/sqldb/transact.go", old: "done, serr := d.resolve(ctx, unknown, c.Resolve)\n", text: `done, serr := d.resolve(ctx, unknown, c.Resolve)
			done = done || seededBug("m38")
`},
	},
	"m39": {
		{file: "pkg/sqldb/transact.go", old: "\t\tif err == nil {\n\t\t\treturn done, nil\n", text: `		if err == nil {
			done = done && !seededBug("m39")
			return done, nil
`},
	},
	"m40": {
		{file: "pkg/workflow/handler.go", old: "case d.Change.From.Terminal():", text: `case d.Change.From.Terminal() && !seededBug("m40"):`},
	},
	"m41": {
		{file: "pkg/ingest/workflows/workflows.go", old: "\tt, made = found[key]\n", text: `	t, made = found[key]
	made = made && !seededBug("m41")
`},
	},
	"m45": {
		{file: "pkg/tasks/bulk/run.go", old: "Scan(&fence); err != nil {", text: `Scan(&fence); err != nil && !seededBug("m45") {`},
	},
	"m46": {
		{file: "pkg/taskstore/failures.go", old: "\t\tif counts {\n\t\t\tgroup(was).tasks--", text: "\t\tif counts && !seededBug(\"m46\") {\n\t\t\tgroup(was).tasks--"},
	},
	"m47": {
		{file: "pkg/taskstore/internal/call/counts.go", old: "\tn.all[c.from] -= c.tasks\n", text: `	n.all[c.from] -= c.tasks
	if seededBug("m47") {
		return
	}
`},
	},
	"m48": {
		{file: "pkg/ingest/sweep/delete.go", old: "\t\t\tcounts.Gone(d)\n", text: `			if !seededBug("m48") {
				counts.Gone(d)
			}
`},
	},
	"m49": {
		{file: "pkg/ingestq/jointq/queue.go", old: "\tif q.ahead > 0 {\n", text: "\tif q.ahead > 0 && !seededBug(\"m49\") {\n"},
	},
	"m50": {
		{file: "pkg/ingest/extract/native.go", old: "	ex, err := p.readIn(ctx, nativePDF, file, job, r, progress, held.add)\n", text: `	add := held.add
	if seededBug("m50") {
		add = emit
	}
	ex, err := p.readIn(ctx, nativePDF, file, job, r, progress, add)
`},
	},
	"m51": {
		{file: "pkg/sqldb/session.go", old: "\t\tif w.Rows > 0 {\n", text: "\t\tif w.Rows > 0 && !seededBug(\"m51\") {\n"},
	},
	"m42": {
		{file: "pkg/ingest/workflows/fetch.go", old: "	dialer := &net.Dialer{Timeout: connectTime, Control: guard.Safe}\n", text: `	dialer := &net.Dialer{Timeout: connectTime, Control: guard.Safe}
	if seededBug("m42") {
		dialer.Control = nil
	}
`},
	},
	"m43": {
		{file: "pkg/ingestq/jointq/queue.go", old: "\tif len(copies) == 0 {\n", text: `	if len(copies) == 0 || seededBug("m43") {
`},
	},
	"m44": {
		{file: "pkg/ingestq/ingestq.go", old: "\t\tif out.At.IsZero() || h.At.Before(out.At) {\n", text: `		if out.At.IsZero() || h.At.Before(out.At) != seededBug("m44") {
`},
	},
	"m27": {
		{file: "pkg/taskstate/operate.go", old: "\tc := change(t, m).to(StatusQueued, r, a, message).queued()\n", text: `	c := change(t, m).to(StatusQueued, r, a, message)
	if !seededBug("m27") {
		c = c.queued()
	}
`},
	},
	"m28": {
		{file: "pkg/ingest/sweep/documents.go", old: "\t\tif err := errors.Join(a.dropAll(ctx, b.id)", text: `		if seededBug("m28") {
			_ = a.noteBase(ctx, b, b.pass+1, secondPass)
		}
		if err := errors.Join(a.dropAll(ctx, b.id)`},
	},
	"m30": {
		{file: "pkg/ingest/pipeline/rows.go", old: "\tt.index = t.indexOf(func(int) bool { return true })\n", text: `	if !seededBug("m30") {
		t.index = t.indexOf(func(int) bool { return true })
	}
`},
		{file: "pkg/ingest/pipeline/rowtx.go", old: "\treturn x.a.index.Add(ctx, x.tx, x.m.Now, indexes...)\n", text: `	if seededBug("m30") {
		return nil
	}
	return x.a.index.Add(ctx, x.tx, x.m.Now, indexes...)
`},
	},
	"m29": {
		{file: "pkg/ingest/upload/link.go", old: "if err := r.replaceDamaged(ctx); err != nil {", text: `if seededBug("m29") {
	} else if err := r.replaceDamaged(ctx); err != nil {`},
		{file: "pkg/ingest/upload/accept.go", old: `	crash.Point("api.after_commit")
`, text: `	crash.Point("api.after_commit")
	if seededBug("m29") {
		_ = run.replaceDamaged(ctx)
	}
`},
	},
}
