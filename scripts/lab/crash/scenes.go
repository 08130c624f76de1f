package crash

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/millweir/millweir/pkg/ingest/embed/embedtest"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/scripts/lab/await"
	"github.com/millweir/millweir/scripts/lab/tables"
	"github.com/millweir/millweir/scripts/lab/world"
)

const (
	worker    = "stream-worker"
	reclaimer = "reclaimer"
	gateway   = "ingest-api"
	relay     = "outbox-relay"
	consumer  = "kafka-consumer"
	copier    = "stream-mirror"
	back      = "rehydrator"
	telegram  = "telegram-gateway"

	smallDoc = 2_500  // a handful of segments, three batches of embeddings
	largeDoc = 75_000 // more segments than one batch of vectors
)

// scenes say for every point of the source how it is reached.
var scenes = map[string]scene{
	// an upload
	"api.after_temp_write":       {service: gateway, during: uploadThere, after: uploadAgain},
	"api.after_fsync":            {service: gateway, during: uploadThere, after: uploadAgain},
	"api.after_rename":           {service: gateway, during: uploadThere, after: uploadAgain},
	"api.after_folder_fsync":     {service: gateway, during: uploadThere, after: uploadAgain},
	"api.before_commit":          {service: gateway, during: uploadThere, after: uploadAgain},
	"api.after_commit":           {service: gateway, during: uploadThere, after: uploadAgain},
	"api.after_xadd":             {service: gateway, during: uploadThere, after: uploadAgain},
	"api.before_reply":           {service: gateway, during: uploadThere, after: uploadAgain},
	"api.after_replacement_link": {service: gateway, before: damaged, during: uploadSameThere, after: uploadAgain},
	"api.after_replacement":      {service: gateway, before: damaged, during: uploadSameThere, after: uploadAgain},
	"api.after_key":              {service: gateway, during: uploadKeyed, after: uploadAgain, slow: true},

	// the wishes of a person
	"delete.after_tasks":    {service: gateway, before: uploads(1, smallDoc), during: deleteThere, after: deleteAgain, sweeper: true},
	"delete.after_row":      {service: gateway, before: steps(uploads(1, smallDoc), finished), during: deleteThere, after: deleteAgain, sweeper: true},
	"delete.after_base_row": {service: gateway, before: baseOfOne, during: deleteBaseThere, after: deleteBaseAgain, sweeper: true},
	"operate.after_row":     {service: gateway, before: steps(uploadBlank, finished), during: replayThere, after: replayAgain, slow: true},
	"dlq.after_replay":      {service: gateway, before: steps(uploadBlank, finished, findDeadLetter), during: replayDeadLetterThere, after: replayDeadLetterAgain, slow: true},

	// a worker from the delivery to the claim
	"worker.after_read":       {service: worker, during: uploads(2, smallDoc)},
	"worker.before_claim":     {service: worker, during: uploads(2, smallDoc)},
	"worker.in_claim":         {service: worker, during: uploads(2, smallDoc)},
	"worker.after_claim":      {service: worker, during: uploads(2, smallDoc)},
	"worker.after_quarantine": {service: worker, during: redis("XADD", world.StreamKey, "*", "what", "this is no envelope")},
	// from the file to the vectors
	"worker.after_extract":     {service: worker, during: uploads(1, smallDoc)},
	"worker.after_split":       {service: worker, during: uploads(1, smallDoc)},
	"worker.before_embed":      {service: worker, nth: 2, during: uploads(1, smallDoc)},
	"worker.after_embed":       {service: worker, nth: 2, during: uploads(1, smallDoc)},
	"worker.after_ledger":      {service: worker, nth: 2, during: uploads(1, smallDoc)},
	"worker.after_model":       {service: worker, during: uploads(1, smallDoc), paid: true},
	"worker.in_rows":           {service: worker, during: uploads(1, smallDoc), paid: true},
	"worker.after_rows":        {service: worker, during: uploads(1, smallDoc), paid: true},
	"worker.after_upsert":      {service: worker, during: uploads(1, smallDoc), paid: true},
	"worker.after_stored_mark": {service: worker, env: []string{"EMBEDDING_BATCH_SIZE=64"}, during: uploads(1, largeDoc), paid: true},
	// the outcome
	"worker.before_finish":   {service: worker, during: uploads(1, smallDoc), paid: true},
	"worker.in_finish":       {service: worker, during: uploads(1, smallDoc), paid: true},
	"worker.after_finish":    {service: worker, during: uploads(1, smallDoc), paid: true},
	"worker.before_ack":      {service: worker, during: uploads(1, smallDoc), paid: true, ended: true},
	"worker.after_ack":       {service: worker, during: uploads(1, smallDoc), paid: true, ended: true},
	"worker.on_heartbeat":    {service: worker, before: faulty(slowly800), during: uploads(2, smallDoc)},
	"worker.after_heartbeat": {service: worker, before: faulty(slowly800), during: uploads(2, smallDoc)},
	"worker.in_fail":         {service: worker, before: faulty(wrongOnce), during: uploads(1, smallDoc)},
	"worker.after_retry_row": {service: worker, before: faulty(wrongOnce), during: uploads(1, smallDoc)},
	"worker.after_dead_row":  {service: worker, during: uploadBlank, slow: true},
	"worker.after_dlq_add":   {service: worker, during: uploadBlank, slow: true},
	"worker.after_dlq_mark":  {service: worker, during: uploadBlank},
	"worker.in_stop":         {service: worker, during: stopped},
	"worker.before_leave":    {service: worker, during: stopped},
	"handback.after_row":     {service: worker, during: stopped},
	"handback.after_copy":    {service: worker, during: stopped},
	"handback.after_publish": {service: worker, env: []string{"INGEST_REDIS_RETRY_BASE_BACKOFF_MS=1500", "INGEST_REDIS_RETRY_MAX_BACKOFF_MS=1500"}, before: faulty(wrongOnce), during: stoppedWithoutEntry},

	// the attachments of a message
	"attachments.before_document": {service: worker, nth: 2, during: letterUploaded, after: attachedOnce("one.txt", "two.txt", "three.txt")},
	"attachments.after_document":  {service: worker, nth: 2, during: letterUploaded, after: attachedOnce("one.txt", "two.txt", "three.txt")},
	"attachments.before_removal":  {service: worker, before: steps(letterUploaded, finished, attachedOnce("one.txt", "two.txt", "three.txt")), during: letterReplaced, after: attachedOnce("four.txt", "two.txt")},

	// retries and takeovers
	"recovery.after_scan":        {service: worker, before: faulty(wrongOnce), during: uploads(1, smallDoc)},
	"recovery.after_retry_claim": {service: worker, before: faulty(wrongOnce), during: uploads(1, smallDoc)},
	"worker.after_adopt":         {service: worker, before: faulty(wrongOnce), during: uploads(1, smallDoc)},
	"recovery.after_takeover":    {service: reclaimer, before: left(true)},
	"recovery.after_crash_limit": {service: reclaimer, env: []string{"INGEST_MAX_CRASHES=2"}, before: steps(left(true), left(false), toDie), slow: true},
	"solo.after_reserve":         {service: reclaimer, env: []string{"INGEST_MAX_CRASHES=2"}, before: left(true)},
	"solo.before_claim":          {service: reclaimer, env: []string{"INGEST_MAX_CRASHES=2"}, before: left(true)},
	"solo.after_claim":           {service: reclaimer, env: []string{"INGEST_MAX_CRASHES=2"}, before: left(true)},
	"solo.after_release":         {service: worker, env: []string{"INGEST_MAX_CRASHES=2"}, before: left(true, "INGEST_LEASE_MS=10000"), during: stoppedReserving, slow: true},

	// promises, pending entries, dead letters, the stream's end
	"promise.after_scan":   {service: reclaimer, before: steps(uploads(2, smallDoc), redis("DEL", world.StreamKey))},
	"promise.after_commit": {service: reclaimer, before: steps(uploads(2, smallDoc), redis("DEL", world.StreamKey))},
	"promise.after_xadd":   {service: reclaimer, before: steps(uploads(2, smallDoc), redis("DEL", world.StreamKey))},
	"settle.after_scan":    {service: reclaimer, before: steps(uploads(1, smallDoc), readByGhost)},
	"settle.after_row":     {service: reclaimer, before: steps(uploads(1, smallDoc), readByGhost)},
	// A victim that sweeps could find its own DEAD row between the commit and its end, and write the dead letter.
	"owed.after_scan":   {service: reclaimer, before: steps(victim("worker.after_dead_row", uploadBlank, "INGEST_WORKER_RECOVERY=false"), redis("DEL", world.StreamKey)), slow: true},
	"trim.after_trim":   {service: reclaimer, before: steps(uploads(1, smallDoc), finished)},
	"trim.after_let_go": {service: reclaimer, before: pinned, after: retried},

	// the relay of the outbox
	"relay.after_select": {service: relay, during: uploads(2, smallDoc), Kafka: true},
	"relay.after_lease":  {service: relay, during: uploads(2, smallDoc), Kafka: true},
	"relay.after_send":   {service: relay, during: uploads(2, smallDoc), Kafka: true},
	"relay.before_mark":  {service: relay, nth: 2, during: uploads(2, smallDoc), Kafka: true},
	"relay.after_mark":   {service: relay, nth: 2, during: uploads(2, smallDoc), Kafka: true},

	// the copies in RabbitMQ
	"mirror.after_publish":     {service: copier, during: uploads(2, smallDoc), Rabbit: true},
	"mirror.after_confirm":     {service: copier, during: uploads(2, smallDoc), Rabbit: true},
	"mirror.after_take":        {service: copier, before: steps(uploads(2, smallDoc), copied), Rabbit: true},
	"mirror.after_rotation":    {service: copier, before: steps(uploads(2, smallDoc), copied), Rabbit: true},
	"mirror.after_ack":         {service: copier, before: steps(uploads(2, smallDoc), copied, finished), Rabbit: true},
	"mirror.after_append":      {service: copier, env: world.AuditEnv(), during: uploads(2, smallDoc), after: audited, Rabbit: true},
	"rehydrator.after_renew":   {service: back, args: []string{"--mode", "rehydrate", "--once"}, before: steps(uploads(2, smallDoc), copied), Rabbit: true},
	"rehydrator.after_restore": {service: back, args: restoring, before: steps(uploads(2, smallDoc), copied, databaseLost), after: restored, Rabbit: true, slow: true},

	// messages of Telegram, by long polling and by a webhook
	"telegram.after_updates":   {service: telegram, nth: 2, during: steps(chat, confirmed, chat), after: answered},
	"telegram.after_accept":    {service: telegram, during: chat, after: answered},
	"telegram.after_reply_row": {service: telegram, during: chat, after: answered},
	"telegram.before_offset":   {service: telegram, during: chat, after: answered},
	"telegram.after_receipt":   {service: telegram, env: hooked, during: chatThere, after: chatAgain},
	"telegram.before_ok":       {service: telegram, env: hooked, during: chatThere, after: chatAgain},
	"telegram.before_send":     {service: telegram, during: chat, after: answered, slow: true},
	"telegram.after_send":      {service: telegram, during: chat, after: answered, doubled: true, slow: true},
	"telegram.before_edit":     {service: telegram, before: steps(acknowledged, finished), after: answered, slow: true},
	"telegram.after_edit":      {service: telegram, before: steps(acknowledged, finished), after: answered, slow: true},

	// the sweeper
	"gc.after_mark":       {service: reclaimer, before: steps(uploads(1, smallDoc), finished, deleteHere), after: gone, sweeper: true},
	"gc.before_delete":    {service: reclaimer, before: steps(uploads(1, smallDoc), finished, deleteHere), after: gone, sweeper: true},
	"gc.after_delete":     {service: reclaimer, before: steps(uploads(1, smallDoc), finished, deleteHere), after: gone, sweeper: true},
	"gc.before_file":      {service: reclaimer, before: steps(uploads(1, smallDoc), finished, deleteHere), after: gone, sweeper: true},
	"gc.after_file":       {service: reclaimer, before: steps(uploads(1, smallDoc), finished, deleteHere), after: gone, sweeper: true},
	"gc.after_judge":      {service: reclaimer, before: rowsDropped, sweeper: true},
	"gc.after_cancel":     {service: reclaimer, before: outdated, sweeper: true},
	"gc.after_forget":     {service: reclaimer, before: buriedBase, during: timePasses, after: baseGone, sweeper: true},
	"gc.after_collection": {service: reclaimer, before: buriedBase, during: timePasses, after: baseGone, sweeper: true},

	"gc.after_merge":    {service: reclaimer, before: steps(uploads(12, smallDoc), finished), sweeper: true},
	"gc.after_exchange": {service: reclaimer, before: steps(uploads(12, smallDoc), finished), sweeper: true},

	// any transaction of a worker: claim, embedding cache, rows, finish
	"store.before_commit": {service: worker, upTo: 6, during: uploads(1, smallDoc)},
	"store.after_commit":  {service: worker, upTo: 6, during: uploads(1, smallDoc)},

	// the schema
	"migrate.after_statement": {alone: migrateBroken},
	"migrate.after_step":      {alone: migrateBroken},
}

