package ingest

import (
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
