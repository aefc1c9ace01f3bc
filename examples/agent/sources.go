// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"slices"
	"sync"

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

// load runs what the sources wanted last, until they say something. The store is loaded before it is run.
func (a *agent) load() {
	sets, err := a.store.Load()
	if err != nil {
		a.log.Error("the pods last wanted are lost; what runs is left running", "error", err)
	}
	for _, set := range sets {
		a.set(set)
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
