package ingest

import (
	"github.com/millweir/millweir/pkg/taskrun"
	"github.com/millweir/millweir/pkg/taskstate"
)

// Describe says what people are told about a document's task.
func Describe() taskrun.Description {
	return taskrun.Description{
		Noun: "document", Unit: "segments",
		Stages: []taskstate.Stage{
			taskstate.StageExtract, taskstate.StageSplit, taskstate.StageEmbed, taskstate.StageIndex, taskstate.StageSwitch,
		},
	}
}

// Descriptions are those of the types of task that the ingestion has.
func Descriptions() map[string]taskrun.Description {
	return map[string]taskrun.Description{TypeDocument: Describe()}
}
