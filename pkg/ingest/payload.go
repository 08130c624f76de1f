package ingest

import "encoding/json"

// Payload is what a document's task says of its upload; the row is where a run reads it.
type Payload struct {
	FileName  string `json:"fileName"`
	MediaType string `json:"mediaType"`
	SHA256    string `json:"sha256"`
	Bytes     int64  `json:"bytes"`
	Title     string `json:"title,omitempty"` // given by the user; empty: out of the document
}

// Payload describes the upload for its task.
func (u Upload) Payload(title string) json.RawMessage {
	out, err := json.Marshal(Payload{
		FileName: u.File.Name, MediaType: u.File.MediaType, SHA256: u.File.SHA256, Bytes: u.File.Bytes, Title: title,
	})
	if err != nil {
		panic("ingest: strings and numbers are always JSON: " + err.Error())
	}
	return out
}
