package streammq

import (
	"github.com/millweir/millweir/pkg/streammq/internal/consume"
	"github.com/millweir/millweir/pkg/streammq/internal/model"
)

// Errors of this package. Each is wrapped with what was given and with the limit that it passes.
var (
	ErrConfig       = model.ErrConfig
	ErrTopicName    = model.ErrTopicName
	ErrGroupName    = model.ErrGroupName
	ErrStreamKey    = model.ErrStreamKey
	ErrPartitions   = model.ErrPartitions
	ErrPartition    = model.ErrPartition
	ErrTooLarge     = model.ErrTooLarge
	ErrHeader       = model.ErrHeader
	ErrUnknownTopic = model.ErrUnknownTopic
	ErrLayout       = model.ErrLayout
	ErrEviction     = model.ErrEviction
	ErrServer       = model.ErrServer
	ErrFull         = model.ErrFull
	ErrUnavailable  = model.ErrUnavailable
	ErrMalformed    = model.ErrMalformed
	ErrNotFound     = model.ErrNotFound
	ErrReplayed     = model.ErrReplayed
	ErrEntryID      = model.ErrEntryID
	ErrGroupLive    = model.ErrGroupLive
	ErrForeignGroup = model.ErrForeignGroup
	ErrNoReply      = model.ErrNoReply
	ErrRemote       = model.ErrRemote
	ErrPermanent    = model.ErrPermanent
	ErrSettled      = model.ErrSettled
	ErrNotHeld      = model.ErrNotHeld
	ErrPanic        = model.ErrPanic
	ErrRunning      = model.ErrRunning
)

// ErrStuck is wrapped by Run's error when a handler did not return in twice the StopTimeout; its goroutine
// lives on.
var ErrStuck = consume.ErrStuck
