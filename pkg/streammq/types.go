package streammq

import (
	"github.com/millweir/millweir/pkg/streammq/internal/admin"
	"github.com/millweir/millweir/pkg/streammq/internal/consume"
	"github.com/millweir/millweir/pkg/streammq/internal/core"
	"github.com/millweir/millweir/pkg/streammq/internal/deadletter"
	"github.com/millweir/millweir/pkg/streammq/internal/model"
	"github.com/millweir/millweir/pkg/streammq/internal/produce"
	"github.com/millweir/millweir/pkg/streammq/internal/wire"
)

// The types of the queue, each documented with its package.
type (
	Layout           = model.Layout
	Config           = model.Config
	LetterPlace      = model.LetterPlace
	Topic            = model.Topic
	Message          = model.Message
	Receipt          = model.Receipt
	Outcome          = model.Outcome
	Result           = model.Result
	Delivery         = model.Delivery
	EventKind        = model.EventKind
	Event            = model.Event
	Observer         = model.Observer
	Jitter           = model.Jitter
	RetryPolicy      = model.RetryPolicy
	DeadLetterPolicy = model.DeadLetterPolicy
	RetryMode        = model.RetryMode
	Retention        = model.Retention
	DeletePolicy     = model.DeletePolicy
	State            = model.State
	Status           = model.Status
	StatusError      = model.StatusError
	PanicError       = model.PanicError

	Letter = wire.Letter
	Format = wire.Format

	TopicInfo = core.TopicInfo

	Partitioner     = produce.Partitioner
	Producer        = produce.Producer
	RequesterConfig = produce.RequesterConfig
	Reply           = produce.Reply
	RemoteError     = produce.RemoteError
	Requester       = produce.Requester
	StreamProducer  = produce.StreamProducer

	ConsumerConfig   = consume.ConsumerConfig
	Consumer         = consume.Consumer
	JanitorConfig    = consume.JanitorConfig
	Subscriber       = consume.Subscriber
	Handler          = consume.Handler
	Role             = consume.Role
	SubscriberConfig = consume.SubscriberConfig

	LetterHandler    = deadletter.LetterHandler
	LetterSubscriber = deadletter.LetterSubscriber
	LetterQuery      = deadletter.LetterQuery
	Letters          = deadletter.Letters

	Admin          = admin.Admin
	GroupLiveError = admin.GroupLiveError
	Stored         = admin.Stored
	Position       = admin.Position
	Reset          = admin.Reset
	Removal        = admin.Removal
	PartitionStats = admin.PartitionStats
	GroupInfo      = admin.GroupInfo
	ConsumerInfo   = admin.ConsumerInfo
	Owners         = admin.Owners
	PartitionOwner = admin.PartitionOwner
	MemberInfo     = admin.MemberInfo
	PendingEntry   = admin.PendingEntry
	PendingOrder   = admin.PendingOrder
	PendingQuery   = admin.PendingQuery
	Stats          = admin.Stats
	PartitionCount = admin.PartitionCount
	PartitionTrim  = admin.PartitionTrim
)
