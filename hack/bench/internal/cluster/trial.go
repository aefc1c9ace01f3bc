// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/hack/bench/internal/process"
	"github.com/seed81659283/nodeagent/hack/bench/internal/stat"
	"github.com/seed81659283/nodeagent/hack/bench/internal/wait"
)

// trial is the measurement of one agent as one node.
type trial struct {
	*bench
	*process.Process
	load    load // node and namespace
	figures figures
	made    int // number of services that could be created

	watcher *watcher
	deaths  *deaths

	mu     sync.Mutex // guards failed
	failed error      // of the goroutines that watch
}

// measure takes the figures of one agent as the named node, and cleans up afterwards.
func (b *bench) measure(ctx context.Context, s subject, node string) (f figures, err error) {
	t := &trial{
		bench: b, load: load{b.plane.Admin(), node, b.image}, figures: figures{Subject: s.name, Values: map[metric]float64{}},
		watcher: newWatcher(), deaths: &deaths{at: map[string]time.Time{}},
	}
	if err := b.freeCgroups(); err != nil {
		return t.figures, err
	}
	dir := filepath.Join(b.work, node)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return t.figures, err
	}
	kubeconfig, err := b.plane.Kubeconfig("system:node:"+node, "system:nodes")
	if err != nil {
		return t.figures, err
	}
	if err := t.load.namespace(ctx, b.limit); err != nil {
		return t.figures, err
	}
	began := time.Now()
	if t.Process, err = s.start(b, node, kubeconfig, dir); err != nil {
		return t.figures, err
	}
	watching, end := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { t.fail(t.watcher.run(watching, b.plane.Admin(), node)) })
	wg.Go(func() { t.fail(t.deaths.record(watching, b.runtime)) })
	defer func() {
		err = errors.Join(err, t.cleanUp(context.WithoutCancel(ctx)))
		end()
		wg.Wait()
		f = t.figures
	}()
	if err := t.load.ready(ctx, b.limit, t.alive); err != nil {
		return t.figures, err
	}
	t.figures.add(readySeconds, time.Since(began).Seconds())
	for _, step := range []func(context.Context) error{t.bind, t.rest, t.kill, t.serve} {
		if err := step(ctx); err != nil {
			return t.figures, err
		}
	}
	return t.figures, nil
}

// freeCgroups makes the kernel free the memory cgroups of removed pods, which would slow down the next measurement.
func (b *bench) freeCgroups() error {
	if b.hurry {
		return nil
	}
	syscall.Sync()
	return os.WriteFile("/proc/sys/vm/drop_caches", []byte("3"), 0o200)
}

func (t *trial) fail(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.failed = errors.Join(t.failed, err)
}

// alive returns the reason why waiting is useless, or nil.
func (t *trial) alive() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return errors.Join(t.Alive(), t.failed)
}

// requests counts the requests of the node in a period, by "verb resource/subresource".
func (t *trial) requests(since, until time.Time) (map[string]int, error) {
	all, err := t.plane.Requests(since)
	count := map[string]int{}
	for _, r := range all {
		if r.User == "system:node:"+t.load.node && !r.Time.After(until) {
			what := r.Verb + " " + r.Resource
			if r.Subresource != "" {
				what += "/" + r.Subresource
			}
			count[what]++
		}
	}
	return count, err
}

// statusTail is the time for which requests are counted after the last pod was observed as running: later status requests
// belong to the start too.
const statusTail = 3 * time.Second

// bind binds all pods at once, and waits until a watcher has observed them as running.
func (t *trial) bind(ctx context.Context) error {
	names, err := t.load.pods(ctx, t.pods)
	if err != nil {
		return err
	}
	began := time.Now()
	bound, err := t.load.bind(ctx, names)
	if err != nil {
		return err
	}
	err = t.watcher.await(ctx, t.limit, "all pods run", t.alive, func() bool { return len(t.watcher.running) == len(names) })
	if err != nil {
		return err
	}
	var took []float64
	last := began
	t.watcher.mu.Lock()
	for name, at := range t.watcher.running {
		took = append(took, at.Sub(bound[name]).Seconds())
		if at.After(last) {
			last = at
		}
	}
	t.watcher.mu.Unlock()
	t.figures.add(runningSeconds, last.Sub(began).Seconds())
	t.figures.add(runningP50, stat.Quantile(took, 0.5))
	t.figures.add(runningP99, stat.Quantile(took, 0.99))
	if err := wait.Sleep(ctx, statusTail); err != nil {
		return err
	}
	count, err := t.requests(began, time.Now())
	t.figures.add(statusPatches, float64(count["patch pods/status"]))
	t.figures.add(statusRequests, float64(count["patch pods/status"]+count["get pods"]))
	t.figures.add(boundRequests, float64(sum(count)))
	t.figures.Bound = count
	return err
}