// What goes wrong in the embedding service.
var (
	wrongOnce = embedtest.Fault{Kind: embedtest.Miscount, Times: 1}
	slowly800 = embedtest.Fault{Kind: embedtest.Delay, For: 800 * time.Millisecond}
)

// terminate is SIGTERM to the armed process.
func (t *trial) terminate() error { return t.armed.Signal(syscall.SIGTERM) }

// stoppedWithoutEntry stops the armed worker in a retry whose entry is gone from the stream.
func stoppedWithoutEntry(ctx context.Context, t *trial) error {
	err := steps(uploads(1, smallDoc), func(ctx context.Context, t *trial) error {
		return t.status(ctx, taskstate.StatusRetrying)
	}, redis("DEL", world.StreamKey))(ctx, t)
	if err == nil {
		err = t.hangs(ctx, func() error { return nil })
	}
	if err != nil {
		return err
	}
	// The adoption that finds no entry goes beside the run: give it its time.
	await.Pause(ctx, wakingFor)
	return t.terminate()
}

// stoppedReserving stops the armed worker while it holds one task and has reserved another one that is on its isolated run:
// one whose lease outlives the armed worker's start and its first claim, for a worker that holds nothing reserves nothing.
func stoppedReserving(ctx context.Context, t *trial) error {
	if err := t.hangs(ctx, func() error { return uploads(1, smallDoc)(ctx, t) }); err != nil {
		return err
	}
	err := await.Until(ctx, settleLimit, lookEvery, func(ctx context.Context) error {
		held, err := tables.Running(ctx, t.DB.Reader())
		if err != nil {
			return err
		}
		n := 0
		for _, h := range held {
			if t.armed.Owns(h.Owner) {
				n++
			}
		}
		if n < 2 {
			return fmt.Errorf("%d of the running tasks are the armed worker's: %v", n, held)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return t.terminate()
}

// toDie notes that the trial's task will end at the crash limit.
func toDie(_ context.Context, t *trial) error {
	t.want[t.docs[0].task] = taskstate.StatusDead
	return nil
}

// readByGhost gives the delivery to a member of the group that never was.
func readByGhost(ctx context.Context, t *trial) error {
	_ = t.Stream.Do(ctx, "XGROUP", "CREATE", world.StreamKey, world.Group, "0", "MKSTREAM") // it is there unless this is the lane's first point
	return t.Stream.Do(ctx, "XREADGROUP", "GROUP", world.Group, "ghost", "COUNT", "10", "STREAMS", world.StreamKey, ">")
}

// pinned is a retry that waits longer than its entry may hold the stream's end.
func pinned(ctx context.Context, t *trial) error {
	t.Embed.Set(wrongOnce)
	err := victim("worker.after_retry_row", uploads(1, smallDoc), "INGEST_REDIS_RETRY_BASE_BACKOFF_MS=60000", "INGEST_REDIS_RETRY_MAX_BACKOFF_MS=60000")(ctx, t)
	await.Pause(ctx, 1100*time.Millisecond) // INGEST_STREAM_PIN_MAX_MS
	return err
}

// retried makes the waiting retry due.
func retried(ctx context.Context, t *trial) error { return t.client.Retry(ctx, t.docs[0].task) }

// rowsDropped is a version whose first run wrote rows that the second one, with other segments, dropped.
func rowsDropped(ctx context.Context, t *trial) error {
	t.docs = nil
	write := func(ctx context.Context, t *trial) error {
		d, err := t.upload(ctx, t.doc(smallDoc)) // not to be compared with a clean run: its segments have another size
		t.docs = append(t.docs, d)
		return err
	}
	if err := victim("worker.after_rows", write)(ctx, t); err != nil {
		return err
	}
	return t.undisturbed(ctx, "CHUNK_SIZE=450")
}

// outdated is a task that a person holds while a later upload of its document becomes visible.
func outdated(ctx context.Context, t *trial) error {
	first, err := t.client.Upload(ctx, t.doc(smallDoc))
	if err != nil {
		return err
	}
	if err := t.client.Suspend(ctx, first.TaskID); err != nil {
		return err
	}
	t.want[first.TaskID] = taskstate.StatusSuspended
	if _, err := t.client.Replace(ctx, first.DocumentID, t.doc(smallDoc)); err != nil {
		return err
	}
	err = t.undisturbed(ctx)
	t.want[first.TaskID] = taskstate.StatusCancelled
	return err
}

// buriedBase is a deleted base with a document that was finished.
func buriedBase(ctx context.Context, t *trial) error {
	return steps(baseOfOne, finished, deleteBaseHere)(ctx, t)
}

// timePasses lets the sweeper's ten minutes pass again and again until the point is reached.
func timePasses(ctx context.Context, t *trial) error {
	return await.Until(ctx, fireLimit, 5*lookEvery, func(ctx context.Context) error {
		if t.acted() {
			return nil
		}
		return errors.Join(t.passing(ctx), errors.New("the point was not reached"))
	})
}

// baseGone lets time pass until nothing is left of the base.
func baseGone(ctx context.Context, t *trial) error {
	for _, d := range t.docs { // their rows go too
		delete(t.load.Accepted, d.task)
	}
	return await.Until(ctx, settleLimit, 5*lookEvery, func(ctx context.Context) error {
		n, err := t.count(ctx, "SELECT COUNT(*) FROM knowledge_base WHERE name = ?", t.base())
		if err == nil && n == 0 {
			n, err = t.count(ctx, "SELECT COUNT(*) FROM knowledge_document WHERE id = ?", t.docs[0].document)
		}
		if err == nil && n > 0 {
			err = errors.New("rows of the base are left")
		}
		return errors.Join(err, t.passing(ctx))
	})
}

// restoring are the arguments of a rehydrator that makes lost rows again.
var restoring = []string{"--mode", "rehydrate", "--restore", "--once"}

// copied runs a mirror until each of the trial's tasks has a copy.
func copied(ctx context.Context, t *trial) error {
	p, err := t.Start(copier)
	if err != nil {
		return err
	}
	defer p.Kill()
	return await.Until(ctx, settleLimit, 5*lookEvery, func(ctx context.Context) error {
		met, err := t.Copies(ctx)
		for _, d := range t.docs {
			if _, there := met[d.task]; !there && err == nil {
				err = fmt.Errorf("task %s has no copy", d.task)
			}
		}
		return err
	})
}

// audited waits until the trial's tasks have ended and the audit stream has every change.
func audited(ctx context.Context, t *trial) error {
	return await.Until(ctx, settleLimit, 5*lookEvery, func(ctx context.Context) error {
		for _, d := range t.docs {
			log, err := tables.Log(ctx, t.DB.Reader(), d.task)
			if err != nil {
				return err
			}
			if len(log) == 0 || !log[len(log)-1].To.Terminal() {
				return fmt.Errorf("task %s has not ended", d.task)
			}
		}
		return t.Unaudited(ctx)
	})
}

// databaseLost puts an empty database in the lane's place: it is played first, while the lane has no other tasks.
func databaseLost(ctx context.Context, t *trial) error {
	t.gateway.Kill() // until the rows are back, which tell whose upload folder it is
	return t.LoseDatabase(ctx)
}

// restored goes round once more: what the one that died has left undone is done, and what it did is not done again.
func restored(ctx context.Context, t *trial) error {
	p, err := t.Rehydrate(restoring)
	if err != nil {
		return err
	}
	code, err := t.through(ctx, p)
	if err == nil && code != 0 {
		err = fmt.Errorf("the next rehydrator exits with %d:\n%s", code, p.Tail(12))
	}
	if err != nil {
		return err
	}
	return t.serve(ctx)
}
