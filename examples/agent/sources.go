// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/seed81659283/nodeagent/lifecycle"
	"github.com/seed81659283/nodeagent/lifecycle/apisource"
	"github.com/seed81659283/nodeagent/lifecycle/podset"
	"github.com/seed81659283/nodeagent/lifecycle/source"
)

// sources names where pods come from.
func (c *config) sources() (names []string) {
	if c.Manifests != "" {
		names = append(names, source.File)
	}
	if c.ManifestURL != "" {
		names = append(names, source.URL)
	}
	if c.joins() {
		names = append(names, apisource.API)
	}
	return names
}

// static names where static pods come from.
func (c *config) static() []string {
	return slices.DeleteFunc(c.sources(), func(name string) bool { return name == apisource.API })
}

// loadStore returns the pods that the sources listed last, to run until they report. The store is loaded before it runs.
func (a *agent) loadStore() []podset.Set {
	sets, err := a.store.Load()
	if err != nil {
		a.log.Error("the pods last wanted are lost; what runs is left running", "error", err)
	}
	return sets
}

// loadWait is how long the sources wait for the pods of the store.
const loadWait = time.Minute

// setLoaded calls set with each set of the store in a goroutine of wg, and returns when that is done. A pod that set takes long to check
// must not stop the agent at each start: after loadWait, setLoaded logs an error and returns.
func setLoaded(ctx context.Context, wg *sync.WaitGroup, log *slog.Logger, sets []podset.Set, set func(podset.Set)) {
	done := make(chan struct{})
	wg.Go(func() {
		defer close(done)
		for _, one := range sets {
			set(one)
		}
	})
	timer := time.NewTimer(loadWait)
	defer timer.Stop()
	select {
	case <-done:
	case <-ctx.Done():
	case <-timer.C:
		log.Error("the pods of the store take too long to check; the sources are read", "after", loadWait)
	}
}

// watch follows the sources until ctx ends.
func (a *agent) watch(ctx context.Context) {
	objects, tokens := a.Objects != "", a.Kubeconfig != ""
	run := map[string]func(context.Context, func(source.Update)) error{
		source.File: source.NewDir(a.Manifests, source.DirOptions{NodeName: a.NodeName, Objects: objects, Tokens: tokens, Logger: a.log}).Run,
		source.URL:  source.NewHTTP(a.ManifestURL, source.HTTPOptions{NodeName: a.NodeName, Objects: objects, Tokens: tokens}).Run,
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	if a.cluster != nil {
		wg.Go(func() { _ = a.cluster.watch(ctx, func(s podset.Set) { a.set(a.store.Update(s)) }) })
	}
	for _, name := range a.static() {
		wg.Go(func() {
			_ = run[name](ctx, func(u source.Update) {
				for _, err := range u.Errs {
					a.log.Error("manifest", "error", err)
				}
				a.set(a.store.Update(u.Set))
			})
		})
	}
}

func (a *agent) set(s lifecycle.PodSet) {
	if err := a.Set(s); err != nil {
		a.log.Error("pods", "error", err)
	}
	if a.cluster != nil {
		a.cluster.set(s)
	}
}
