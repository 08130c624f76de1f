package wire

import (
	"encoding/json"

	"github.com/millweir/millweir/pkg/taskstate"
)

// WorkflowApply asks for a workflow. What is JSON is kept as it was sent.
type WorkflowApply struct {
	WorkflowID         string          `json:"workflowId"`
	ChatID             string          `json:"chatId,omitempty"` // else metadata.chat_id
	UserText           string          `json:"userText,omitempty"`
	Payload            json.RawMessage `json:"payload,omitempty"`
	Metadata           json.RawMessage `json:"metadata,omitempty"` // an object; chat_id and timestamp are read
	History            json.RawMessage `json:"history,omitempty"`
	Policy             json.RawMessage `json:"policy,omitempty"`
	CoreEnvelope       json.RawMessage `json:"coreEnvelope,omitempty"`
	Telemetry          json.RawMessage `json:"telemetry,omitempty"`
	User               json.RawMessage `json:"user,omitempty"`
	IdempotencyKey     string          `json:"idempotencyKey,omitempty"` // or the header Idempotency-Key
	RetryMax           *int            `json:"retryMax,omitempty"`
	WaitForResult      *bool           `json:"waitForResult,omitempty"`
	WaitTimeoutSeconds *int            `json:"waitTimeoutSeconds,omitempty"`
}

// WorkflowReply is the state of a workflow's task.
type WorkflowReply struct {
	Data WorkflowRun  `json:"data"`
	Meta WorkflowMeta `json:"meta"`
}

// WorkflowRun is a workflow's task.
type WorkflowRun struct {
	TaskID   string           `json:"taskId"`
	Status   taskstate.Status `json:"status"`
	Result   json.RawMessage  `json:"result"` // null: there is none, or not yet
	Retry    WorkflowRetry    `json:"retry"`
	Error    *WorkflowError   `json:"error"`              // of the last attempt; null: there is none
	Delivery string           `json:"delivery,omitempty"` // WaitingForRedis, or left out
}

// WorkflowRetry counts attempts.
type WorkflowRetry struct {
	Count         int      `json:"count"` // those that failed
	Max           int      `json:"max"`
	NextAttemptAt NullTime `json:"nextAttemptAt"`
}

// WorkflowError is why an attempt failed, or why the task waits for a person.
type WorkflowError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// WorkflowMeta is about the request.
type WorkflowMeta struct {
	RequestID string `json:"requestId"`
}
