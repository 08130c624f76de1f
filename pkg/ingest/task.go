package ingest

import (
	"encoding/json"

	"github.com/google/uuid"

	"github.com/millweir/millweir/pkg/taskrun"
	"github.com/millweir/millweir/pkg/taskstate"
)

// The stages of a document's task, in their order.
const (
	StageExtract taskstate.Stage = "extract"
	StageSplit   taskstate.Stage = "split"
	StageEmbed   taskstate.Stage = "embed"
	StageIndex   taskstate.Stage = "index"
	StageSwitch  taskstate.Stage = "switch"
)

// Describe says what people are told about a document's task.
func Describe() taskrun.Description {
	return taskrun.Description{
		Noun: "document", Unit: "segments",
		Stages: []taskstate.Stage{StageExtract, StageSplit, StageEmbed, StageIndex, StageSwitch},
	}
}

// Descriptions are those of the types of task that the ingestion has.
func Descriptions() map[string]taskrun.Description {
	return map[string]taskrun.Description{TypeDocument: Describe()}
}

// Payload is what a document's task says of its upload; the row is where a run reads it.
type Payload struct {
	FileName  string          `json:"fileName"`
	MediaType string          `json:"mediaType"`
	SHA256    string          `json:"sha256"`
	Bytes     int64           `json:"bytes"`
	Title     string          `json:"title,omitempty"`    // given by the user; empty: out of the document
	Metadata  json.RawMessage `json:"metadata,omitempty"` // given by the user, with this upload or an earlier one
	// Base is the name of the knowledge base, for a copy of the task that outlives the base's row (design D19); empty in tasks that
	// were accepted before payloads had it.
	Base string `json:"knowledgeBase,omitempty"`
	// The message that the document is an attachment of, and its version; empty: it is none.
	ParentID      string `json:"parentId,omitempty"`
	ParentVersion int64  `json:"parentVersion,omitempty"`
}

// Payload describes the upload for its task; base is the name of its knowledge base.
func (u Upload) Payload(base string) json.RawMessage {
	out, err := json.Marshal(Payload{
		FileName: u.File.Name, MediaType: u.File.MediaType, SHA256: u.File.SHA256, Bytes: u.File.Bytes, Title: u.Title, Metadata: json.RawMessage(u.Metadata),
		Base: base, ParentID: u.Parent.ID, ParentVersion: u.Parent.No,
	})
	if err != nil {
		panic("ingest: strings and numbers are always JSON: " + err.Error())
	}
	return out
}

// NewID is a UUIDv7 text; reading random numbers does not fail on the systems that we run on.
func NewID() string { return uuid.Must(uuid.NewV7()).String() }

const (
	// TypeDocument is the task type that the application works on.
	TypeDocument = "document"
)
