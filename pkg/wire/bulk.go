package wire

import "github.com/millweir/millweir/pkg/taskstate"

// BulkRequest asks for one step of many tasks.
type BulkRequest struct {
	Action        string `json:"action"` // retry, replay, cancel, suspend, resume, delete or reindex
	Filter        string `json:"filter"` // a filter expression
	Reason        string `json:"reason,omitempty"`
	RatePerSecond int    `json:"ratePerSecond,omitempty"` // 0: no limit
	DryRun        bool   `json:"dryRun,omitempty"`
}

// BulkPreview is what an operation would do.
type BulkPreview struct {
	Matched  int64            `json:"matched"`
	Eligible int64            `json:"eligible"` // by their states
	Skipped  map[string]int64 `json:"skipped"`  // by reason
	Judged   int              `json:"judged"`   // eligible tasks that were judged one by one
	Refused  map[string]int64 `json:"refused"`  // of them, by reason
	Sample   []Task           `json:"sample"`
}

// BulkOperation is an operation, and how far it is.
type BulkOperation struct {
	OperationID   string           `json:"operationId"` // of its task
	Action        string           `json:"action"`
	Filter        string           `json:"filter"`
	Reason        string           `json:"reason"`
	RatePerSecond int              `json:"ratePerSecond"`
	UserID        string           `json:"userId"`
	Status        taskstate.Status `json:"status"`  // of its task: SUSPENDED is paused, CANCELLED stopped
	Matched       *int64           `json:"matched"` // null: not counted yet
	Done          int64            `json:"done"`
	Failed        int64            `json:"failed"`
	Skipped       map[string]int64 `json:"skipped"` // by reason
	ErrorMessage  NullText         `json:"errorMessage"`
	CreatedAt     Time             `json:"createdAt"`
	UpdatedAt     Time             `json:"updatedAt"`
}

// ViewRequest asks for a saved view; one of the same name is replaced.
type ViewRequest struct {
	Name   string `json:"name"`
	Filter string `json:"filter"`
	Shared bool   `json:"shared,omitempty"` // operators: everybody sees it
}

// View is a filter expression with a name.
type View struct {
	ViewID    string `json:"viewId"`
	Name      string `json:"name"`
	Filter    string `json:"filter"`
	Shared    bool   `json:"shared"`
	UserID    string `json:"userId"` // whose it is
	CreatedAt Time   `json:"createdAt"`
}
