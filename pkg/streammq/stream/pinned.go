package stream

import (
	"context"

	"github.com/redis/rueidis"
)

// Pinned is a client that uses no command's memory again. rueidis does once a command has its answer; but one that was sent
// again, on another connection, is still read by the writer of the connection that failed, if that has not seen yet that it did.
// It would send, or fall over, another command's text (redis/rueidis#702).
func Pinned(client rueidis.Client) rueidis.Client { return pinned{client} }

type pinned struct{ rueidis.Client }

// Do runs one command.
func (p pinned) Do(ctx context.Context, cmd rueidis.Completed) rueidis.RedisResult {
	return p.Client.Do(ctx, cmd.Pin())
}

// DoMulti runs several commands in one pipeline.
func (p pinned) DoMulti(ctx context.Context, multi ...rueidis.Completed) []rueidis.RedisResult {
	for _, cmd := range multi {
		cmd.Pin()
	}
	return p.Client.DoMulti(ctx, multi...)
}
