package workflows

import (
	"errors"
	"io/fs"
	"os"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/taskstate"
)

// TaskFile is the file that a task was made with: it was received under the task's id, and is kept until the task has ended.
type TaskFile struct {
	Name      string `json:"name"`
	SHA256    string `json:"sha256"`
	MediaType string `json:"mediaType"`
}

const fileSchema = `{"type": "object", "additionalProperties": false, "required": ["name", "sha256", "mediaType"], "properties": {
	"name": {"type": "string", "maxLength": 255}, "sha256": {"type": "string", "maxLength": 64}, "mediaType": {"type": "string", "maxLength": 190}}}`

// FileOf is a received file as a payload names it. The task has to have the file's id (tasks.Request).
func FileOf(f ingest.ReceivedFile) *TaskFile {
	return &TaskFile{Name: f.Name, SHA256: f.SHA256, MediaType: f.MediaType}
}

// fileOf opens the file of a task. Permanent when there is none.
func (d *doors) fileOf(t taskstate.Task) (*os.File, error) {
	f, err := d.app.Folder.Open(t.ID)
	if errors.Is(err, fs.ErrNotExist) {
		err = ingest.Permanent(ingest.CodeFileMissing, "Send the file again.", "open the received file: %w", err)
	}
	return f, err
}
