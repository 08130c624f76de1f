package process

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"
)

// ErrEnded is wrapped when a long-lived part ended without an error although nobody asked it to.
var ErrEnded = errors.New("ended by itself")

// Service is a long-lived part of a process: Run blocks until ctx ends and then returns nil.
type Service interface {
	Run(ctx context.Context) error
}

// ServiceFunc makes a Service of a function.
type ServiceFunc func(ctx context.Context) error

// Run calls the function.
func (f ServiceFunc) Run(ctx context.Context) error { return f(ctx) }

// Named gives a service a name for errors.
func Named(name string, s Service) Service { return named{name, s} }

type named struct {
	name string
	Service
}

// String is the name.
func (n named) String() string { return n.name }

// RunAll runs the services together until ctx ends or one of them fails; then it stops the others and waits for all.
// It returns nil after an end of ctx, else the first failure. A service that returns nil while ctx lives has failed
// too (ErrEnded): a process without one of its parts would look well and be stalled.
func RunAll(ctx context.Context, services ...Service) error {
	group, groupCtx := errgroup.WithContext(ctx)
	for _, s := range services {
		group.Go(func() error {
			err := s.Run(groupCtx)
			switch {
			case err == nil && groupCtx.Err() == nil:
				return fmt.Errorf("%s: %w", serviceName(s), ErrEnded)
			case err != nil && groupCtx.Err() != nil && errors.Is(err, context.Canceled):
				return nil
			case err != nil:
				return fmt.Errorf("%s: %w", serviceName(s), err)
			}
			return nil
		})
	}
	return group.Wait()
}

func serviceName(s Service) string {
	if n, ok := s.(fmt.Stringer); ok {
		return n.String()
	}
	return fmt.Sprintf("%T", s)
}
