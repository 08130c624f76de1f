package ingest

import "encoding/json"

// The workflow that takes the attachments of a message in. Its task is made in the transaction that accepts the message, whichever way
// that came.
const (
	AttachmentsWorkflow = "ingest.attachments"
	// AttachmentsType is package workflow's Type. That package links a library for JSON schemas, and most who take documents in do not.
	AttachmentsType = "workflow.execute"
	// AttachmentsChannel is the source of its tasks, and of those of attachments: no request has asked for them.
	AttachmentsChannel = "attachments"
)

// Carrying is its payload: a message's document, and the task that makes the version whose attachments are meant.
type Carrying struct {
	DocumentID string `json:"documentId"`
	TaskID     string `json:"taskId"`
}

// Request is the payload as a workflow's task has it.
func (c Carrying) Request() json.RawMessage {
	out, err := json.Marshal(map[string]Carrying{"payload": c})
	if err != nil {
		panic("ingest: strings are always JSON: " + err.Error())
	}
	return out
}

// CarriesFiles reports whether documents of a media type are messages, whose attachments are documents of their own.
func CarriesFiles(mediaType string) bool {
	switch mediaType {
	case "message/rfc822", "application/mbox", "application/vnd.ms-outlook", "application/ms-tnef":
		return true
	}
	return false
}
