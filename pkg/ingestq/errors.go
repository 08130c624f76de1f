package ingestq

import (
	"context"
	"errors"
	"fmt"
)

// Failure says what was being done, and wraps the caller's own ctx error if there is one, else ErrUnavailable.
// It is nil when err is.
func Failure(ctx context.Context, doing string, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("%s: %w", doing, ctx.Err())
	case errors.Is(err, ErrUnavailable):
		return fmt.Errorf("%s: %w", doing, err)
	default:
		return fmt.Errorf("%s: %w: %w", doing, ErrUnavailable, err)
	}
}
