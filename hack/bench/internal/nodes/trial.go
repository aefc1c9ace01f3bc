// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package nodes

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/seed81659283/nodeagent/hack/bench/internal/process"
	"github.com/seed81659283/nodeagent/hack/bench/internal/stat"
	"github.com/seed81659283/nodeagent/hack/bench/internal/wait"
	"github.com/seed81659283/nodeagent/internal/controlplane"
)

// trial is the measurement of one simulator with one number of nodes.
type trial struct {
	options
	subject
	*process.Process
	client  *controlplane.Client
	nodes   []string
	watcher *watcher
	figures figures
}

// runTrial takes the figures of one simulator in a control plane of its own, whose files are in dir.
func (o options) runTrial(ctx context.Context, s subject, size int, dir string) (f figures, err error) {
	t := &trial{options: o, subject: s, watcher: newWatcher(), figures: figures{Subject: s.name, Nodes: size, Values: map[metric]float64{}}}
	for i := range size {
		t.nodes = append(t.nodes, fmt.Sprintf("n%05d", i))
	}
	unlimited := []string{"--kube-api-qps=100000", "--kube-api-burst=100000"}
	plane, err := controlplane.StartPlane(ctx, o.bin, filepath.Join(dir, "plane"), controlplane.Options{
		ControllerManager: true, Scheduler: true, SchedulerArgs: unlimited,
		ControllerManagerArgs: append(unlimited, "--concurrent-deployment-syncs=20", "--concurrent-replicaset-syncs=20"),
	})
	if err != nil {
		return t.figures, err
	}
	defer func() { err = errors.Join(err, plane.Close()) }()
	t.client = plane.Admin()
	kubeconfig, err := plane.Kubeconfig("simulator", "system:masters")
	if err != nil {
		return t.figures, err
	}
	return t.figures, t.runSteps(ctx, kubeconfig, dir)
}

// runSteps starts the simulator, takes the figures, and ends it.
func (t *trial) runSteps(ctx context.Context, kubeconfig, dir string) (err error) {
	if t.needsNodes {
		if err := t.createNodes(ctx); err != nil {
			return err
		}
	}
	watching, end := context.WithCancel(ctx)
	var group sync.WaitGroup
	for _, watch := range []func(context.Context, watchClient) error{t.watcher.watchNodes, t.watcher.watchPods} {
		group.Go(func() { t.watcher.recordError(watch(watching, t.client)) })
	}
	defer group.Wait()
	defer end()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	began := time.Now()
	if t.Process, err = t.start(&t.options, kubeconfig, dir, t.nodes); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.Stop(t.grace)) }()
	if err := t.awaitCount(ctx, "all nodes are ready", func(w *watcher) int { return w.countReady() }, len(t.nodes)); err != nil {
		return err
	}
	t.figures.Values[readySeconds] = time.Since(began).Seconds()
	t.watcher.resetLowest()
	for _, step := range []func(context.Context) error{t.scaleDeployment, t.measureRest} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	t.figures.Values[lowestReady] = float64(t.watcher.lowestReady())
	return nil
}

// createNodes creates the Node objects, with the capacity of a node of virtualnode.
func (t *trial) createNodes(ctx context.Context) error {
	capacity := map[string]string{"cpu": "4", "memory": "16Gi", "pods": "110"}
	for _, name := range t.nodes {
		node := map[string]any{
			"apiVersion": "v1", "kind": "Node", "metadata": map[string]any{"name": name, "labels": map[string]string{"kubernetes.io/hostname": name}},
			"status": map[string]any{"capacity": capacity, "allocatable": capacity},
		}
		if err := t.client.Do(ctx, http.MethodPost, "/api/v1/nodes", node, nil); err != nil {
			return fmt.Errorf("create node %s: %w", name, err)
		}
	}
	return nil
}

