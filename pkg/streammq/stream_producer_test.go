package streammq

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/streammq/internal/core"
)

func TestMessagesOfASingleStreamHaveAStatus(t *testing.T) {
	onBothLayouts(t, func(r *rig) {
		q, seen, ctx := r.mq(nil), &log{}, r.t.Context()
		p, err := q.NewStreamProducer(r.topic+"-tasks", true)
		require.NoError(r.t, err)
		large := strings.Repeat("x", DefaultInlineMax+1)
		receipts, err := p.Publish(ctx, Message{Payload: []byte(large)}, Message{Payload: []byte("fails")}, Message{Payload: []byte("waits")})
		require.NoError(r.t, err)
		states := func() (list []State) {
			all, err := q.Statuses(ctx, receipts[0].UUID, receipts[1].UUID, receipts[2].UUID)
			require.NoError(r.t, err)
			for _, receipt := range receipts {
				list = append(list, all[receipt.UUID].State)
			}
			return list
		}
		require.Equal(r.t, []State{StatePending, StatePending, StatePending}, states())
		goOn := make(chan struct{})
		defer close(goOn)
		r.single(q, "c", RoleBoth, seen.handler(func(d *Delivery) Result {
			switch string(d.Payload) {
			case "fails":
				return Fail(errBoom)
			case "waits":
				<-goOn
			}
			return Success()
		}), func(c *SubscriberConfig) {
			steady(c)
			c.Status, c.ClaimIdle = true, time.Hour
		})
		eventually(r.t, func() bool { return len(seen.all()) == 3 }, "all were begun")
		require.Equal(r.t, large, string(seen.all()[0].Payload))
		require.Equal(r.t, []State{StateCompleted, StateFailed, StateProcessing}, states())
	})
}

func TestStreamProducerIsChecked(t *testing.T) {
	t.Parallel()
	r := newRig(t, LayoutSingle)
	_, err := r.mq(nil).NewStreamProducer("a{b}", false)
	require.ErrorIs(t, err, ErrStreamKey)
	p, err := r.mq(nil).NewStreamProducer(r.topic+"-tasks", false)
	require.NoError(t, err)
	_, err = p.Publish(t.Context(), Message{Payload: []byte("a")}, Message{Key: strings.Repeat("k", MaxKey+1)})
	require.ErrorIs(t, err, ErrTooLarge)
	require.Zero(t, r.number("EXISTS", r.topic+"-tasks"))
	receipts, err := p.Publish(t.Context(), Message{Payload: []byte("a")})
	require.NoError(t, err)
	require.Zero(t, r.number("EXISTS", core.StatusKey(receipts[0].UUID)))
	require.ErrorIs(t, SubscriberConfig{Topic: "t", Status: true}.Validate(), ErrConfig)
}
