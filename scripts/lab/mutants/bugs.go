package mutants

// check is a part of the suite: tests of one package.
type check struct {
	pkg   string // folder from the project's root
	tests string // -test.run
	flags string // one more flag of the test program; empty: none
}

// String names it as one would run it.
func (c check) String() string { return c.pkg + " -run " + c.tests }

// The checks that stand between a bug and the users.
var (
	rules        = check{"pkg/taskstate", ".", ""}
	model        = check{"pkg/taskstate/spec", "TestNoOrderOfStepsBreaksARule", ""}
	differential = check{"pkg/taskstore", "TestDatabasesDoWhatTheSpecificationSays/sqlite", "-rapid.nofailfile"}
	storeSuite   = check{"pkg/taskstore", "TestConformance/sqlite", ""}
	storeCommit  = check{"pkg/taskstore", "TestUnknownCommitIsReadBack", ""}
)

// bug is one rule of the product that is broken on purpose; patches say how.
type bug struct {
	name   string
	what   string
	checks []check // at least one has to find it
}

// bugs of deploy/docs/mutants.md; m7 and m13 are streammq's own.
var bugs = []bug{
	{"m1", "a finish that does not compare the fence", []check{rules, model}},
	{"m2", "a heartbeat that does not compare fence and owner", []check{differential, storeSuite}},
	{"m3", "a takeover that does not look at the lease", []check{rules, model}},
	{"m4", "the log's row written after the COMMIT", []check{storeCommit}},
	{"m5", "the acknowledgement, or on Kafka the offset, before the outcome's COMMIT", []check{{"pkg/taskrun", "Finish|Outage|Unknown", ""}}},
	{"m6", "the dead letter after the acknowledgement", []check{{"pkg/taskrun", "Dead|Letter|DLQ|Owed", ""}}},
	{"m8", "a version made visible without counting its segments", []check{{"pkg/ingest/pipeline", "TestFinishCountsTheRows", ""}}},
	{"m9", "the old version taken away when the new one begins", []check{{"pkg/ingest/pipeline", "TestFaultAtEveryEffectOfANewVersion", ""}}},
	{"m10", "a hand-back that counts an attempt", []check{rules, model}},
	{"m11", "a replay that keeps the counts", []check{rules, model}},
	{"m12", "a stream trimmed by its length", []check{{"pkg/ingestq/redisq", "TestTrim", ""}}},
	{"m14", "an outbox mark that does not compare the lease", []check{{"pkg/outbox", "TestStaleMarkLeavesTheRow/sqlite", ""}}},
	{"m15", "an upload that is not flushed to the disk", []check{{"scripts/lab/lostfs", "TestAReceivedFile", ""}}},
	{"m16", "the next try reckoned with the worker's clock", []check{differential, storeSuite}},
	{"m18", "recovery that takes over what its own process runs", []check{rules, {"pkg/taskrun", "TestAClaimUnderWay|TestOwnExpiredClaims", ""}}},
	// Leases of processes (design D22).
	{"m31", "a takeover that does not lock the lease that it judges", []check{{"pkg/taskstore", "TestNoLeaseIsRenewedUnderATakeover/(mysql|postgres)", ""}}},
	{"m32", "a claim under a lease that has nearly ended", []check{{"pkg/taskstore", "TestAClaimNeedsAThirdOfItsLease/sqlite", ""}}},
	{"m33", "a process that does not ask which tasks its rows say it runs", []check{{"pkg/taskrun", "TestWhatAProcessHasForgottenIsTakenOver", ""}}},
	{"m34", "a claim given up because its answer is under way", []check{{"pkg/taskrun", "TestAClaimUnderWayIsNotGivenUp", ""}}},
	{"m35", "a reservation of a RUNNING task given up by its own process", []check{{"pkg/taskrun", "TestTakeoverOfAIsolatedRun", ""}}},
	{"m36", "a heartbeat whose connection hangs, sent over no other", []check{{"pkg/taskstore", "TestAHeartbeatThatHangsIsSentOverAnotherConnection/sqlite", ""}}},
	{"m37", "a call that wakes no more though one of its tasks runs", []check{{"pkg/taskstore", "TestACallOfClaimsWakesUntilNoneRuns/sqlite", ""}}},
	{"m38", "a COMMIT without an answer that counts as done", []check{storeCommit}},
	{"m39", "a COMMIT without an answer that is done again, whatever the rows say", []check{storeCommit}},
	// Effects outside the database that must follow their COMMIT, or come before it.
	{"m19", "a file removed before the COMMIT that lets it go", []check{{"pkg/ingest/sweep", "TestAFaultAtEveryEffectOfTheSweeper", ""}}},
	{"m20", "an upload's own copy removed before the COMMIT that links another", []check{{"pkg/ingest/upload", "TestARolledBackAcceptLeavesNothingBehind", ""}}},
	{"m21", "a vector written before the COMMIT of its row", []check{{"pkg/ingest/pipeline", "TestFaultAtEveryEffectOfANewDocument/undone", ""}}},
	{"m22", "a vector forgotten before the store deleted it", []check{{"pkg/ingest/upload", "TestNothingIsForgottenBeforeTheVectorStoreDeletedIt/.*/sqlite", ""}}},
	{"m23", "a delivery added before the COMMIT of its task", []check{{"pkg/ingest/upload", "TestARolledBackAcceptLeavesNothingBehind", ""}}},
	{"m24", "an event marked SENT without the broker's answer", []check{{"pkg/outbox", "TestStopDoesNotWaitForABrokerThatHangs/sqlite", ""}}},
	{"m25", "a dead letter's entry removed before the COMMIT of its replay", []check{{"pkg/dlq", "TestAnEntryGoesAfterItsRow", ""}}},
	{"m26", "a delivery added before the COMMIT of a replay or a resume", []check{{"pkg/ingest/upload", "TestAPersonsWishIsToldAfterItsCommit", ""}}},
	{"m27", "a replay or a resume that promises no delivery", []check{rules, {"pkg/taskrun", "TestARestartWithoutADeliveryIsEnqueued", ""}}},
	{"m28", "a deleted base forgotten before its collection was dropped", []check{{"pkg/ingest/upload", "TestNothingIsForgottenBeforeTheVectorStoreDeletedIt/.*/sqlite", ""}}},
	{"m29", "a damaged file replaced after the COMMIT of the task that reads it", []check{{"pkg/ingest/upload", "TestADamagedFileIsReplacedBeforeItsTaskIsThere", ""}}},
	{"m30", "segments without their words in the full-text index", []check{{"pkg/ingest/query", "TestFilters/sqlite", ""}}},
	// Workflows.
	{"m40", "a run's row that stays when its task is put back", []check{{"pkg/workflow", "TestARunsRowFollowsItsTask/sqlite", ""}}},
	{"m41", "a workflow that takes in again what an attempt before has taken in", []check{{"pkg/ingest/workflows", "TestAnAddressIsTakenInOnce", ""}}},
	{"m42", "an address that is not judged when it is dialed", []check{{"pkg/ingest/workflows", "TestPrivateAddressesAreNotFetched", ""}}},
	// The stream of workflow tasks.
	{"m43", "a delivery of a read that went on, which nobody takes and nobody returns", []check{{"pkg/ingestq/jointq", "TestWhatNobodyTakesGoesBack", ""}}},
	{"m44", "the read watermark of the stream that was read furthest", []check{{"pkg/ingestq/jointq", "TestTheSmallerWatermarkCounts", ""}}},
	{"m17", "an idempotency key that is everybody's", []check{{"pkg/ingest/upload", "TestIdempotencyKey", ""}}},
	{"m45", "a page of a bulk operation without its claim", []check{{"pkg/tasks/bulk", "TestAnOperationThatBreaksOffGoesOn", ""}}},
	{"m46", "a failure that is counted for its last cause too", []check{storeSuite}},
	{"m47", "a call whose waking ends is counted by status only, not for whose tasks they are", []check{storeSuite}},
	{"m48", "a document that is deleted and stays counted", []check{{"pkg/ingest/sweep", "TestDocumentsAreCounted/sqlite", ""}}},
	{"m49", "two backlogs of which the first is always read first", []check{{"pkg/ingestq/jointq", "TestTwoBacklogsAreTakenEvenly", ""}}},
	{"m50", "what a native reader of PDFs said before its abnormal end is passed on", []check{{"pkg/ingest/extract", "TestWhatAnAbnormalChildSaidIsNotPassedOn", ""}}},
	{"m51", "a COMMIT that goes with an UPDATE that has not found its rows", []check{{"pkg/taskstore", "TestWritesAreDoneOrNone/mysql", ""}, {"pkg/taskstore", "TestWritesAreDoneOrNone/postgres", ""}}},
}

// elsewhere are bugs that the tests of a library of its own seed by themselves: TestEachRuleOfTheModelIsNeeded cuts them into
// the scripts and must fail.
var elsewhere = []string{
	"m7 (a retry that leaves the set before it is on the stream: streammq's trace \"moved twice\" and its store + ack)",
	"m13 (a heartbeat's idle reset without the owner: streammq's trace \"robbing by an idle reset\")",
}
