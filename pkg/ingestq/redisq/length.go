package redisq

import "context"

// StreamLength counts the stream's entries, read or not; 0 when there is no stream.
func (p *Publisher) StreamLength(ctx context.Context) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	n, err := p.client.Do(ctx, p.client.B().Xlen().Key(p.cfg.StreamKey).Build()).AsInt64()
	if err != nil {
		return 0, failure(ctx, "length of "+p.cfg.StreamKey, err)
	}
	return n, nil
}