// scaleDeployment creates a Deployment with all pods and measures until all of them run.
func (t *trial) scaleDeployment(ctx context.Context) error {
	count := len(t.nodes) * t.pods
	before, err := readServer(ctx, t.client)
	if err != nil {
		return err
	}
	began := time.Now()
	labels := map[string]string{"app": "bench"}
	err = t.client.Do(ctx, http.MethodPost, "/apis/apps/v1/namespaces/default/deployments", map[string]any{
		"apiVersion": "apps/v1", "kind": "Deployment", "metadata": map[string]string{"name": "bench"},
		"spec": map[string]any{
			"replicas": count, "selector": map[string]any{"matchLabels": labels},
			"template": map[string]any{
				"metadata": map[string]any{"labels": labels},
				"spec": map[string]any{"containers": []any{map[string]any{
					"name": "main", "image": "registry.invalid/none:1", "resources": map[string]any{"requests": map[string]string{"cpu": "10m", "memory": "16Mi"}},
				}}},
			},
		},
	}, nil)
	if err != nil {
		return err
	}
	if err := t.awaitCount(ctx, "all pods run", func(w *watcher) int { return len(w.running) }, count); err != nil {
		return err
	}
	took := time.Since(began).Seconds()
	after, err := readServer(ctx, t.client)
	if err != nil {
		return err
	}
	starts := t.watcher.startTimes()
	values := t.figures.Values
	maps.Copy(values, map[metric]float64{
		scaleSeconds: took, scaleRate: float64(count) / took, startP50: stat.Quantile(starts, 0.5), startP99: stat.Quantile(starts, 0.99),
		scaleRequests: (after.requests - before.requests) / float64(count), scaleServerCPU: after.cpu - before.cpu,
	})
	return nil
}

// measureRest measures the simulator and the API server while no pod changes.
func (t *trial) measureRest(ctx context.Context) error {
	if err := wait.Sleep(ctx, t.settle); err != nil {
		return err
	}
	type reading struct {
		cpu    time.Duration
		memory float64
		server server
	}
	read := func() (r reading, err error) {
		if err := errors.Join(t.Alive(), t.watcher.watchError()); err != nil {
			return r, err
		}
		var errs [3]error
		r.cpu, errs[0] = t.CPU()
		r.memory, errs[1] = t.Resident()
		r.server, errs[2] = readServer(ctx, t.client)
		return r, errors.Join(errs[:]...)
	}
	before, err := read()
	if err != nil {
		return err
	}
	began := time.Now()
	if err := wait.Sleep(ctx, t.rest); err != nil {
		return err
	}
	after, err := read()
	if err != nil {
		return err
	}
	took := time.Since(began)
	maps.Copy(t.figures.Values, map[metric]float64{
		restMiB: after.memory, restGrowth: after.memory - before.memory,
		restMillicores:   1000 * (after.cpu - before.cpu).Seconds() / took.Seconds(),
		restServerMillis: 1000 * (after.server.cpu - before.server.cpu) / took.Seconds(),
		restRequests:     (after.server.requests - before.server.requests) / took.Minutes(),
	})
	return nil
}

// awaitCount waits until count, which is called with the watcher locked, returns at least want.
func (t *trial) awaitCount(ctx context.Context, condition string, count func(*watcher) int, want int) error {
	for deadline := time.Now().Add(t.limit); ; {
		t.watcher.mu.Lock()
		has := count(t.watcher)
		t.watcher.mu.Unlock()
		if has >= want {
			return nil
		}
		if err := errors.Join(t.Alive(), t.watcher.watchError()); err != nil {
			return fmt.Errorf("wait until %s: %w", condition, err)
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("wait until %s: %d of %d after %v", condition, has, want, t.limit)
		}
		if err := wait.Sleep(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
}

// startTimes returns the seconds between the event of a pod's binding and the one of its phase Running, for all running pods.
func (w *watcher) startTimes() (seconds []float64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(w.running)) {
		seconds = append(seconds, w.running[name].Sub(w.bound[name]).Seconds())
	}
	return seconds
}
