package wire

import "github.com/millweir/millweir/pkg/taskstate"

// CheckRequest asks for a check of the whole installation.
type CheckRequest struct {
	Deep    bool   `json:"deep,omitempty"`    // compare the values of all visible vectors
	History bool   `json:"history,omitempty"` // judge the log of tasks by all rules
	Repair  bool   `json:"repair,omitempty"`  // mend what can be mended
	DryRun  *bool  `json:"dryRun,omitempty"`  // with repair: only list what would be mended; missing: true
	Reason  string `json:"reason,omitempty"`  // why; needed with dryRun false
}

// Check is a check that was asked for, and how far it is.
type Check struct {
	CheckID      string           `json:"checkId"` // of its task
	UserID       string           `json:"userId"`  // who asked
	Deep         bool             `json:"deep"`
	History      bool             `json:"history"`
	Repair       bool             `json:"repair"`
	DryRun       bool             `json:"dryRun"`
	Reason       string           `json:"reason"`
	Status       taskstate.Status `json:"status"`
	StepsDone    int              `json:"stepsDone"`
	Steps        int              `json:"steps"`      // 0: not known yet
	Violations   *int64           `json:"violations"` // before a repair; null: it has not ended well
	Left         *int64           `json:"left"`       // after a repair; null: nothing was repaired
	ErrorMessage NullText         `json:"errorMessage"`
	CreatedAt    Time             `json:"createdAt"`
	EndedAt      NullTime         `json:"endedAt"`
	Seconds      *float64         `json:"seconds"` // that its last attempt took; null: it has not ended well
}

// CheckReport is a check with all that it says.
type CheckReport struct {
	Check
	Rules        []CheckRule  `json:"rules"`        // empty: it has not ended well
	RepairReport *CheckRepair `json:"repairReport"` // null: no repair was asked for, or it has not ended well
	Young        int          `json:"young"`        // files without a row that are no violation yet
	Uncompared   int64        `json:"uncompared"`   // vectors that a deep check could not compare
	Shortened    bool         `json:"shortened"`    // evidence was left out, so that the report can be kept
}

// CheckRule is one rule's word.
type CheckRule struct {
	Rule       string         `json:"rule"`
	Sentence   string         `json:"sentence"`
	Judged     int64          `json:"judged"` // 0: it proved nothing
	Violations int64          `json:"violations"`
	NotJudged  NullText       `json:"notJudged"` // why it could not judge; null: it could
	Examples   []CheckExample `json:"examples"`  // the first few violations
}

// CheckExample is a violation with its evidence.
type CheckExample struct {
	About   string `json:"about"` // an id, or a name
	Kind    string `json:"kind"`  // task, document, base: there is one of that id; empty: it is something else
	Problem string `json:"problem"`
	History string `json:"history"` // the task's log up to the violation
}

// CheckRepair is what a repair did, or with dryRun would do.
type CheckRepair struct {
	DryRun    bool        `json:"dryRun"`
	Mends     []CheckMend `json:"mends"`
	Left      []string    `json:"left"` // what cannot be mended, with the reason; the first of them
	LeftCount int         `json:"leftCount"`
}

// CheckMend is one sort of thing that a repair does.
type CheckMend struct {
	What  string   `json:"what"`
	Rule  string   `json:"rule"` // that is kept again; empty: one of several
	Count int64    `json:"count"`
	Items []string `json:"items"` // the first of them; empty when it was done
}
