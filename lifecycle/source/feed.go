// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/lifecycle"
)

// storedTimeout is the maximum time that the start of the sources is delayed until the stored pods are set.
const storedTimeout = time.Minute

// Feed passes the pods of all sources of a node to the function Set. The fields Sources and Set are required.
type Feed struct {
	// Sources are the sources of the node.
	Sources []Source
	// Set receives all pods of one source at each change, for example a function that calls Reconciler.Set. Calls for different
	// sources are concurrent.
	Set func(lifecycle.PodSet)
	// Stored are the pods that the sources listed before a restart, for example as returned by podstore.Store.Load. They are
	// passed to Set before any source runs. Nil: none.
	Stored []lifecycle.PodSet
	// Update stores the pods of a source and returns the pods to pass to Set, as podstore.Store.Update does. Nil: the pods are
	// not stored.
	Update func(lifecycle.PodSet) lifecycle.PodSet
	// Transform returns the pod to run in place of a listed or stored pod, which it must not modify. Nil: pods are run as listed.
	Transform func(pod *corev1.Pod) *corev1.Pod
	// Logger logs an error if setting the stored pods takes too long. Nil: no logs.
	Logger *slog.Logger
}

// Run passes the pods of all sources to Set until ctx ends, and then returns nil. If a source fails, Run stops the other sources
// and returns an error with its name. No goroutine of Run outlives it.
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
				f.setPods(pods)
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

// setPods passes the transformed pods of set to Set.
func (f *Feed) setPods(set lifecycle.PodSet) {
	if f.Transform != nil {
		transformed := make([]*corev1.Pod, len(set.Pods)) // set.Pods is shared
		for i, pod := range set.Pods {
			transformed[i] = f.Transform(pod)
		}
		set.Pods = transformed
	}
	f.Set(set)
}

// setStored passes the stored pods to Set and waits for it, but at most storedTimeout.
func (f *Feed) setStored(ctx context.Context, wg *sync.WaitGroup) {
	done := make(chan struct{})
	wg.Go(func() {
		defer close(done)
		for _, s := range f.Stored {
			f.setPods(s)
		}
	})
	timer := time.NewTimer(storedTimeout)
	defer timer.Stop()
	select {
	case <-done:
	case <-ctx.Done():
	case <-timer.C: // a check that hangs for one stored pod must not delay all other pods
		if f.Logger != nil {
			f.Logger.Error("setting the stored pods takes too long; the sources start", "after", storedTimeout)
		}
	}
}

// HasPods reports whether one of the sets is that of the named source and has pods, such as the stored sets before a restart.
func HasPods(sets []lifecycle.PodSet, name string) bool {
	return slices.ContainsFunc(sets, func(set lifecycle.PodSet) bool { return set.Source == name && len(set.Pods) > 0 })
}
