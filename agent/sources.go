// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/apiserver"
	"github.com/seed81659283/nodeagent/lifecycle"
	"github.com/seed81659283/nodeagent/lifecycle/source"
	"github.com/seed81659283/nodeagent/nodeapi"
	"github.com/seed81659283/nodeagent/nodeapi/podsapi"
)

// sources returns the names of the sources that the configuration names.
func (c *Config) sources() (names []string) {
	if c.Kubelet.StaticPodPath != "" {
		names = append(names, source.File)
	}
	if c.Kubelet.StaticPodURL != "" {
		names = append(names, source.URL)
	}
	if c.joins() {
		names = append(names, apiserver.API)
	}
	return names
}

// sourceNames returns the names of all sources.
func (c *Config) sourceNames(o *Options) []string {
	names := c.sources()
	for _, s := range o.Sources {
		names = append(names, s.Name())
	}
	return names
}

// staticSources returns the names of the sources of static pods.
func (c *Config) staticSources(o *Options) []string {
	return slices.DeleteFunc(c.sourceNames(o), func(name string) bool { return name == apiserver.API })
}

// loadStore returns the pods that the sources listed last, to run until they report. The store is loaded before it runs.
func (a *Agent) loadStore() []lifecycle.PodSet {
	if a.store == nil {
		return nil
	}
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
func setLoaded(ctx context.Context, wg *sync.WaitGroup, log *slog.Logger, sets []lifecycle.PodSet, set func(lifecycle.PodSet)) {
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

// runSources hands the pods of all sources to the reconciler until ctx ends.
func (a *Agent) runSources(ctx context.Context, fail func(error)) {
	var wg sync.WaitGroup
	defer wg.Wait()
	set := a.set
	if a.store != nil {
		set = func(s lifecycle.PodSet) { a.set(a.store.Update(s)) }
	}
	run := func(name string, source func(context.Context) error) {
		wg.Go(func() {
			if err := source(ctx); err != nil && ctx.Err() == nil {
				fail(fmt.Errorf("source %s: %w", name, err))
			}
		})
	}
	update := func(u source.Update) {
		for _, err := range u.Errs {
			a.log.Error("manifest", "error", err)
		}
		set(u.PodSet)
	}
	k, n := &a.config.Kubelet, &a.config.Node
	hasObjects, hasTokens := n.ObjectsDir != "" || a.options.Objects != nil, n.Kubeconfig != ""
	if k.StaticPodPath != "" {
		dir := source.NewDir(k.StaticPodPath, source.DirOptions{NodeName: n.NodeName, Objects: hasObjects, Tokens: hasTokens, Logger: a.log})
		run(source.File, func(ctx context.Context) error { return dir.Run(ctx, update) })
	}
	if k.StaticPodURL != "" {
		url := source.NewHTTP(k.StaticPodURL, source.HTTPOptions{NodeName: n.NodeName, Objects: hasObjects, Tokens: hasTokens})
		run(source.URL, func(ctx context.Context) error { return url.Run(ctx, update) })
	}
	if a.cluster != nil {
		run(apiserver.API, func(ctx context.Context) error { return a.cluster.watch(ctx, set) })
	}
	for _, s := range a.options.Sources {
		run(s.Name(), func(ctx context.Context) error {
			return s.Run(ctx, func(pods lifecycle.PodSet) {
				pods.Source = s.Name()
				set(pods)
			})
		})
	}
	<-ctx.Done()
}

// set hands the pods of a source to the reconciler.
func (a *Agent) set(s lifecycle.PodSet) {
	if a.options.Transform != nil {
		changed := make([]*corev1.Pod, len(s.Pods)) // they are shared
		for i, pod := range s.Pods {
			changed[i] = a.options.Transform(pod)
		}
		s.Pods = changed
	}
	if err := a.pods.Reconciler().Set(s); err != nil {
		a.log.Error("pods", "source", s.Source, "error", err)
	}
	if a.cluster != nil {
		a.cluster.setPods(s)
	}
}

// serveManifests serves the directory of manifests on a unix socket, for programs that hand pods to this node without a cluster.
func (a *Agent) serveManifests() error {
	k, n := &a.config.Kubelet, &a.config.Node
	if n.ManifestSocket == "" {
		return nil
	}
	server, err := nodeapi.New(nodeapi.Options{Insecure: true, Logger: a.log}) // the file mode of the socket restricts its clients
	if err != nil {
		return err
	}
	handler := source.NewHandler(k.StaticPodPath, source.HandlerOptions{
		NodeName: n.NodeName, Objects: n.ObjectsDir != "", Tokens: n.Kubeconfig != "", Status: func(uid string) *corev1.PodStatus {
			state, _ := a.pods.Pod(uid)
			return state.Status
		},
	})
	a.add("manifest socket", func(ctx context.Context) error {
		l, err := podsapi.Listen(n.ManifestSocket)
		if err != nil {
			return err
		}
		return server.Run(ctx, nodeapi.Endpoint{Listener: l, Handler: handler})
	})
	return nil
}
