// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/seed81659283/nodeagent/lifecycle"
)

// storedTimeout is how long sources wait until the stored pods are set.
const storedTimeout = time.Minute

// Feed passes the pods of several sources of a node to one function. Sources and Set are required.
type Feed struct {
	// Sources are the sources of the node.
	Sources []Source
	// Set gets the pods of a source, such as a function that calls Reconciler.Set. Several sources call it at the same time.
	Set func(lifecycle.PodSet)
	// Stored are the pods that the sources listed last, such as those of podstore.Store.Load. They are set before any source runs. Nil: none.
	Stored []lifecycle.PodSet
	// Update stores the pods of a source and returns the pods to run, such as podstore.Store.Update. Nil: the pods are not stored.
	Update func(lifecycle.PodSet) lifecycle.PodSet
	// Logger gets an error if the stored pods take too long. Nil discards.
	Logger *slog.Logger
}

// Run passes pods until ctx ends, and returns nil then. If a source fails, Run stops the other sources and returns the error with the name of the
// source. All goroutines of Run have returned by then.
func (f *Feed) Run(ctx context.Context) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var wg sync.WaitGroup
	defer wg.Wait()
	f.setStored(ctx, &wg)
	failed := make(chan error, len(f.Sources))
	for _, s := range f.Sources {
		wg.Go(func() {
			err := s.Run(ctx, func(pods lifecycle.PodSet) {
				pods.Source = s.Name()
				if f.Update != nil {
					pods = f.Update(pods)
				}
				f.Set(pods)
			})
			if err != nil && ctx.Err() == nil {
				failed <- fmt.Errorf("source %s: %w", s.Name(), err)
			}
		})
	}
	select {
	case <-ctx.Done():
		return nil
	case err := <-failed:
		stop(err)
		return err
	}
}

// setStored sets the stored pods in a goroutine of wg, and returns when that is done. A pod that Set takes long to check must not stop the node at
// each start: after storedTimeout, setStored logs an error and returns.
func (f *Feed) setStored(ctx context.Context, wg *sync.WaitGroup) {
	done := make(chan struct{})
	wg.Go(func() {
		defer close(done)
		for _, s := range f.Stored {
			f.Set(s)
		}
	})
	timer := time.NewTimer(storedTimeout)
	defer timer.Stop()
	select {
	case <-done:
	case <-ctx.Done():
	case <-timer.C:
		if f.Logger != nil {
			f.Logger.Error("the pods of the store take too long to check; the sources are read", "after", storedTimeout)
		}
	}
}