// rest measures the node at rest.
func (t *trial) rest(ctx context.Context) error {
	if err := wait.Sleep(ctx, t.settle); err != nil {
		return err
	}
	began := time.Now()
	before, err := t.CPU()
	if err != nil {
		return err
	}
	if err := wait.Sleep(ctx, t.options.rest); err != nil {
		return err
	}
	ended := time.Now()
	after, err := t.CPU()
	if err != nil {
		return errors.Join(err, t.alive())
	}
	resident, err := t.Resident()
	if err != nil {
		return err
	}
	count, err := t.requests(began, ended)
	t.figures.add(restRequests, float64(sum(count))/ended.Sub(began).Minutes())
	t.figures.add(restMiB, resident)
	t.figures.add(restMillicores, 1000*(after-before).Seconds()/ended.Sub(began).Seconds())
	t.figures.Rest = count
	return err
}

// kill kills containers at random moments, each at most once.
func (t *trial) kill(ctx context.Context) error {
	var pods []*corev1.Pod
	t.watcher.mu.Lock()
	for _, name := range slices.Sorted(maps.Keys(t.watcher.now)) {
		pods = append(pods, t.watcher.now[name])
	}
	t.watcher.mu.Unlock()
	var seen, told, late []float64
	for _, i := range rand.Perm(len(pods))[:min(t.kills, len(pods))] {
		id, first, err := firstProcess(ctx, t.runtime, string(pods[i].UID))
		if err != nil {
			return err
		}
		if err := wait.Sleep(ctx, gap()); err != nil {
			return err
		}
		killed := time.Now()
		if err := first.Signal(syscall.SIGKILL); err != nil {
			return fmt.Errorf("kill container %s: %w", id, err)
		}
		var death, status time.Time
		err = t.watcher.await(ctx, t.limit, "the death of container "+id+" is told", t.alive, func() bool {
			death, status = t.deaths.seen(id), t.watcher.died["containerd://"+id]
			return !death.IsZero() && !status.IsZero()
		})
		if err != nil {
			return err
		}
		seen, told, late = append(seen, death.Sub(killed).Seconds()), append(told, status.Sub(killed).Seconds()), append(late, status.Sub(death).Seconds())
	}
	if len(seen) > 0 {
		t.figures.add(deathP50, stat.Quantile(seen, 0.5))
		t.figures.add(toldP50, stat.Quantile(told, 0.5))
		t.figures.add(toldP99, stat.Quantile(told, 0.99))
		t.figures.add(lateP50, stat.Quantile(late, 0.5))
		t.figures.add(lateP99, stat.Quantile(late, 0.99))
	}
	return nil
}

// serve creates services, and measures their cost in memory.
func (t *trial) serve(ctx context.Context) error {
	if t.services == 0 {
		return nil
	}
	if err := wait.Sleep(ctx, t.settle); err != nil {
		return err
	}
	before, err := t.Resident()
	if err != nil {
		return err
	}
	t.made = t.services
	if err := t.load.services(ctx, t.made); err != nil {
		return err
	}
	if err := wait.Sleep(ctx, t.settle); err != nil {
		return err
	}
	after, err := t.Resident()
	t.figures.add(servicesMiB, after-before)
	return err
}

// cleanUp removes the pods, the node and the remains of the agent, and stops the agent.
func (t *trial) cleanUp(ctx context.Context) error {
	err := t.load.deletePods(ctx)
	if err == nil && t.alive() == nil {
		err = t.watcher.await(ctx, t.limit, "all pods are removed", t.alive, func() bool { return len(t.watcher.now) == 0 })
	}
	return errors.Join(err, t.Stop(t.grace), t.runtime.RemovePods(ctx, nil), t.load.cleanUp(ctx, t.made))
}
